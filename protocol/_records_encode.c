/* Records encoded from Arrow's buffers, and the partitions of their keys, as encoder.py and
 * partitioner.py of the Spark source do both. */

#include "_records_growing.h"

/* A batch is larger than that only if somebody asks for it. */
#define FIRST_ROOM (1 << 20)
#define ROWS_AHEAD 12

/* A column as Arrow has it, of bytes or, without data, of lists; `first` is where its rows begin in
 * the buffers. */
typedef struct {
    Py_buffer validity, offsets, data;
    int64_t first;
    int64_t rows;
} Source;

/* What there is to encode. */
typedef struct {
    Py_buffer rows, timestamps;
    Source keys, values, headers, header_keys, header_values;
    int has_keys, has_values, has_headers;
    int64_t bytes_max;
    /* What came of it. */
    int is_out_of_memory;
    int64_t taken;
    int64_t base_timestamp;
    int64_t max_timestamp;
} Input;

/* 0 with an exception set, and with the buffers that were there by then. */
static int get_buffers(Source *source, long long first, PyObject *validity, PyObject *offsets,
                       PyObject *data)
{
    if (PyObject_GetBuffer(offsets, &source->offsets, PyBUF_SIMPLE) < 0)
        return 0;
    if (validity != Py_None && PyObject_GetBuffer(validity, &source->validity, PyBUF_SIMPLE) < 0)
        return 0;
    if (data != Py_None && PyObject_GetBuffer(data, &source->data, PyBUF_SIMPLE) < 0)
        return 0;
    /* Rows before the first one are in the buffers, too. */
    int64_t rows = source->offsets.len / 4 - 1;
    if (first < 0 || first > rows || (source->validity.obj && source->validity.len * 8 < rows)) {
        PyErr_SetString(PyExc_ValueError, "the buffers of a column do not fit each other");
        return 0;
    }
    source->first = first;
    source->rows = rows - first;
    return 1;
}

/* Takes (first, validity or None, offsets, data or None); 0 with an exception set. */
static int get_source(PyObject *tuple, Source *source)
{
    PyObject *validity, *offsets, *data;
    long long first;
    return PyArg_ParseTuple(tuple, "LOOO:a column", &first, &validity, &offsets, &data) &&
           get_buffers(source, first, validity, offsets, data);
}

static void release(Py_buffer *buffer)
{
    if (buffer->obj)
        PyBuffer_Release(buffer);
}

static void release_source(Source *source)
{
    release(&source->validity);
    release(&source->offsets);
    release(&source->data);
}

ALWAYS_INLINE int32_t int32_at(const Py_buffer *buffer, int64_t index)
{
    int32_t number;
    memcpy(&number, (const char *)buffer->buf + 4 * index, 4);
    return number;
}

ALWAYS_INLINE int64_t int64_at(const Py_buffer *buffer, int64_t index)
{
    int64_t number;
    memcpy(&number, (const char *)buffer->buf + 8 * index, 8);
    return number;
}

ALWAYS_INLINE int is_valid(const Py_buffer *validity, int64_t index)
{
    return validity->obj == NULL || ((const uint8_t *)validity->buf)[index >> 3] >> (index & 7) & 1;
}

/* From where to where a row goes: how much that is, -1 for null, -2 when the buffers say what
 * cannot be. */
ALWAYS_INLINE int64_t span_at(const Source *source, int64_t row, int64_t *begin)
{
    if (row < 0 || row >= source->rows)
        return -2;
    row += source->first;
    if (!is_valid(&source->validity, row))
        return -1;
    int64_t end = int32_at(&source->offsets, row + 1);
    *begin = int32_at(&source->offsets, row);
    return *begin < 0 || end < *begin ? -2 : end - *begin;
}

/* The piece at a row, and its size, -1 or -2 as above. */
ALWAYS_INLINE int64_t source_at(const Source *source, int64_t row, const uint8_t **piece)
{
    int64_t begin, size = span_at(source, row, &begin);
    if (size < 0)
        return size;
    if (size > source->data.len - begin)
        return -2;
    *piece = (const uint8_t *)source->data.buf + begin;
    return size;
}

