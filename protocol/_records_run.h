/* Runs: what compaction goes over at once.
 *
 * A run is batches one after another, from the first on, up to one that is not for here: whose
 * place, header, CRC or records are not right, that has something of which Python decides (see
 * `asyncbroker/log/cleaner_runs.py`), or that is not all there. Of that one nothing is said: Python
 * takes it by itself, and does so with all where there is no extension; tests hold both equal. A
 * batch that is compressed is a run of its own, with its payload beside it.
 */

#ifndef ASYNCBROKER_RECORDS_RUN_H
#define ASYNCBROKER_RECORDS_RUN_H

#include "_records_growing.h"

#define DELETE_HORIZON_BIT 64
#define FORBIDDEN_BITS (TRANSACTIONAL_BIT | CONTROL_BIT | DELETE_HORIZON_BIT)

/* Where the batches are, and which of them are for here. */
typedef struct {
    const uint8_t *data;
    int64_t size;
    /* The records of the one batch, decompressed. */
    const uint8_t *payload;
    int64_t payload_size;
    /* No batch begins at or after `bytes_max`, but the first; none has an offset below
     * `next_offset` or from `end_offset` on, or more than `records_max` records. */
    int64_t bytes_max;
    int64_t next_offset;
    int64_t end_offset;
    int64_t records_max;
} Run;

/* Whether a batch for here begins at `position`, without any of some attributes; its row, with its
 * position. */
static inline int next_batch(const Run *run, int64_t position, int64_t next_offset, int forbidden,
                             int checks_crc, int64_t *row)
{
    const uint8_t *at = run->data + position;
    if (position && (run->payload || position >= run->bytes_max))
        return 0;
    if (run->size - position < BATCH_HEADER_BYTES || !read_batch_header(at, row) ||
        row[ROW_SIZE] > run->size - position)
        return 0;
    row[ROW_POSITION] = position;
    return !(row[ROW_ATTRIBUTES] & forbidden) && row[ROW_RECORD_COUNT] > 0 &&
           row[ROW_RECORD_COUNT] <= run->records_max && row[ROW_BASE_OFFSET] >= next_offset &&
           row[ROW_BASE_OFFSET] < run->end_offset - row[ROW_LAST_OFFSET_DELTA] &&
           (!checks_crc || crc_matches(at, row[ROW_SIZE]));
}

static inline const uint8_t *records_in(const Run *run, const int64_t *row, const uint8_t **end)
{
    const uint8_t *at = run->data + row[ROW_POSITION];
    const uint8_t *begin = run->payload ? run->payload : at + BATCH_HEADER_BYTES;
    *end = run->payload ? begin + run->payload_size : at + row[ROW_SIZE];
    return begin;
}

/* Takes (data, payload or None, bytes_max, next_offset, end_offset, records_max), and the buffers
 * of the first two; 0 with an exception set. */
static inline int get_run(PyObject *tuple, Run *run, Py_buffer *data, Py_buffer *payload)
{
    PyObject *first, *second;
    long long bytes_max, next_offset, end_offset, records_max;
    if (!PyArg_ParseTuple(tuple, "OOLLLL:a run", &first, &second, &bytes_max, &next_offset,
                          &end_offset, &records_max))
        return 0;
    if (PyObject_GetBuffer(first, data, PyBUF_SIMPLE) < 0)
        return 0;
    if (second != Py_None && PyObject_GetBuffer(second, payload, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(data);
        return 0;
    }
    run->data = data->buf;
    run->size = data->len;
    /* What is empty may lie nowhere. */
    run->payload = payload->obj == NULL ? NULL : payload->len ? payload->buf : (void *)run;
    run->payload_size = payload->obj == NULL ? 0 : payload->len;
    run->bytes_max = bytes_max;
    run->next_offset = next_offset < 0 ? 0 : next_offset;
    run->end_offset = end_offset < 0 ? 0 : end_offset;
    run->records_max = records_max;
    return 1;
}

static inline void release_run(Py_buffer *data, Py_buffer *payload)
{
    PyBuffer_Release(data);
    if (payload->obj)
        PyBuffer_Release(payload);
}

#endif
