/* Where batches lie, and whether their CRCs are right. */

#include "_records.h"

/* Walks over whole batches; writes up to `room` rows, if there are any to write to. Sets how many
 * there were and where the walk ended; returns whether that is an end, and not damage. */
static int walk_batches(const uint8_t *data, int64_t size, int checks_crcs, int64_t *rows,
                        int64_t room, int64_t *count, int64_t *end)
{
    int64_t position = 0, found = 0, row[ROW_COLUMNS];
    int is_sound = 1;
    while (size - position >= BATCH_HEADER_BYTES && found < room) {
        const uint8_t *at = data + position;
        if (!read_batch_header(at, row)) {
            is_sound = 0;
            break;
        }
        if (row[ROW_SIZE] > size - position)
            break;
        if (rows) {
            row[ROW_POSITION] = position;
            row[ROW_CRC_MATCHES] = !checks_crcs || crc_matches(at, row[ROW_SIZE]);
            memcpy(rows + found * ROW_COLUMNS, row, sizeof row);
        }
        position += row[ROW_SIZE];
        found++;
    }
    *count = found;
    *end = position;
    return is_sound;
}

const char records_scan_doc[] = PyDoc_STR(
    "scan(data, check_crcs, /)\n--\n\n"
    "(rows, end, is_sound): the whole batches in `data`, ten int64 each as bytes; where "
    "the last one ends; whether a batch may begin there, if 61 bytes are left.");

PyObject *records_scan(PyObject *module, PyObject *arguments)
{
    Py_buffer data;
    int checks_crcs, is_sound;
    int64_t count, end, written;
    PyObject *rows;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*p:scan", &data, &checks_crcs))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    walk_batches(data.buf, data.len, 0, NULL, INT64_MAX, &count, &end);
    Py_END_ALLOW_THREADS
    rows = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(count * ROW_COLUMNS * 8));
    if (rows == NULL) {
        PyBuffer_Release(&data);
        return NULL;
    }
    int64_t *room = (int64_t *)(void *)PyBytes_AsString(rows);
    Py_BEGIN_ALLOW_THREADS
    is_sound = walk_batches(data.buf, data.len, checks_crcs, room, count, &written, &end);
    if (is_sound && written == count && data.len - end >= BATCH_HEADER_BYTES) {
        /* The walk ended because there was no more room: is there damage, or a batch cut off? */
        int64_t row[ROW_COLUMNS];
        is_sound = read_batch_header((const uint8_t *)data.buf + end, row);
    }
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&data);
    if (written != count) {
        Py_DECREF(rows);
        PyErr_SetString(PyExc_ValueError, "the bytes changed while they were read");
        return NULL;
    }
    return Py_BuildValue("NLO", rows, (long long)end, is_sound ? Py_True : Py_False);
}