/* Writes what fits between `at` and `end`; `size` counts what does not as well. */
typedef struct {
    uint8_t *at;
    uint8_t *end;
    int64_t size;
} Writer;

ALWAYS_INLINE void put_bytes(Writer *writer, const uint8_t *data, int64_t size)
{
    writer->size += size;
    if (writer->end - writer->at >= size && size > 0) {
        memcpy(writer->at, data, (size_t)size);
        writer->at += size;
    }
}

ALWAYS_INLINE void put_varint(Writer *writer, int64_t value)
{
    uint8_t bytes[VARINT_BYTES_MAX];
    put_bytes(writer, bytes, write_varint(bytes, value) - bytes);
}

ALWAYS_INLINE int put_source(Writer *writer, const Source *source, int64_t row)
{
    const uint8_t *piece = NULL;
    int64_t size = source_at(source, row, &piece);
    if (size < -1)
        return 0;
    put_varint(writer, size);
    put_bytes(writer, piece, size < 0 ? 0 : size);
    return 1;
}

static int put_header_list(Writer *writer, const Input *input, int64_t row)
{
    int64_t at = 0, count = input->has_headers ? span_at(&input->headers, row, &at) : 0;
    if (count < -1)
        return 0;
    put_varint(writer, count < 0 ? 0 : count);
    for (; count > 0; count--, at++) {
        const uint8_t *piece;
        /* A header without a key is none that a reader would take. */
        if (source_at(&input->header_keys, at, &piece) < 0 ||
            !put_source(writer, &input->header_keys, at) ||
            !put_source(writer, &input->header_values, at))
            return 0;
    }
    return 1;
}

ALWAYS_INLINE int64_t piece_size(int64_t size)
{
    return varint_size(size) + (size < 0 ? 0 : size);
}

ALWAYS_INLINE uint8_t *write_piece(uint8_t *at, const uint8_t *piece, int64_t size)
{
    at = write_varint(at, size);
    if (size <= 0)
        return at;
    memcpy(at, piece, (size_t)size);
    return at + size;
}

/* The record of a row, written as number `place` of its batch: 1, 0 if it has no room there, or -1
 * for what is no record. Sizes are asked for once, so that what is measured is what is written. */
ALWAYS_INLINE int put_record(Input *input, Growing *out, int64_t row, int64_t delta, int64_t place)
{
    const uint8_t *key = NULL, *value = NULL;
    int64_t key_size = input->has_keys ? source_at(&input->keys, row, &key) : -1;
    int64_t value_size = input->has_values ? source_at(&input->values, row, &value) : -1;
    Writer headers = {NULL, NULL, 0};
    if (key_size < -1 || value_size < -1 || !put_header_list(&headers, input, row))
        return -1;
    int64_t body = 1 + varint_size(delta) + varint_size(place) + piece_size(key_size) +
                   piece_size(value_size) + headers.size;
    if (body > INT32_MAX)
        return -1;
    int64_t size = varint_size(body) + body;
    if (place && out->size + size > input->bytes_max)
        return 0;
    uint8_t *at = room_for(out, size), *end = at + size;
    if (at == NULL) {
        input->is_out_of_memory = 1;
        return -1;
    }
    at = write_varint(at, body);
    *at++ = 0;
    at = write_varint(at, delta);
    at = write_varint(at, place);
    at = write_piece(at, key, key_size);
    at = write_piece(at, value, value_size);
    /* Whoever owns the buffers may have changed them since. */
    headers = (Writer){at, end, 0};
    if (!put_header_list(&headers, input, row) || headers.at != end || headers.size != end - at)
        return -1;
    out->size += size;
    return 1;
}

/* Asks for the bytes of a row to come while others are written: rows of one partition lie apart,
 * and waiting for them would take most of the time. */
