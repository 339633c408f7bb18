/* The keys of the records in a run, entered in a dict or looked up there: what cleaner_keys.py and
 * record_columns.py do batch by batch. */

#include "_records_run.h"

/* Keys are entered and asked for with the GIL: no more batches than with so many are taken at once,
 * which is about a millisecond. */
#define RECORDS_AT_ONCE 4096

/* What is made of each key: it gets the offset of its record, or is asked for its last one. */
typedef struct {
    PyObject *offsets;
    int64_t key_bytes_max;
    int64_t entries_max;
    int64_t entries;
    int64_t longest;
    /* The offsets of records that stay; NULL when keys are entered. */
    Growing *kept;
} Keys;

/* Whether the records of a batch are sound, ascend, and have a short key and a value each. */
static int check_keys(const Run *run, const int64_t *row, Keys *keys)
{
    const char *wrong;
    const uint8_t *end, *at = records_in(run, row, &end);
    int64_t last_delta = -1, longest = keys->longest;
    Record record;
    if (row[ROW_RECORD_COUNT] > (end - at) / RECORD_BYTES_MIN ||
        row[ROW_RECORD_COUNT] > keys->entries_max - keys->entries)
        return 0;
    for (int64_t left = row[ROW_RECORD_COUNT]; left > 0; left--) {
        if ((at = read_record(at, end, &record, &wrong)) == NULL ||
            record.offset_delta <= last_delta || record.key_size < 0 ||
            record.key_size > keys->key_bytes_max || record.value_size < 0)
            return 0;
        last_delta = record.offset_delta;
        if (record.key_size > longest)
            longest = record.key_size;
    }
    if (at != end || last_delta > row[ROW_LAST_OFFSET_DELTA])
        return 0;
    keys->entries += row[ROW_RECORD_COUNT];
    keys->longest = longest;
    return 1;
}

/* 0 with an exception set. */
static int enter(Keys *keys, PyObject *key, int64_t offset)
{
    PyObject *number = PyLong_FromLongLong(offset);
    int is_done = number != NULL && PyDict_SetItem(keys->offsets, key, number) == 0;
    Py_XDECREF(number);
    return is_done;
}

static int ask(Keys *keys, PyObject *key, int64_t offset)
{
    PyObject *found = PyDict_GetItemWithError(keys->offsets, key);
    int64_t latest = found == NULL ? offset : PyLong_AsLongLong(found);
    if ((found == NULL || latest == -1) && PyErr_Occurred())
        return 0;
    if (offset >= latest && !append(keys->kept, &offset, sizeof offset)) {
        PyErr_NoMemory();
        return 0;
    }
    return 1;
}

static int take_keys(const Run *run, const int64_t *row, Keys *keys)
{
    const char *wrong;
    const uint8_t *end, *at = records_in(run, row, &end);
    Record record;
    for (int64_t left = row[ROW_RECORD_COUNT]; left > 0; left--) {
        if ((at = read_record(at, end, &record, &wrong)) == NULL || record.key_size < 0) {
            PyErr_SetString(PyExc_ValueError, "the bytes changed while they were read");
            return 0;
        }
        PyObject *key =
            PyBytes_FromStringAndSize((const char *)record.key, (Py_ssize_t)record.key_size);
        if (key == NULL)
            return 0;
        int64_t offset = row[ROW_BASE_OFFSET] + record.offset_delta;
        int is_done = keys->kept ? ask(keys, key, offset) : enter(keys, key, offset);
        Py_DECREF(key);
        if (!is_done)
            return 0;
    }
    return 1;
}

/* Finds where the run ends and which offset comes next, and then takes its keys; 0 with an
 * exception set. */
