/* Records as Arrow's buffers: what is refused here is what fields.py of the Spark source refuses.
 *
 * Outputs get room for all that could come, of which what is never touched costs nothing, and are
 * written in one pass over the bytes, without the GIL. Headers may be many and small, so where they
 * are asked for a pass that only measures comes first. The one that writes checks as much, since
 * the owner of a buffer may change its bytes between them.
 */

#include "_records_decode.h"

ALWAYS_INLINE void set_bit(uint8_t *bits, int64_t index)
{
    bits[index >> 3] |= (uint8_t)(1 << (index & 7));
}

/* In the bitmap, which is of use from the first null on. */
static void mark(Pieces *column, int is_valid)
{
    if (!column->nulls)
        for (int64_t index = 0; index < column->count; index++)
            set_bit(column->validity, index);
    if (is_valid)
        set_bit(column->validity, column->count);
}

ALWAYS_INLINE int put_piece(Pieces *column, const uint8_t *piece, int64_t size, int is_writing)
{
    int64_t present = size < 0 ? 0 : size;
    if (is_writing) {
        if (column->count >= column->rows || present > column->room - column->size)
            return 0;
        if (size >= 0)
            memcpy(column->data + column->size, piece, (size_t)present);
        if (column->nulls || size < 0)
            mark(column, size >= 0);
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
        if (record->header_count)
            set_bit(output->header_validity, output->rows);
        output->header_places[output->rows + 1] = (int32_t)output->headers;
    }
    return 1;
}