ALWAYS_INLINE void fetch_ahead(const Source *source, int64_t row)
{
#if defined(__GNUC__) || defined(__clang__)
    int64_t begin, size = span_at(source, row, &begin);
    if (size > 0 && size <= source->data.len - begin) {
        const uint8_t *at = (const uint8_t *)source->data.buf + begin;
        __builtin_prefetch(at);
        __builtin_prefetch(at + size - 1);
    }
#else
    (void)source;
    (void)row;
#endif
}

/* Encodes records until `bytes_max` would be passed; 0 if they are none. */
static int encode_records(Input *input, Growing *out)
{
    int64_t count = input->rows.len / 8, taken = 0;
    for (; taken < count; taken++) {
        int64_t row = int64_at(&input->rows, taken);
        if (row < 0 || row >= input->timestamps.len / 8)
            return 0;
        int64_t timestamp = int64_at(&input->timestamps, row);
        if (taken + ROWS_AHEAD < count) {
            int64_t next = int64_at(&input->rows, taken + ROWS_AHEAD);
            if (input->has_keys)
                fetch_ahead(&input->keys, next);
            if (input->has_values)
                fetch_ahead(&input->values, next);
        }
        if (taken == 0)
            input->base_timestamp = input->max_timestamp = timestamp;
        int64_t delta = (int64_t)((uint64_t)timestamp - (uint64_t)input->base_timestamp);
        int is_put = put_record(input, out, row, delta, taken);
        if (is_put < 0)
            return 0;
        if (!is_put)
            break;
        if (timestamp > input->max_timestamp)
            input->max_timestamp = timestamp;
    }
    input->taken = taken;
    return 1;
}

static int get_input(PyObject *keys, PyObject *values, PyObject *headers, Input *input)
{
    input->has_keys = keys != Py_None;
    input->has_values = values != Py_None;
    input->has_headers = headers != Py_None;
    if (input->has_keys && !get_source(keys, &input->keys))
        return 0;
    if (input->has_values && !get_source(values, &input->values))
        return 0;
    if (input->has_headers) {
        PyObject *validity, *places, *header_keys, *header_values;
        long long first;
        if (!PyArg_ParseTuple(headers, "LOOOO:headers", &first, &validity, &places, &header_keys,
                              &header_values))
            return 0;
        if (!PyTuple_Check(header_keys) || !PyTuple_Check(header_values)) {
            PyErr_SetString(PyExc_TypeError, "the keys and values of headers are columns");
            return 0;
        }
        if (!get_buffers(&input->headers, first, validity, places, Py_None) ||
            !get_source(header_keys, &input->header_keys) ||
            !get_source(header_values, &input->header_values))
            return 0;
    }
    return 1;
}

static PyObject *encode_all(Input *input)
{
    int is_sound;
    Growing out = {0};
    Py_BEGIN_ALLOW_THREADS
    /* So that it need not grow, as far as that is no lie. */
    if (input->rows.len && input->bytes_max > 0)
        room_for(&out, input->bytes_max < FIRST_ROOM ? input->bytes_max : FIRST_ROOM);
    is_sound = encode_records(input, &out);
    Py_END_ALLOW_THREADS
    PyObject *encoded = NULL;
    if (is_sound) {
        PyObject *payload = taken_bytes(&out);
        if (payload != NULL)
            encoded = Py_BuildValue("NLLL", payload, (long long)input->taken,
                                    (long long)input->base_timestamp,
                                    (long long)input->max_timestamp);
    } else if (input->is_out_of_memory) {
        PyErr_NoMemory();
    } else {
        PyErr_SetString(PyExc_ValueError, "the columns are no records");
    }
    free(out.data);
    return encoded;
}

const char records_encode_doc[] = PyDoc_STR(
    "encode(rows, timestamps, keys, values, headers, bytes_max, /)\n--\n\n"
    "(payload, count, base_timestamp, max_timestamp): the records at `rows` (int64), from "
    "the first on, as many as fit into `bytes_max`, at least one. Timestamps are int64, "
    "ms; keys and values (first, validity or None, int32 offsets, data or None), or None "
    "for nulls; headers (first, validity or None, int32 offsets, keys, values) or None.");

