/* Batches as they were fetched to Arrow's buffers, in one go: each is checked and decoded while it
 * is in the processor's caches. What is out of the ordinary is left to who knows about it.
 */

#include "_records_decode.h"

#define NOT_PLAIN (COMPRESSION_MASK | TRANSACTIONAL_BIT | CONTROL_BIT)

/* Some batches in a row: where they end, and what they hold at most of what is wanted. */
typedef struct {
    int64_t end;
    int64_t rows;
    int64_t bytes;
} Stretch;

/* Whether a whole batch without anything special lies at `position`; its row. */
static int find_batch(const Py_buffer *data, int64_t position, int64_t *row)
{
    const uint8_t *at = (const uint8_t *)data->buf + position;
    return data->len - position >= BATCH_HEADER_BYTES && read_batch_header(at, row) &&
           row[ROW_SIZE] <= data->len - position && !(row[ROW_ATTRIBUTES] & NOT_PLAIN) &&
           row[ROW_RECORD_COUNT] <= (row[ROW_SIZE] - BATCH_HEADER_BYTES) / RECORD_BYTES_MIN;
}

/* The batches from `position` on, until there is enough; all, if less than half as much is left
 * after that. */
static Stretch measure(const Py_buffer *data, int64_t position, int64_t end_offset,
                       int64_t rows_enough, int64_t bytes_enough)
{
    Stretch all = {position, 0, 0}, enough = all;
    int64_t row[ROW_COLUMNS];
    int is_enough = 0;
    while (find_batch(data, all.end, row)) {
        int64_t bytes = row[ROW_SIZE] - BATCH_HEADER_BYTES;
        if (row[ROW_BASE_OFFSET] < end_offset) {
            /* Then no offset of Arrow's can have more than 32 bits. */
            if (bytes > INT32_MAX - all.bytes)
                break;
            all.rows += row[ROW_RECORD_COUNT];
            all.bytes += bytes;
        }
        all.end += row[ROW_SIZE];
        if (!is_enough) {
            enough = all;
            is_enough = all.rows >= rows_enough || all.bytes >= bytes_enough;
        } else if (all.rows - enough.rows > rows_enough / 2 ||
                   all.bytes - enough.bytes > bytes_enough / 2) {
            return enough;
        }
    }
    return all;
}

/* Adds the batches of a stretch, up to the first of which anything is wrong; where they end. */
static int64_t write_batches(Output *output, const Py_buffer *data, int64_t position,
                             const Stretch *stretch, int checks_crcs)
{
    int64_t row[ROW_COLUMNS];
    while (position < stretch->end && find_batch(data, position, row)) {
        const uint8_t *at = (const uint8_t *)data->buf + position;
        Output before = *output;
        if (row[ROW_BASE_OFFSET] >= output->end_offset) {
            position += row[ROW_SIZE];
            continue;
        }
        if (checks_crcs && !crc_matches(at, row[ROW_SIZE]))
            break;
        if (row[ROW_RECORD_COUNT] && !write_payload(output, row, at + BATCH_HEADER_BYTES,
                                                    row[ROW_SIZE] - BATCH_HEADER_BYTES)) {
            *output = before;
            break;
        }
        position += row[ROW_SIZE];
    }
    return position;
}

const char records_read_doc[] = PyDoc_STR(
    "read(data, position, first_offset, end_offset, rows_enough, bytes_enough, check_crcs, "
    "offsets, timestamps, types, keys, values, /)\n--\n\n"
    "(position, columns): what `decode` gives of the batches from `position` on, until there are "
    "enough rows or bytes of records, and where the next batch begins. It stops before a batch "
    "that is compressed, of a transaction, not whole, or wrong in any way: if that is the first "
    "one, the position is the same as before.");

PyObject *records_read(PyObject *module, PyObject *arguments)
{
    Py_buffer data;
    long long position, first_offset, end_offset, rows_enough, bytes_enough;
    int checks_crcs;
    Stretch stretch;
    Output output;
    PyObject *columns = NULL;
    (void)module;
    memset(&output, 0, sizeof output);
    if (!PyArg_ParseTuple(arguments, "y*LLLLLpppppp:read", &data, &position, &first_offset,
                          &end_offset, &rows_enough, &bytes_enough, &checks_crcs,
                          &output.wants_offsets, &output.wants_timestamps, &output.wants_types,
                          &output.wants_keys, &output.wants_values))
        return NULL;
    output.first_offset = first_offset;
    output.end_offset = end_offset;
    if (position < 0 || position > data.len) {
        PyErr_SetString(PyExc_ValueError, "a position outside of the data");
    } else {
        stretch = measure(&data, position, end_offset, rows_enough, bytes_enough);
        if (open_outputs(&output, stretch.rows, stretch.bytes)) {
            Py_BEGIN_ALLOW_THREADS
            position = write_batches(&output, &data, position, &stretch, checks_crcs);
            Py_END_ALLOW_THREADS
            columns = take_outputs(&output);
        }
        close_outputs(&output);
    }
    PyBuffer_Release(&data);
    return columns == NULL ? NULL : Py_BuildValue("LN", position, columns);
}
