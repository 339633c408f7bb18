/* Whether the records of a batch are what its header says: what record_facts.py and batches.py say,
 * to which tests hold it. */

#include "_records.h"

/* So many of the records without a key are told by their place. */
#define KEYLESS_MAX 100

/* What the records of a batch are, as far as it matters to who stores them. */
typedef struct {
    int64_t min_timestamp;
    int64_t max_timestamp;
    int has_all_offsets;
    int64_t keyless;
    int64_t first_keyless[KEYLESS_MAX];
    const char *wrong;
} Facts;

/* Whether the headers of a record are what they say, to its end. */
static int are_headers_sound(const Record *record)
{
    const uint8_t *at = record->headers, *piece;
    int64_t size;
    for (int64_t left = record->header_count; left > 0; left--) {
        if ((at = read_piece(at, record->end, &piece, &size)) == NULL || size < 0 ||
            (at = read_piece(at, record->end, &piece, &size)) == NULL)
            return 0;
    }
    return at == record->end;
}

static int check_payload(Facts *facts, const uint8_t *at, int64_t size, int64_t count,
                         int64_t last_offset_delta, int64_t base_timestamp)
{
    const uint8_t *end = at + size;
    Record record;
    if (count < 0 || count > size / RECORD_BYTES_MIN) {
        facts->wrong = "more records than bytes";
        return 0;
    }
    for (int64_t index = 0; index < count; index++) {
        if ((at = read_record(at, end, &record, &facts->wrong)) == NULL)
            return 0;
        if (!are_headers_sound(&record)) {
            facts->wrong = "a header within its record is not where it should be";
            return 0;
        }
        if (record.offset_delta < 0 || record.offset_delta > last_offset_delta) {
            facts->wrong = "an offset that is not in its batch";
            return 0;
        }
        int64_t timestamp;
        if (!add_delta(base_timestamp, record.timestamp_delta, &timestamp)) {
            facts->wrong = "a timestamp of more than 64 bits";
            return 0;
        }
        if (index == 0 || timestamp < facts->min_timestamp)
            facts->min_timestamp = timestamp;
        if (index == 0 || timestamp > facts->max_timestamp)
            facts->max_timestamp = timestamp;
        facts->has_all_offsets &= record.offset_delta == index;
        if (record.key_size < 0) {
            if (facts->keyless < KEYLESS_MAX)
                facts->first_keyless[facts->keyless] = index;
            facts->keyless++;
        }
    }
    facts->wrong = "the records end before their batch";
    return at == end;
}

const char records_check_doc[] = PyDoc_STR(
    "check(payload, record_count, last_offset_delta, base_timestamp, /)\n--\n\n"
    "(min_timestamp, max_timestamp, has_all_offsets, keyless_count, first_keyless): what the "
    "records in a decompressed payload are. Raises ValueError if they are not what the numbers "
    "say.");

PyObject *records_check(PyObject *module, PyObject *arguments)
{
    Py_buffer payload;
    long long count, last_offset_delta, base_timestamp;
    PyThreadState *without_gil = NULL;
    Facts facts = {.min_timestamp = -1, .max_timestamp = -1, .has_all_offsets = 1};
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*LLL:check", &payload, &count, &last_offset_delta,
                          &base_timestamp))
        return NULL;
    if (payload.len >= GIL_BYTES_MIN)
        without_gil = PyEval_SaveThread();
    int is_sound = check_payload(&facts, payload.buf, payload.len, count, last_offset_delta,
                                 base_timestamp);
    if (without_gil != NULL)
        PyEval_RestoreThread(without_gil);
    PyBuffer_Release(&payload);
    if (!is_sound) {
        PyErr_SetString(PyExc_ValueError, facts.wrong);
        return NULL;
    }
    Py_ssize_t told = (Py_ssize_t)(facts.keyless < KEYLESS_MAX ? facts.keyless : KEYLESS_MAX);
    PyObject *places = PyList_New(told);
    if (places == NULL)
        return NULL;
    for (Py_ssize_t index = 0; index < told; index++) {
        PyObject *place = PyLong_FromLongLong(facts.first_keyless[index]);
        if (place == NULL || PyList_SetItem(places, index, place) < 0) {
            Py_DECREF(places);
            return NULL;
        }
    }
    return Py_BuildValue("LLOLN", (long long)facts.min_timestamp, (long long)facts.max_timestamp,
                         facts.has_all_offsets ? Py_True : Py_False, (long long)facts.keyless,
                         places);
}

const char records_check_plain_doc[] = PyDoc_STR(
    "check_plain(batch, /)\n--\n\n"
    "The fields of a batch's header, in order and with the whole size, if the batch is one "
    "of a producer, without compression and attributes, of which nothing is wrong: CRC, "
    "numbers, records, times. None of all others, be they wrong or not.");

PyObject *records_check_plain(PyObject *module, PyObject *batch)
{
    Py_buffer data;
    PyObject *fields = NULL;
    (void)module;
    if (PyObject_GetBuffer(batch, &data, PyBUF_SIMPLE) < 0)
        return NULL;
    const uint8_t *at = data.buf;
    int64_t row[ROW_COLUMNS];
    if (data.len >= BATCH_HEADER_BYTES && read_batch_header(at, row) && row[ROW_SIZE] == data.len &&
        row[ROW_BASE_OFFSET] == 0 && row[ROW_ATTRIBUTES] == 0 && row[ROW_RECORD_COUNT] > 0 &&
        row[ROW_RECORD_COUNT] == row[ROW_LAST_OFFSET_DELTA] + 1 &&
        row[ROW_MAX_TIMESTAMP] >= row[ROW_BASE_TIMESTAMP]) {
        int64_t producer_epoch = (int16_t)((uint16_t)at[51] << 8 | at[52]);
        int64_t base_sequence = big_i32(at + 53);
        Facts facts = {.min_timestamp = -1, .max_timestamp = -1, .has_all_offsets = 1};
        if ((base_sequence >= 0 || row[ROW_PRODUCER_ID] < 0) &&
            crc_matches(at, row[ROW_SIZE]) &&
            check_payload(&facts, at + BATCH_HEADER_BYTES, data.len - BATCH_HEADER_BYTES,
                          row[ROW_RECORD_COUNT], row[ROW_LAST_OFFSET_DELTA],
                          row[ROW_BASE_TIMESTAMP]) &&
            facts.has_all_offsets && facts.max_timestamp == row[ROW_MAX_TIMESTAMP])
            fields = Py_BuildValue(
                "LLLiIiLLLLLLL", 0LL, (long long)row[ROW_SIZE], (long long)big_i32(at + 12), 2,
                (unsigned int)big_u32(at + CRC_AT), 0, (long long)row[ROW_LAST_OFFSET_DELTA],
                (long long)row[ROW_BASE_TIMESTAMP], (long long)row[ROW_MAX_TIMESTAMP],
                (long long)row[ROW_PRODUCER_ID], (long long)producer_epoch,
                (long long)base_sequence, (long long)row[ROW_RECORD_COUNT]);
        else
            fields = none();
    } else {
        fields = none();
    }
    PyBuffer_Release(&data);
    return fields;
}
