/* What stays of a run when some of its records do: what cleaner_filter.py and record_columns.py
 * make of each batch, byte for byte. */

#include "_records_run.h"

#define BASE_TIMESTAMP_AT 27
#define RECORD_COUNT_AT 57

/* Offsets that ascend, gone through once. */
typedef struct {
    const int64_t *at;
    const int64_t *end;
} Offsets;

/* Goes on to the first that is not below an offset. */
static void go_to(Offsets *offsets, int64_t offset)
{
    const int64_t *low = offsets->at, *high = offsets->end;
    int64_t step = 1;
    while (high - low > step && low[step - 1] < offset) {
        low += step;
        step *= 2;
    }
    if (high - low > step)
        high = low + step;
    while (low < high) {
        const int64_t *middle = low + (high - low) / 2;
        if (*middle < offset)
            low = middle + 1;
        else
            high = middle;
    }
    offsets->at = low;
}

typedef struct {
    Offsets kept;
    Offsets stops;
    Growing batches;
    /* Three int64 of each batch that is left: where it begins, last offset, max timestamp. */
    Growing places;
    /* Where the bytes begin that are to be copied as they are, and where they end. */
    int64_t copied_from;
    int64_t copied_to;
    int64_t records;
    int64_t kept_records;
    int is_out_of_memory;
} Keeping;

/* The time of a record; 0 when it has more than 64 bits. */
static int find_timestamp(const Record *record, const int64_t *row, int64_t *timestamp)
{
    if (row[ROW_ATTRIBUTES] & LOG_APPEND_TIME_BIT) {
        *timestamp = row[ROW_MAX_TIMESTAMP];
        return 1;
    }
    return add_delta(row[ROW_BASE_TIMESTAMP], record->timestamp_delta, timestamp);
}

/* Writes the record with another delta; 0 when that has more than 64 bits, or without memory. */
static int put_record(Keeping *keeping, const Record *record, int64_t timestamp,
                      int64_t base_timestamp)
{
    int64_t delta = (int64_t)((uint64_t)timestamp - (uint64_t)base_timestamp);
    int64_t rest = record->end - record->after_timestamp;
    if (((timestamp ^ base_timestamp) & (timestamp ^ delta)) < 0)
        return 0;
    int64_t body = 1 + varint_size(delta) + rest;
    int64_t size = varint_size(body) + body;
    uint8_t *to = room_for(&keeping->batches, size);
    if (to == NULL) {
        keeping->is_out_of_memory = 1;
        return 0;
    }
    keeping->batches.size += size;
    to = write_varint(to, body);
    *to++ = *record->attributes;
    to = write_varint(to, delta);
    memcpy(to, record->after_timestamp, (size_t)rest);
    return 1;
}

/* Writes what is to be copied as it is. */
static int copy_run(Keeping *keeping, const Run *run)
{
    int64_t size = keeping->copied_to - keeping->copied_from;
    if (size && !append(&keeping->batches, run->data + keeping->copied_from, size)) {
        keeping->is_out_of_memory = 1;
        return 0;
    }
    keeping->copied_from = keeping->copied_to = 0;
    return 1;
}

static void put_big(uint8_t *at, uint64_t value, int size)
{
    while (size-- > 0) {
        at[size] = (uint8_t)value;
        value >>= 8;
    }
}

/* The head of a batch that lost records, without a codec, before what was written of them. */
static void finish_batch(Keeping *keeping, const int64_t *row, int64_t begin, int64_t count,
                         int64_t base_timestamp, int64_t max_timestamp)
{
    uint8_t *at = keeping->batches.data + begin;
    int64_t size = keeping->batches.size - begin;
    put_big(at + 8, (uint64_t)(size - LENGTH_OVERHEAD), 4);
    put_big(at + ATTRIBUTES_AT, (uint64_t)row[ROW_ATTRIBUTES] & ~(uint64_t)COMPRESSION_MASK, 2);
    put_big(at + BASE_TIMESTAMP_AT, (uint64_t)base_timestamp, 8);
    put_big(at + BASE_TIMESTAMP_AT + 8, (uint64_t)max_timestamp, 8);
    put_big(at + RECORD_COUNT_AT, (uint64_t)count, 4);
    put_big(at + CRC_AT, crc_update(0, at + ATTRIBUTES_AT, (size_t)size - ATTRIBUTES_AT), 4);
}

