/* Records as Arrow's buffers: what is refused here is what fields.py of the Spark source refuses.
 *
 * Two passes over the same bytes, without the GIL: the first checks and measures, then the outputs
 * are allocated at their exact sizes, and the second writes. The second checks as much as the
 * first, since the owner of a buffer may change its bytes between them.
 */

#include "_records.h"

/* A column of bytes: what it needs, and where it is written to. */
typedef struct {
    int64_t size;
    int64_t nulls;
    int64_t count;
    /* Of the second pass only. */
    int32_t *offsets;
    uint8_t *data;
    uint8_t *validity;
    int64_t room;
    int64_t rows;
} Pieces;

/* The records of some batches that are wanted, measured and then written. */
typedef struct {
    int wants_offsets;
    int wants_timestamps;
    int wants_types;
    int wants_keys;
    int wants_values;
    int wants_headers;
    int64_t first_offset;
    int64_t end_offset;
    int64_t rows;
    int64_t rows_without_headers;
    int64_t headers;
    Pieces keys;
    Pieces values;
    Pieces header_keys;
    Pieces header_values;
    /* Of the second pass only. */
    int64_t *offsets;
    int64_t *timestamps;
    int32_t *types;
    int32_t *header_places;
    uint8_t *header_validity;
    int64_t rows_room;
    int64_t headers_room;
    /* Where it went wrong. */
    const char *wrong;
    int64_t wrong_at;
} Output;

ALWAYS_INLINE void set_bit(uint8_t *bits, int64_t index)
{
    bits[index >> 3] |= (uint8_t)(1 << (index & 7));
}

ALWAYS_INLINE int put_piece(Pieces *column, const uint8_t *piece, int64_t size, int is_writing)
{
    int64_t present = size < 0 ? 0 : size;
    if (is_writing) {
        if (column->count >= column->rows || present > column->room - column->size)
            return 0;
        if (size >= 0) {
            if (column->validity)
                set_bit(column->validity, column->count);
            memcpy(column->data + column->size, piece, (size_t)present);
        } else if (!column->validity) {
            return 0;
        }
        column->offsets[column->count + 1] = (int32_t)(column->size + present);
    }
    column->nulls += size < 0;
    column->count++;
    column->size += present;
    return 1;
}

/* Checks the headers of a record and, when it is wanted, takes them. */
static int put_headers(Output *output, const Record *record, int is_wanted, int is_writing)
{
    const uint8_t *at = record->headers, *piece;
    int64_t size;
    for (int64_t number = 0; number < record->header_count; number++) {
        if ((at = read_piece(at, record->end, &piece, &size)) == NULL || size < 0) {
            output->wrong = "a header with a key is not where it should be";
            return 0;
        }
        if (is_wanted && !put_piece(&output->header_keys, piece, size, is_writing))
            return 0;
        if ((at = read_piece(at, record->end, &piece, &size)) == NULL) {
            output->wrong = "a key or value within its record is not where it should be";
            return 0;
        }
        if (is_wanted && !put_piece(&output->header_values, piece, size, is_writing))
            return 0;
    }
    if (at != record->end) {
        output->wrong = "the end of a record is not where it should be";
        return 0;
    }
    if (!is_wanted)
        return 1;
    output->headers += record->header_count;
    output->rows_without_headers += record->header_count == 0;
    if (is_writing) {
        if (record->header_count && output->header_validity)
            set_bit(output->header_validity, output->rows);
        output->header_places[output->rows + 1] = (int32_t)output->headers;
    }
    return 1;
}

/* In microseconds, as far as they fit; 0 when base and delta together have more than 64 bits. */
ALWAYS_INLINE int timestamp_of(const int64_t *row, int64_t delta, int64_t *microseconds)
{
    int64_t base = row[ROW_BASE_TIMESTAMP];
    int64_t timestamp = (int64_t)((uint64_t)base + (uint64_t)delta);
    if (((base ^ timestamp) & (delta ^ timestamp)) < 0)
        return 0;
    if (row[ROW_ATTRIBUTES] & LOG_APPEND_TIME_BIT)
        timestamp = row[ROW_MAX_TIMESTAMP];
    if (timestamp > MICROSECONDS_MAX_MS)
        timestamp = MICROSECONDS_MAX_MS;
    if (timestamp < -MICROSECONDS_MAX_MS)
        timestamp = -MICROSECONDS_MAX_MS;
    *microseconds = timestamp * 1000;
    return 1;
}