static int walk_keys(const Run *run, Keys *keys, int64_t *end, int64_t *next_offset)
{
    /* Those of compressed batches are looked for in a payload only. */
    int forbidden = FORBIDDEN_BITS;
    int64_t position = 0, row[ROW_COLUMNS];
    if (!run->payload)
        forbidden |= COMPRESSION_MASK;
    *next_offset = run->next_offset;
    Py_BEGIN_ALLOW_THREADS
    while (keys->entries < RECORDS_AT_ONCE &&
           next_batch(run, position, *next_offset, forbidden, 1, row) &&
           check_keys(run, row, keys)) {
        position += row[ROW_SIZE];
        *next_offset = row[ROW_BASE_OFFSET] + row[ROW_LAST_OFFSET_DELTA] + 1;
    }
    Py_END_ALLOW_THREADS
    *end = position;
    int64_t following = run->next_offset;
    for (position = 0; position < *end; position += row[ROW_SIZE]) {
        if (!next_batch(run, position, following, forbidden, 0, row) ||
            row[ROW_SIZE] > *end - position) {
            PyErr_SetString(PyExc_ValueError, "the bytes changed while they were read");
            return 0;
        }
        following = row[ROW_BASE_OFFSET] + row[ROW_LAST_OFFSET_DELTA] + 1;
        if (!take_keys(run, row, keys))
            return 0;
    }
    return 1;
}

const char records_enter_keys_doc[] = PyDoc_STR(
    "enter_keys(offsets, run, key_bytes_max, entries_max, /)\n--\n\n"
    "(end, next_offset, longest): enters the offsets of a run's records in the dict `offsets`, by "
    "their keys; the longest had so many bytes. The run ends before a batch that may need more "
    "than `entries_max` entries in all, or has a null, a longer key or any attribute but a time's; "
    "or a codec, if it comes without its payload; and after some thousand records. A run is "
    "(data, payload or None, bytes_max, next_offset, end_offset, records_max).");

PyObject *records_enter_keys(PyObject *module, PyObject *arguments)
{
    PyObject *tuple, *result = NULL;
    Py_buffer data, payload = {0};
    long long key_bytes_max, entries_max;
    int64_t end, next_offset;
    Keys keys = {0};
    Run run;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "O!O!LL:enter_keys", &PyDict_Type, &keys.offsets,
                          &PyTuple_Type, &tuple, &key_bytes_max, &entries_max) ||
        !get_run(tuple, &run, &data, &payload))
        return NULL;
    keys.key_bytes_max = key_bytes_max;
    keys.entries_max = entries_max;
    if (walk_keys(&run, &keys, &end, &next_offset))
        result = Py_BuildValue("LLL", (long long)end, (long long)next_offset,
                               (long long)keys.longest);
    release_run(&data, &payload);
    return result;
}

const char records_ask_keys_doc[] = PyDoc_STR(
    "ask_keys(offsets, run, key_bytes_max, /)\n--\n\n"
    "(end, next_offset, kept): which records of a run have no larger offset in the dict `offsets`, "
    "as int64 in bytes. The run ends as with `enter_keys`.");

PyObject *records_ask_keys(PyObject *module, PyObject *arguments)
{
    PyObject *tuple, *result = NULL;
    Py_buffer data, payload = {0};
    long long key_bytes_max;
    int64_t end, next_offset;
    Growing kept = {0};
    Keys keys = {0};
    Run run;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "O!O!L:ask_keys", &PyDict_Type, &keys.offsets, &PyTuple_Type,
                          &tuple, &key_bytes_max) ||
        !get_run(tuple, &run, &data, &payload))
        return NULL;
    keys.key_bytes_max = key_bytes_max;
    keys.entries_max = INT64_MAX;
    keys.kept = &kept;
    if (walk_keys(&run, &keys, &end, &next_offset)) {
        PyObject *bytes = taken_bytes(&kept);
        if (bytes != NULL)
            result = Py_BuildValue("LLN", (long long)end, (long long)next_offset, bytes);
    }
    free(kept.data);
    release_run(&data, &payload);
    return result;
}