/* Writes the records of a batch whose offsets are the next `count` that are kept; 0 if these are
 * not all there, or anything is not sound. */
static int put_records(Keeping *keeping, const Run *run, const int64_t *row, int64_t count,
                       int64_t *base_timestamp, int64_t *max_timestamp)
{
    const char *wrong;
    const uint8_t *next, *end, *at = records_in(run, row, &end);
    const int64_t *kept = keeping->kept.at, *kept_end = kept + count;
    int64_t last_delta = -1, largest = 0, timestamp;
    int is_copied = 0;
    Record record;
    if (row[ROW_RECORD_COUNT] > (end - at) / RECORD_BYTES_MIN)
        return 0;
    for (int64_t left = row[ROW_RECORD_COUNT]; left > 0; left--, at = next) {
        if ((next = read_record(at, end, &record, &wrong)) == NULL ||
            record.offset_delta <= last_delta || record.offset_delta > row[ROW_LAST_OFFSET_DELTA])
            return 0;
        last_delta = record.offset_delta;
        if (kept == kept_end || row[ROW_BASE_OFFSET] + last_delta != *kept)
            continue;
        if (!find_timestamp(&record, row, &timestamp))
            return 0;
        if (kept++ == keeping->kept.at) {
            *base_timestamp = largest = timestamp;
            is_copied = *base_timestamp == row[ROW_BASE_TIMESTAMP] &&
                        !(row[ROW_ATTRIBUTES] & LOG_APPEND_TIME_BIT);
        }
        if (timestamp > largest)
            largest = timestamp;
        if (!is_copied) {
            if (!put_record(keeping, &record, timestamp, *base_timestamp))
                return 0;
        } else if (!append(&keeping->batches, at, next - at)) {
            keeping->is_out_of_memory = 1;
            return 0;
        }
    }
    *max_timestamp = largest;
    return at == end && kept == kept_end;
}

/* The batch with its next `count` records that are kept: where it begins in what was written; -1 as
 * 0 above, and then nothing was. */
static int64_t put_thinned(Keeping *keeping, const Run *run, const int64_t *row, int64_t count,
                           int64_t *max_timestamp)
{
    int64_t base_timestamp = 0, begin;
    if (!copy_run(keeping, run))
        return -1;
    begin = keeping->batches.size;
    if (!append(&keeping->batches, run->data + row[ROW_POSITION], BATCH_HEADER_BYTES)) {
        keeping->is_out_of_memory = 1;
        return -1;
    }
    if (!put_records(keeping, run, row, count, &base_timestamp, max_timestamp) ||
        keeping->batches.size - begin > INT32_MAX) {
        keeping->batches.size = begin;
        return -1;
    }
    finish_batch(keeping, row, begin, count, base_timestamp, *max_timestamp);
    return begin;
}