ALWAYS_INLINE int put_record(Output *output, const int64_t *row, const Record *record,
                             int is_writing)
{
    int64_t microseconds = 0;
    if (record->offset_delta < 0 || record->offset_delta > row[ROW_LAST_OFFSET_DELTA] ||
        row[ROW_BASE_OFFSET] > INT64_MAX - record->offset_delta) {
        output->wrong = "an offset that is not in its batch";
        return 0;
    }
    int64_t offset = row[ROW_BASE_OFFSET] + record->offset_delta;
    if (output->wants_timestamps && !timestamp_of(row, record->timestamp_delta, &microseconds)) {
        output->wrong = "a timestamp of more than 64 bits";
        return 0;
    }
    if (offset < output->first_offset || offset >= output->end_offset)
        return !output->wants_headers || put_headers(output, record, 0, is_writing);
    if (is_writing) {
        if (output->rows >= output->rows_room)
            return 0;
        if (output->wants_offsets)
            output->offsets[output->rows] = offset;
        if (output->wants_timestamps)
            output->timestamps[output->rows] = microseconds;
        if (output->wants_types)
            output->types[output->rows] = row[ROW_ATTRIBUTES] & LOG_APPEND_TIME_BIT ? 1 : 0;
    }
    if (output->wants_keys && !put_piece(&output->keys, record->key, record->key_size, is_writing))
        return 0;
    if (output->wants_values &&
        !put_piece(&output->values, record->value, record->value_size, is_writing))
        return 0;
    if (output->wants_headers && !put_headers(output, record, 1, is_writing))
        return 0;
    output->rows++;
    return 1;
}

ALWAYS_INLINE int decode_payload(Output *output, const int64_t *row, const uint8_t *at,
                                 int64_t size, int is_writing)
{
    const uint8_t *end = at + size;
    Record record;
    output->wrong_at = row[ROW_BASE_OFFSET];
    if (row[ROW_RECORD_COUNT] < 0 || row[ROW_RECORD_COUNT] > size / RECORD_BYTES_MIN) {
        output->wrong = "more records than bytes";
        return 0;
    }
    for (int64_t left = row[ROW_RECORD_COUNT]; left > 0; left--) {
        at = read_record(at, end, &record, &output->wrong);
        if (at == NULL)
            return 0;
        output->wrong = NULL;
        if (!put_record(output, row, &record, is_writing))
            return 0;
    }
    output->wrong = at == end ? NULL : "the records end before their batch";
    return at == end;
}

/* The two passes are the same code, compiled for each. */
static int measure_payload(Output *output, const int64_t *row, const uint8_t *at, int64_t size)
{
    return decode_payload(output, row, at, size, 0);
}

static int write_payload(Output *output, const int64_t *row, const uint8_t *at, int64_t size)
{
    return decode_payload(output, row, at, size, 1);
}

static int decode_payloads(Output *output, const int64_t *rows, const Py_buffer *payloads,
                           Py_ssize_t count, int is_writing)
{
    for (Py_ssize_t index = 0; index < count; index++) {
        const int64_t *row = rows + index * ROW_COLUMNS;
        const Py_buffer *payload = &payloads[index];
        if (!(is_writing ? write_payload(output, row, payload->buf, payload->len)
                         : measure_payload(output, row, payload->buf, payload->len)))
            return 0;
    }
    return 1;
}

/* The outputs of a column of bytes, as (validity or None, offsets, data), and room to write to. */
static PyObject *new_pieces(Pieces *column)
{
    PyObject *validity = NULL, *offsets = NULL, *data = NULL;
    column->rows = column->count;
    column->room = column->size;
    column->offsets = new_bytes(&offsets, 4 * (column->rows + 1), 0);
    column->data = new_bytes(&data, column->room, 0);
    if (column->nulls)
        column->validity = new_bytes(&validity, (column->rows + 7) / 8, 1);
    else
        validity = none();
    if (offsets == NULL || data == NULL || validity == NULL) {
        Py_XDECREF(offsets);
        Py_XDECREF(data);
        Py_XDECREF(validity);
        return NULL;
    }
    column->offsets[0] = 0;
    column->size = column->nulls = column->count = 0;
    return Py_BuildValue("NNN", validity, offsets, data);
}

static PyObject *new_headers(Output *output)
{
    PyObject *validity = NULL, *places = NULL, *keys = NULL, *values = NULL;
    output->header_places = new_bytes(&places, 4 * (output->rows_room + 1), 0);
    if (output->rows_without_headers)
        output->header_validity = new_bytes(&validity, (output->rows_room + 7) / 8, 1);
    else
        validity = none();
    keys = new_pieces(&output->header_keys);
    values = new_pieces(&output->header_values);
    if (places == NULL || validity == NULL || keys == NULL || values == NULL) {
        Py_XDECREF(places);
        Py_XDECREF(validity);
        Py_XDECREF(keys);
        Py_XDECREF(values);
        return NULL;
    }
    output->header_places[0] = 0;
    return Py_BuildValue("NNNN", validity, places, keys, values);
}