PyObject *records_encode(PyObject *module, PyObject *arguments)
{
    PyObject *keys, *values, *headers, *encoded = NULL;
    long long bytes_max;
    Input input;
    (void)module;
    memset(&input, 0, sizeof input);
    if (!PyArg_ParseTuple(arguments, "y*y*OOOL:encode", &input.rows, &input.timestamps, &keys,
                          &values, &headers, &bytes_max))
        return NULL;
    /* No batch is larger, and so no sum of sizes has more than 64 bits. */
    input.bytes_max = bytes_max < INT32_MAX ? bytes_max : INT32_MAX;
    PyObject *const tuples[3] = {keys, values, headers};
    int are_tuples = 1;
    for (int index = 0; index < 3; index++)
        are_tuples &= tuples[index] == Py_None || PyTuple_Check(tuples[index]);
    if (!are_tuples)
        PyErr_SetString(PyExc_TypeError, "a column is a tuple of buffers, or None");
    else if (get_input(keys, values, headers, &input))
        encoded = encode_all(&input);
    release_source(&input.keys);
    release_source(&input.values);
    release_source(&input.headers);
    release_source(&input.header_keys);
    release_source(&input.header_values);
    PyBuffer_Release(&input.rows);
    PyBuffer_Release(&input.timestamps);
    return encoded;
}

/* ---- Keys to partitions ---------------------------------------------------------------------- */

#define MURMUR_SEED 0x9747B28Cu
#define MURMUR_MULTIPLIER 0x5BD1E995u

/* As Kafka's Java producer hashes keys. */
static uint32_t murmur2(const uint8_t *at, int64_t size)
{
    uint32_t hash = MURMUR_SEED ^ (uint32_t)size;
    for (; size >= 4; at += 4, size -= 4) {
        uint32_t word = (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
                        (uint32_t)at[3] << 24;
        word *= MURMUR_MULTIPLIER;
        word = (word ^ word >> 24) * MURMUR_MULTIPLIER;
        hash = hash * MURMUR_MULTIPLIER ^ word;
    }
    if (size) {
        while (size-- > 0)
            hash ^= (uint32_t)at[size] << (8 * size);
        hash *= MURMUR_MULTIPLIER;
    }
    hash = (hash ^ hash >> 13) * MURMUR_MULTIPLIER;
    return hash ^ hash >> 15;
}

const char records_partition_doc[] = PyDoc_STR(
    "partition(keys, rows, partition_count, /)\n--\n\n"
    "The partitions, int32, of the first `rows` keys of a column that is as for `encode`, as "
    "Kafka's producer chooses them; -1 for a null.");

PyObject *records_partition(PyObject *module, PyObject *arguments)
{
    PyObject *tuple, *partitions = NULL;
    long long rows, partition_count;
    int64_t row = 0;
    Source keys;
    (void)module;
    memset(&keys, 0, sizeof keys);
    if (!PyArg_ParseTuple(arguments, "O!LL:partition", &PyTuple_Type, &tuple, &rows,
                          &partition_count))
        return NULL;
    if (get_source(tuple, &keys)) {
        int32_t *to = NULL;
        if (rows >= 0 && rows <= keys.rows && partition_count > 0 && partition_count <= INT32_MAX)
            to = new_bytes(&partitions, 4 * rows, 0);
        else
            PyErr_SetString(PyExc_ValueError, "there are not so many keys, or no partitions");
        for (; to != NULL && row < rows; row++) {
            const uint8_t *key = NULL;
            int64_t size = source_at(&keys, row, &key);
            if (size < -1)
                break;
            uint32_t hash = size < 0 ? 0 : murmur2(key, size) & INT32_MAX;
            to[row] = size < 0 ? -1 : (int32_t)(hash % (uint32_t)partition_count);
        }
        if (to != NULL && row < rows) {
            Py_CLEAR(partitions);
            PyErr_SetString(PyExc_ValueError, "the columns are no records");
        }
    }
    release_source(&keys);
    return partitions;
}