/* Takes what stays of one batch; 0 if it is not for here. */
static int keep_batch(Keeping *keeping, const Run *run, const int64_t *row)
{
    int64_t last_offset = row[ROW_BASE_OFFSET] + row[ROW_LAST_OFFSET_DELTA];
    int64_t place[3] = {0, last_offset, row[ROW_MAX_TIMESTAMP]};
    go_to(&keeping->stops, row[ROW_BASE_OFFSET]);
    if (keeping->stops.at < keeping->stops.end && *keeping->stops.at <= last_offset)
        return 0;
    go_to(&keeping->kept, row[ROW_BASE_OFFSET]);
    Offsets rest = keeping->kept;
    go_to(&rest, last_offset + 1);
    int64_t count = rest.at - keeping->kept.at;
    if (count > row[ROW_RECORD_COUNT])
        return 0;
    if (count == row[ROW_RECORD_COUNT] && !run->payload) {
        if (keeping->copied_to != row[ROW_POSITION] && !copy_run(keeping, run))
            return 0;
        if (keeping->copied_from == keeping->copied_to)
            keeping->copied_from = row[ROW_POSITION];
        place[0] = keeping->batches.size + row[ROW_POSITION] - keeping->copied_from;
        keeping->copied_to = row[ROW_POSITION] + row[ROW_SIZE];
    } else if (count) {
        if ((row[ROW_ATTRIBUTES] & COMPRESSION_MASK) && !run->payload)
            return 0;
        place[0] = put_thinned(keeping, run, row, count, &place[2]);
        if (place[0] < 0)
            return 0;
    }
    if (count && !append(&keeping->places, place, sizeof place)) {
        keeping->is_out_of_memory = 1;
        return 0;
    }
    keeping->kept = rest;
    keeping->records += row[ROW_RECORD_COUNT];
    keeping->kept_records += count;
    return 1;
}

/* Takes int64 that ascend, or what is taken for such: nothing is read outside of them. */
static int get_offsets(const Py_buffer *buffer, Offsets *offsets)
{
    if (buffer->len % 8 || (uintptr_t)buffer->buf % 8) {
        PyErr_SetString(PyExc_TypeError, "offsets are int64");
        return 0;
    }
    offsets->at = buffer->buf;
    offsets->end = offsets->at + buffer->len / 8;
    return 1;
}

static PyObject *keep_run(const Run *run, Keeping *keeping)
{
    int64_t position = 0, next_offset = run->next_offset, row[ROW_COLUMNS];
    Py_BEGIN_ALLOW_THREADS
    while (next_batch(run, position, next_offset, FORBIDDEN_BITS, 1, row) &&
           keep_batch(keeping, run, row)) {
        position += row[ROW_SIZE];
        next_offset = row[ROW_BASE_OFFSET] + row[ROW_LAST_OFFSET_DELTA] + 1;
    }
    copy_run(keeping, run);
    Py_END_ALLOW_THREADS
    if (keeping->is_out_of_memory)
        return PyErr_NoMemory();
    PyObject *batches = taken_bytes(&keeping->batches), *places = taken_bytes(&keeping->places);
    if (batches == NULL || places == NULL) {
        Py_XDECREF(batches);
        Py_XDECREF(places);
        return NULL;
    }
    return Py_BuildValue("LLNNLL", (long long)position, (long long)next_offset, batches, places,
                         (long long)keeping->records, (long long)keeping->kept_records);
}

const char records_keep_doc[] = PyDoc_STR(
    "keep(run, kept, stops, /)\n--\n\n"
    "(end, next_offset, batches, places, record_count, kept_count): what stays of a run when the "
    "records at the offsets `kept` do, all others go, and so do batches without any. Of each batch "
    "in `batches` three int64 in `places`: where it begins there, its last offset, its max "
    "timestamp. The run ends before a batch among whose offsets one of `stops` is, that has any "
    "attribute but a time's or a codec, or that has a codec and loses some of its records. One "
    "that comes with its payload is left without its codec. Offsets are int64 and ascend; a run is "
    "that of `enter_keys`.");

PyObject *records_keep(PyObject *module, PyObject *arguments)
{
    PyObject *tuple, *result = NULL;
    Py_buffer data, payload = {0}, kept, stops;
    Keeping keeping;
    Run run;
    (void)module;
    memset(&keeping, 0, sizeof keeping);
    if (!PyArg_ParseTuple(arguments, "O!y*y*:keep", &PyTuple_Type, &tuple, &kept, &stops))
        return NULL;
    if (get_offsets(&kept, &keeping.kept) && get_offsets(&stops, &keeping.stops) &&
        get_run(tuple, &run, &data, &payload)) {
        result = keep_run(&run, &keeping);
        release_run(&data, &payload);
    }
    free(keeping.batches.data);
    free(keeping.places.data);
    PyBuffer_Release(&kept);
    PyBuffer_Release(&stops);
    return result;
}