/* Allocates what was measured, and goes back to the start; a tuple of the columns. */
static PyObject *new_outputs(Output *output)
{
    PyObject *columns[6] = {NULL, NULL, NULL, NULL, NULL, NULL};
    int is_whole = 1;
    int64_t rows = output->rows_room = output->rows;
    if (output->wants_offsets)
        output->offsets = new_bytes(&columns[0], 8 * rows, 0);
    if (output->wants_timestamps)
        output->timestamps = new_bytes(&columns[1], 8 * rows, 0);
    if (output->wants_types)
        output->types = new_bytes(&columns[2], 4 * rows, 0);
    if (output->wants_keys)
        columns[3] = new_pieces(&output->keys);
    if (output->wants_values)
        columns[4] = new_pieces(&output->values);
    if (output->wants_headers)
        columns[5] = new_headers(output);
    const int wanted[6] = {output->wants_offsets, output->wants_timestamps, output->wants_types,
                           output->wants_keys,    output->wants_values,     output->wants_headers};
    for (int index = 0; index < 6; index++) {
        if (!wanted[index])
            columns[index] = none();
        is_whole &= columns[index] != NULL;
    }
    if (!is_whole) {
        for (int index = 0; index < 6; index++)
            Py_XDECREF(columns[index]);
        return NULL;
    }
    output->rows = output->headers = output->rows_without_headers = 0;
    return Py_BuildValue("LNNNNNN", (long long)rows, columns[0], columns[1], columns[2], columns[3],
                         columns[4], columns[5]);
}

/* Whether the second pass wrote all that the first one measured; else there are bytes that nobody
 * set, among the offsets or the data. */
static int is_filled(const Pieces *column)
{
    return column->count == column->rows && column->size == column->room;
}

static PyObject *decode_all(Output *output, const int64_t *rows, const Py_buffer *payloads,
                            Py_ssize_t count)
{
    int is_sound;
    Py_BEGIN_ALLOW_THREADS
    is_sound = decode_payloads(output, rows, payloads, count, 0);
    Py_END_ALLOW_THREADS
    if (!is_sound) {
        PyErr_Format(PyExc_ValueError, "in the batch at offset %lld: %s",
                     (long long)output->wrong_at, output->wrong ? output->wrong : "no room");
        return NULL;
    }
    PyObject *columns = new_outputs(output);
    if (columns == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    is_sound = decode_payloads(output, rows, payloads, count, 1);
    Py_END_ALLOW_THREADS
    if (!is_sound || output->rows != output->rows_room || !is_filled(&output->keys) ||
        !is_filled(&output->values) || !is_filled(&output->header_keys) ||
        !is_filled(&output->header_values)) {
        Py_DECREF(columns);
        PyErr_SetString(PyExc_ValueError, "the bytes changed while they were read");
        return NULL;
    }
    return columns;
}

/* The buffers of a list of `count` objects; NULL with an exception set. */
static Py_buffer *buffers_of(PyObject *list, Py_ssize_t count, int64_t *total)
{
    Py_buffer *buffers = PyMem_Calloc(count ? (size_t)count : 1, sizeof *buffers);
    if (buffers == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    *total = 0;
    for (Py_ssize_t index = 0; index < count; index++) {
        PyObject *item = PyList_GetItem(list, index);
        if (item == NULL || PyObject_GetBuffer(item, &buffers[index], PyBUF_SIMPLE) < 0) {
            while (index-- > 0)
                PyBuffer_Release(&buffers[index]);
            PyMem_Free(buffers);
            return NULL;
        }
        *total += buffers[index].len;
    }
    return buffers;
}

const char records_decode_doc[] = PyDoc_STR(
    "decode(payloads, rows, first_offset, end_offset, offsets, timestamps, types, keys, "
    "values, headers, /)\n--\n\n"
    "The records of decompressed payloads, whose batches are `rows` as `scan` gives them, "
    "at offsets from `first_offset` to before `end_offset`, as Arrow's buffers: their "
    "count, then for each column that is asked for its bytes, else None. Offsets are "
    "int64; timestamps int64, us; types int32; keys and values (validity or None, int32 "
    "offsets, data); headers (validity or None, int32 offsets, keys, values). Raises "
    "ValueError for what are no such records.");

PyObject *records_decode(PyObject *module, PyObject *arguments)
{
    PyObject *list, *columns = NULL;
    Py_buffer rows;
    long long first_offset, end_offset;
    int64_t total;
    Output output;
    (void)module;
    memset(&output, 0, sizeof output);
    if (!PyArg_ParseTuple(arguments, "O!y*LLpppppp:decode", &PyList_Type, &list, &rows,
                          &first_offset, &end_offset, &output.wants_offsets,
                          &output.wants_timestamps, &output.wants_types, &output.wants_keys,
                          &output.wants_values, &output.wants_headers))
        return NULL;
    output.first_offset = first_offset;
    output.end_offset = end_offset;
    Py_ssize_t count = PyList_Size(list);
    if (rows.len != count * ROW_COLUMNS * 8 || (uintptr_t)rows.buf % 8) {
        PyErr_SetString(PyExc_TypeError, "the rows are not those of the payloads");
    } else {
        Py_buffer *payloads = buffers_of(list, count, &total);
        if (payloads != NULL) {
            /* Then no offset of Arrow's can have more than 32 bits. */
            if (total > INT32_MAX)
                PyErr_SetString(PyExc_ValueError, "payloads of more than 2 GiB");
            else
                columns = decode_all(&output, rows.buf, payloads, count);
            for (Py_ssize_t index = 0; index < count; index++)
                PyBuffer_Release(&payloads[index]);
            PyMem_Free(payloads);
        }
    }
    PyBuffer_Release(&rows);
    return columns;
}