/* In microseconds, as far as they fit; 0 when base and delta together have more than 64 bits. */
ALWAYS_INLINE int timestamp_of(const int64_t *row, int64_t delta, int64_t *microseconds)
{
    int64_t timestamp;
    if (!add_delta(row[ROW_BASE_TIMESTAMP], delta, &timestamp))
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

int write_payload(Output *output, const int64_t *row, const uint8_t *at, int64_t size)
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

/* ---- Room for outputs ------------------------------------------------------------------------ */

static int open_pieces(Pieces *column, int64_t rows, int64_t room)
{
    column->rows = rows;
    column->room = room;
    column->size = column->nulls = column->count = 0;
    column->offsets = new_bytes(&column->offsets_bytes, 4 * (rows + 1), 0);
    column->data = new_bytes(&column->data_bytes, room, 0);
    column->validity = new_bytes(&column->validity_bytes, (rows + 7) / 8, 1);
    if (!column->offsets || !column->data || !column->validity)
        return 0;
    column->offsets[0] = 0;
    return 1;
}

static int open_headers(Output *output, int64_t rows)
{
    output->header_places = new_bytes(&output->header_places_bytes, 4 * (rows + 1), 0);
    output->header_validity = new_bytes(&output->header_validity_bytes, (rows + 7) / 8, 1);
    if (!output->header_places || !output->header_validity)
        return 0;
    output->header_places[0] = 0;
    /* As the first pass has measured them. */
    return open_pieces(&output->header_keys, output->headers, output->header_keys.size) &&
           open_pieces(&output->header_values, output->headers, output->header_values.size);
}

int open_outputs(Output *output, int64_t rows, int64_t room)
{
    int is_open = 1;
    output->rows_room = rows;
    if (output->wants_offsets)
        is_open &= (output->offsets = new_bytes(&output->offsets_bytes, 8 * rows, 0)) != NULL;
    if (output->wants_timestamps)
        is_open &= (output->timestamps = new_bytes(&output->timestamps_bytes, 8 * rows, 0)) != NULL;
    if (output->wants_types)
        is_open &= (output->types = new_bytes(&output->types_bytes, 4 * rows, 0)) != NULL;
    if (output->wants_keys)
        is_open &= open_pieces(&output->keys, rows, room);
    if (output->wants_values)
        is_open &= open_pieces(&output->values, rows, room);
    if (output->wants_headers)
        is_open &= open_headers(output, rows);
    output->rows = output->headers = output->rows_without_headers = 0;
    return is_open;
}

/* Hands over bytes; None for those that were not asked for. */
static PyObject *take(PyObject **bytes)
{
    PyObject *taken = *bytes;
    *bytes = NULL;
    return taken != NULL ? taken : none();
}

/* (validity or None, offsets, data). */
static PyObject *take_pieces(Pieces *column)
{
    if (!column->nulls)
        Py_CLEAR(column->validity_bytes);
    PyObject *validity = take(&column->validity_bytes), *offsets = take(&column->offsets_bytes);
    return Py_BuildValue("NNN", validity, offsets, take(&column->data_bytes));
}

static PyObject *take_headers(Output *output)
{
    if (!output->rows_without_headers)
        Py_CLEAR(output->header_validity_bytes);
    PyObject *validity = take(&output->header_validity_bytes);
    PyObject *places = take(&output->header_places_bytes);
    PyObject *keys = take_pieces(&output->header_keys);
    return Py_BuildValue("NNNN", validity, places, keys, take_pieces(&output->header_values));
}

PyObject *take_outputs(Output *output)
{
    PyObject *offsets = take(&output->offsets_bytes), *types = take(&output->types_bytes);
    PyObject *timestamps = take(&output->timestamps_bytes);
    PyObject *keys = output->wants_keys ? take_pieces(&output->keys) : none();
    PyObject *values = output->wants_values ? take_pieces(&output->values) : none();
    PyObject *headers = output->wants_headers ? take_headers(output) : none();
    return Py_BuildValue("LNNNNNN", (long long)output->rows, offsets, timestamps, types, keys,
                         values, headers);
}

static void close_pieces(Pieces *column)
{
    Py_CLEAR(column->offsets_bytes);
    Py_CLEAR(column->data_bytes);
    Py_CLEAR(column->validity_bytes);
}

void close_outputs(Output *output)
{
    Py_CLEAR(output->offsets_bytes);
    Py_CLEAR(output->timestamps_bytes);
    Py_CLEAR(output->types_bytes);
    Py_CLEAR(output->header_places_bytes);
    Py_CLEAR(output->header_validity_bytes);
    close_pieces(&output->keys);
    close_pieces(&output->values);
    close_pieces(&output->header_keys);
    close_pieces(&output->header_values);
}

/* ---- Decompressed payloads ------------------------------------------------------------------- */

static PyObject *decode_all(Output *output, const int64_t *rows, const Py_buffer *payloads,
                            Py_ssize_t count, int64_t total)
{
    int is_sound = 1;
    int64_t rows_max = 0;
    /* Where one claims more, it is refused below. */
    for (Py_ssize_t index = 0; index < count; index++) {
        int64_t claimed = rows[index * ROW_COLUMNS + ROW_RECORD_COUNT];
        int64_t possible = payloads[index].len / RECORD_BYTES_MIN;
        rows_max += claimed < 0 ? 0 : claimed < possible ? claimed : possible;
    }
    if (output->wants_headers) {
        Py_BEGIN_ALLOW_THREADS
        is_sound = decode_payloads(output, rows, payloads, count, 0);
        Py_END_ALLOW_THREADS
    }
    if (is_sound) {
        if (!open_outputs(output, rows_max, total))
            return NULL;
        Py_BEGIN_ALLOW_THREADS
        is_sound = decode_payloads(output, rows, payloads, count, 1);
        Py_END_ALLOW_THREADS
        is_sound &= output->header_keys.count == output->header_keys.rows;
    }
    if (!is_sound) {
        PyErr_Format(PyExc_ValueError, "in the batch at offset %lld: %s",
                     (long long)output->wrong_at,
                     output->wrong ? output->wrong : "the bytes changed while they were read");
        return NULL;
    }
    return take_outputs(output);
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
    "offsets, data); headers (validity or None, int32 offsets, keys, values). But for those of "
    "headers they may be longer than what the count says they hold. Raises ValueError for what "
    "are no such records.");

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
                columns = decode_all(&output, rows.buf, payloads, count, total);
            close_outputs(&output);
            for (Py_ssize_t index = 0; index < count; index++)
                PyBuffer_Release(&payloads[index]);
            PyMem_Free(payloads);
        }
    }
    PyBuffer_Release(&rows);
    return columns;
}
