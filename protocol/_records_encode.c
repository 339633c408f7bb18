/* Records encoded from Arrow's buffers, as encoder.py of the Spark source does it; in two passes as
 * in _records_decode.c: what was measured is allocated, and then written.
 */

#include "_records.h"

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
    int64_t taken;
    int64_t size;
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

ALWAYS_INLINE uint64_t zigzag(int64_t value)
{
    return (uint64_t)value << 1 ^ (value < 0 ? ~(uint64_t)0 : 0);
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
    uint8_t bytes[10];
    int size = 0;
    uint64_t word = zigzag(value);
    while (word > 0x7F) {
        bytes[size++] = (uint8_t)(word | 0x80);
        word >>= 7;
    }
    bytes[size++] = (uint8_t)word;
    put_bytes(writer, bytes, size);
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

/* The body of a record: all that follows its length. */
ALWAYS_INLINE int put_body(Writer *writer, const Input *input, int64_t row, int64_t timestamp_delta,
                           int64_t offset_delta)
{
    static const uint8_t attributes = 0;
    put_bytes(writer, &attributes, 1);
    put_varint(writer, timestamp_delta);
    put_varint(writer, offset_delta);
    if (!input->has_keys)
        put_varint(writer, -1);
    else if (!put_source(writer, &input->keys, row))
        return 0;
    if (!input->has_values)
        put_varint(writer, -1);
    else if (!put_source(writer, &input->values, row))
        return 0;
    return put_header_list(writer, input, row);
}

/* Encodes records until `bytes_max` would be passed, or, with `out`, as many as were measured. */
static int encode_records(Input *input, uint8_t *out, int64_t room)
{
    int64_t count = out ? input->taken : input->rows.len / 8, taken = 0;
    Writer writer = {out, out ? out + room : out, 0};
    for (; taken < count; taken++) {
        int64_t row = int64_at(&input->rows, taken);
        if (row < 0 || row >= input->timestamps.len / 8)
            return 0;
        int64_t timestamp = int64_at(&input->timestamps, row);
        if (taken == 0)
            input->base_timestamp = input->max_timestamp = timestamp;
        int64_t delta = (int64_t)((uint64_t)timestamp - (uint64_t)input->base_timestamp);
        /* The body's size comes before it. */
        Writer measure = {NULL, NULL, 0};
        if (!put_body(&measure, input, row, delta, taken) || measure.size > INT32_MAX)
            return 0;
        Writer length = {NULL, NULL, 0};
        put_varint(&length, measure.size);
        if (!out && taken && writer.size + length.size + measure.size > input->bytes_max)
            break;
        if (out) {
            put_varint(&writer, measure.size);
            if (!put_body(&writer, input, row, delta, taken))
                return 0;
        } else {
            writer.size += length.size + measure.size;
        }
        if (timestamp > input->max_timestamp)
            input->max_timestamp = timestamp;
    }
    input->taken = taken;
    input->size = writer.size;
    return !out || (writer.size == room && writer.at == writer.end);
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
    Py_BEGIN_ALLOW_THREADS
    is_sound = encode_records(input, NULL, 0);
    Py_END_ALLOW_THREADS
    if (is_sound) {
        PyObject *payload;
        int64_t room = input->size;
        uint8_t *out = new_bytes(&payload, room, 0);
        if (out == NULL)
            return NULL;
        Py_BEGIN_ALLOW_THREADS
        is_sound = encode_records(input, out, room);
        Py_END_ALLOW_THREADS
        if (is_sound)
            return Py_BuildValue("NLLL", payload, (long long)input->taken,
                                 (long long)input->base_timestamp, (long long)input->max_timestamp);
        Py_DECREF(payload);
    }
    PyErr_SetString(PyExc_ValueError, "the columns are no records");
    return NULL;
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
