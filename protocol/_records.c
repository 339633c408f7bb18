/* Record batches at the speed of memory: where batches lie, their CRC-32C, whether their records are
 * what they say, their records as Arrow's buffers, and records encoded from Arrow's buffers.
 *
 * The maps of a batch and of a record are in batches.py and records.py; what is refused here is
 * what the Python of those and of record_facts.py, and of the Spark source's fields.py and
 * encoder.py, refuses, which tests hold it to.
 * Everything that is read is a stranger's: a length is held against what is left before it is used.
 *
 * What has outputs is done in two passes over the same bytes, without the GIL: the first checks and measures,
 * then the outputs are allocated at their exact sizes, and the second writes. The second checks as
 * much as the first, since the owner of a buffer may change its bytes between them.
 *
 * No per-record Python objects, no state but CRC tables, only the stable ABI. Not known here:
 * codecs (the payloads come decompressed), transactions, topics.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) || defined(_M_X64)
#define HAS_SSE42 1
#include <nmmintrin.h>
#ifdef _MSC_VER
#include <intrin.h>
#define TARGET_SSE42
#else
#include <cpuid.h>
#if defined(__clang__) && __clang_major__ >= 14
/* Which may count the instruction for a feature of its own. */
#define TARGET_SSE42 __attribute__((target("sse4.2,crc32")))
#else
#define TARGET_SSE42 __attribute__((target("sse4.2")))
#endif
#endif
#elif defined(__ARM_FEATURE_CRC32)
#define HAS_ARM_CRC 1
#include <arm_acle.h>
#endif

#if defined(__GNUC__) || defined(__clang__)
#define LIKELY(condition) __builtin_expect(!!(condition), 1)
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#else
#define LIKELY(condition) (condition)
#define ALWAYS_INLINE static __forceinline
#endif

/* ---- CRC-32C --------------------------------------------------------------------------------- */

#define CRC_POLYNOMIAL 0x82F63B78u
/* Three stretches of this size are worked on at a time: an instruction takes three cycles, and one
 * can begin in each. */
#define STRETCH_BYTES 1024

static uint32_t crc_table[8][256];
/* What becomes of each byte of a CRC when STRETCH_BYTES zeros follow. */
static uint32_t crc_after_stretch[4][256];
static int crc_instruction_is_there;

static uint32_t crc_by_table(uint32_t crc, const uint8_t *data, size_t size)
{
    while (size >= 8) {
        uint32_t low = crc ^ ((uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 |
                              (uint32_t)data[3] << 24);
        crc = crc_table[7][low & 0xFF] ^ crc_table[6][low >> 8 & 0xFF] ^
              crc_table[5][low >> 16 & 0xFF] ^ crc_table[4][low >> 24] ^ crc_table[3][data[4]] ^
              crc_table[2][data[5]] ^ crc_table[1][data[6]] ^ crc_table[0][data[7]];
        data += 8;
        size -= 8;
    }
    while (size--)
        crc = crc >> 8 ^ crc_table[0][(crc ^ *data++) & 0xFF];
    return crc;
}

#if defined(HAS_SSE42) || defined(HAS_ARM_CRC)

#ifdef HAS_SSE42
#define CRC_STEP_8(crc, word) _mm_crc32_u64((crc), (word))
#define CRC_STEP_1(crc, byte) _mm_crc32_u8((uint32_t)(crc), (byte))
#else
#define TARGET_SSE42
#define CRC_STEP_8(crc, word) __crc32cd((uint32_t)(crc), (word))
#define CRC_STEP_1(crc, byte) __crc32cb((uint32_t)(crc), (byte))
#endif

ALWAYS_INLINE uint64_t word_at(const uint8_t *data)
{
    uint64_t word;
    memcpy(&word, data, sizeof word);
    return word;
}

static uint32_t after_stretch(uint32_t crc)
{
    return crc_after_stretch[0][crc & 0xFF] ^ crc_after_stretch[1][crc >> 8 & 0xFF] ^
           crc_after_stretch[2][crc >> 16 & 0xFF] ^ crc_after_stretch[3][crc >> 24];
}

TARGET_SSE42 static uint32_t crc_by_instruction(uint32_t crc, const uint8_t *data, size_t size)
{
    while (size >= 3 * STRETCH_BYTES) {
        uint64_t first = crc, second = 0, third = 0;
        const uint8_t *end = data + STRETCH_BYTES;
        for (; data < end; data += 8) {
            first = CRC_STEP_8(first, word_at(data));
            second = CRC_STEP_8(second, word_at(data + STRETCH_BYTES));
            third = CRC_STEP_8(third, word_at(data + 2 * STRETCH_BYTES));
        }
        crc = after_stretch((uint32_t)first) ^ (uint32_t)second;
        crc = after_stretch(crc) ^ (uint32_t)third;
        data += 2 * STRETCH_BYTES;
        size -= 3 * STRETCH_BYTES;
    }
    uint64_t rest = crc;
    for (; size >= 8; data += 8, size -= 8)
        rest = CRC_STEP_8(rest, word_at(data));
    for (; size; data++, size--)
        rest = CRC_STEP_1(rest, *data);
    return (uint32_t)rest;
}

#endif

static int find_crc_instruction(void)
{
#if defined(HAS_ARM_CRC)
    return 1;
#elif defined(HAS_SSE42) && defined(_MSC_VER)
    int registers[4];
    __cpuid(registers, 1);
    return registers[2] >> 20 & 1;
#elif defined(HAS_SSE42)
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c >> 20 & 1);
#else
    return 0;
#endif
}

static uint32_t crc_update(uint32_t crc, const uint8_t *data, size_t size)
{
#if defined(HAS_SSE42) || defined(HAS_ARM_CRC)
    if (LIKELY(crc_instruction_is_there))
        return ~crc_by_instruction(~crc, data, size);
#endif
    return ~crc_by_table(~crc, data, size);
}

static void prepare_crc(void)
{
    static const uint8_t zeros[STRETCH_BYTES];
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ CRC_POLYNOMIAL : crc >> 1;
        crc_table[0][byte] = crc;
    }
    for (int row = 1; row < 8; row++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t crc = crc_table[row - 1][byte];
            crc_table[row][byte] = crc >> 8 ^ crc_table[0][crc & 0xFF];
        }
    /* The operation is linear, so the 32 single bits give all of it. */
    for (int row = 0; row < 4; row++) {
        uint32_t after[256] = {0};
        for (int bit = 0; bit < 8; bit++) {
            uint32_t of_bit = crc_by_table((uint32_t)1 << (8 * row + bit), zeros, STRETCH_BYTES);
            for (int byte = 0; byte < 256; byte++)
                if (byte >> bit & 1)
                    after[byte] ^= of_bit;
        }
        /* Another interpreter may have done all this, and be at work: it finds the same. */
        memcpy(crc_after_stretch[row], after, sizeof after);
    }
    crc_instruction_is_there = find_crc_instruction();
}

/* Below this, letting go of the GIL costs more than it gives. */
#define GIL_BYTES_MIN 32768

static PyObject *records_crc32c(PyObject *module, PyObject *arguments)
{
    Py_buffer data;
    unsigned long value = 0;
    uint32_t crc;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*|k:crc32c", &data, &value))
        return NULL;
    if (data.len < GIL_BYTES_MIN) {
        crc = crc_update((uint32_t)value, data.buf, (size_t)data.len);
    } else {
        Py_BEGIN_ALLOW_THREADS
        crc = crc_update((uint32_t)value, data.buf, (size_t)data.len);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&data);
    return PyLong_FromUnsignedLong(crc);
}

static PyObject *records_crc32c_by_table(PyObject *module, PyObject *arguments)
{
    Py_buffer data;
    unsigned long value = 0;
    uint32_t crc;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*|k:crc32c_by_table", &data, &value))
        return NULL;
    crc = ~crc_by_table(~(uint32_t)value, data.buf, (size_t)data.len);
    PyBuffer_Release(&data);
    return PyLong_FromUnsignedLong(crc);
}

/* ---- Batches --------------------------------------------------------------------------------- */

#define BATCH_HEADER_BYTES 61
#define LENGTH_OVERHEAD 12
#define ATTRIBUTES_AT 21
#define COMPRESSION_MASK 7
#define COMPRESSION_LAST 4

/* A batch as a row of int64, native: the columns of `batch_table.py`. */
enum {
    ROW_POSITION,
    ROW_SIZE,
    ROW_BASE_OFFSET,
    ROW_LAST_OFFSET_DELTA,
    ROW_ATTRIBUTES,
    ROW_BASE_TIMESTAMP,
    ROW_MAX_TIMESTAMP,
    ROW_PRODUCER_ID,
    ROW_RECORD_COUNT,
    ROW_CRC_MATCHES,
    ROW_COLUMNS
};

ALWAYS_INLINE uint32_t big_u32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

ALWAYS_INLINE int64_t big_i32(const uint8_t *at) { return (int32_t)big_u32(at); }

ALWAYS_INLINE int64_t big_i64(const uint8_t *at)
{
    return (int64_t)((uint64_t)big_u32(at) << 32 | big_u32(at + 4));
}

/* Whether a batch may begin at `at`, of which 61 bytes are there; its row, but for the CRC. */
static int read_batch_header(const uint8_t *at, int64_t *row)
{
    int64_t length = big_i32(at + 8);
    row[ROW_SIZE] = length + LENGTH_OVERHEAD;
    row[ROW_BASE_OFFSET] = big_i64(at);
    row[ROW_LAST_OFFSET_DELTA] = big_i32(at + 23);
    row[ROW_ATTRIBUTES] = (int16_t)((uint16_t)at[21] << 8 | at[22]);
    row[ROW_BASE_TIMESTAMP] = big_i64(at + 27);
    row[ROW_MAX_TIMESTAMP] = big_i64(at + 35);
    row[ROW_PRODUCER_ID] = big_i64(at + 43);
    row[ROW_RECORD_COUNT] = big_i32(at + 57);
    return at[16] == 2 && row[ROW_SIZE] >= BATCH_HEADER_BYTES && row[ROW_BASE_OFFSET] >= 0 &&
           row[ROW_LAST_OFFSET_DELTA] >= 0 && row[ROW_RECORD_COUNT] >= 0 &&
           row[ROW_RECORD_COUNT] <= row[ROW_LAST_OFFSET_DELTA] + 1 &&
           (row[ROW_ATTRIBUTES] & COMPRESSION_MASK) <= COMPRESSION_LAST;
}

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
            row[ROW_CRC_MATCHES] =
                !checks_crcs || crc_update(0, at + ATTRIBUTES_AT,
                                           (size_t)row[ROW_SIZE] - ATTRIBUTES_AT) == big_u32(at + 17);
            memcpy(rows + found * ROW_COLUMNS, row, sizeof row);
        }
        position += row[ROW_SIZE];
        found++;
    }
    *count = found;
    *end = position;
    return is_sound;
}

PyDoc_STRVAR(scan_doc,
             "scan(data, check_crcs, /)\n--\n\n"
             "(rows, end, is_sound): the whole batches in `data`, ten int64 each as bytes; where "
             "the last one ends; whether a batch may begin there, if 61 bytes are left.");

static PyObject *records_scan(PyObject *module, PyObject *arguments)
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

/* ---- Records --------------------------------------------------------------------------------- */

#define RECORD_BYTES_MIN 7
#define LOG_APPEND_TIME_BIT 8
#define MICROSECONDS_MAX_MS (INT64_MAX / 1000 - 1)

/* The next varint of at most `bits` bits, still with its sign in the lowest bit; NULL when it does
 * not end before `end` or has more bits. */
ALWAYS_INLINE const uint8_t *read_word(const uint8_t *at, const uint8_t *end, int bits,
                                       uint64_t *word)
{
    if (LIKELY(at < end && *at < 0x80)) {
        *word = *at;
        return at + 1;
    }
    uint64_t value = 0;
    for (int shift = 0; shift < bits && at < end; shift += 7) {
        uint64_t byte = *at++;
        if (shift + 7 > bits && (byte & 0x7F) >> (bits - shift))
            return NULL;
        value |= (byte & 0x7F) << shift;
        if (byte < 0x80) {
            *word = value;
            return at;
        }
    }
    return NULL;
}

ALWAYS_INLINE int64_t unzigzag(uint64_t word) { return (int64_t)(word >> 1 ^ (0 - (word & 1))); }

/* A length of 32 bits and as many bytes; -1 is null. */
ALWAYS_INLINE const uint8_t *read_piece(const uint8_t *at, const uint8_t *end,
                                        const uint8_t **piece, int64_t *size)
{
    uint64_t word;
    at = read_word(at, end, 32, &word);
    if (at == NULL)
        return NULL;
    *size = unzigzag(word);
    *piece = at;
    if (*size < 0)
        return *size == -1 ? at : NULL;
    return *size <= end - at ? at + *size : NULL;
}

/* One record: its fields, and what of it is left from the headers on. */
typedef struct {
    int64_t timestamp_delta;
    int64_t offset_delta;
    const uint8_t *key;
    int64_t key_size;
    const uint8_t *value;
    int64_t value_size;
    int64_t header_count;
    const uint8_t *headers;
    const uint8_t *end;
} Record;

/* The record at `at`, and where the next one begins; NULL, and in `wrong` what is wrong. */
ALWAYS_INLINE const uint8_t *read_record(const uint8_t *at, const uint8_t *payload_end, Record *record,
                                         const char **wrong)
{
    uint64_t word;
    at = read_word(at, payload_end, 32, &word);
    if (at == NULL || word & 1 || (int64_t)(word >> 1) > payload_end - at) {
        *wrong = "a record's length is not where it should be";
        return NULL;
    }
    const uint8_t *end = record->end = at + (word >> 1);
    *wrong = "a varint within its record is not where it should be";
    if (at == end || (at = read_word(at + 1, end, 64, &word)) == NULL)
        return NULL;
    record->timestamp_delta = unzigzag(word);
    if ((at = read_word(at, end, 32, &word)) == NULL)
        return NULL;
    record->offset_delta = unzigzag(word);
    *wrong = "a key or value within its record is not where it should be";
    if ((at = read_piece(at, end, &record->key, &record->key_size)) == NULL)
        return NULL;
    if ((at = read_piece(at, end, &record->value, &record->value_size)) == NULL)
        return NULL;
    *wrong = "a count of headers is not where it should be";
    if ((at = read_word(at, end, 32, &word)) == NULL)
        return NULL;
    record->header_count = unzigzag(word);
    if (record->header_count < 0 || record->header_count * 2 > end - at)
        return NULL;
    *wrong = "the end of a record is not where it should be";
    if (record->header_count == 0 && at != end)
        return NULL;
    record->headers = at;
    return end;
}

/* ---- Records, checked ------------------------------------------------------------------------ */

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
        int64_t delta = record.timestamp_delta;
        int64_t timestamp = (int64_t)((uint64_t)base_timestamp + (uint64_t)delta);
        if (((base_timestamp ^ timestamp) & (delta ^ timestamp)) < 0) {
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

PyDoc_STRVAR(check_doc,
             "check(payload, record_count, last_offset_delta, base_timestamp, /)\n--\n\n"
             "(min_timestamp, max_timestamp, has_all_offsets, keyless_count, first_keyless): what the "
             "records in a decompressed payload are. Raises ValueError if they are not what the "
             "numbers say.");

static PyObject *records_check(PyObject *module, PyObject *arguments)
{
    Py_buffer payload;
    long long count, last_offset_delta, base_timestamp;
    int is_sound;
    Facts facts;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y*LLL:check", &payload, &count, &last_offset_delta,
                          &base_timestamp))
        return NULL;
    facts.min_timestamp = facts.max_timestamp = -1;
    facts.has_all_offsets = 1;
    facts.keyless = 0;
    if (payload.len < GIL_BYTES_MIN) {
        is_sound = check_payload(&facts, payload.buf, payload.len, count, last_offset_delta,
                                 base_timestamp);
    } else {
        Py_BEGIN_ALLOW_THREADS
        is_sound = check_payload(&facts, payload.buf, payload.len, count, last_offset_delta,
                                 base_timestamp);
        Py_END_ALLOW_THREADS
    }
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

static PyObject *none(void)
{
    Py_INCREF(Py_None);
    return Py_None;
}

PyDoc_STRVAR(check_plain_doc,
             "check_plain(batch, /)\n--\n\n"
             "The fields of a batch's header, in order and with the whole size, if the batch is one "
             "of a producer, without compression and attributes, of which nothing is wrong: CRC, "
             "numbers, records, times. None of all others, be they wrong or not.");

static PyObject *records_check_plain(PyObject *module, PyObject *batch)
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
        uint32_t crc = big_u32(at + 17);
        int64_t producer_epoch = (int16_t)((uint16_t)at[51] << 8 | at[52]);
        int64_t base_sequence = big_i32(at + 53);
        Facts facts = {.min_timestamp = -1, .max_timestamp = -1, .has_all_offsets = 1};
        if ((base_sequence >= 0 || row[ROW_PRODUCER_ID] < 0) &&
            crc_update(0, at + ATTRIBUTES_AT, (size_t)data.len - ATTRIBUTES_AT) == crc &&
            check_payload(&facts, at + BATCH_HEADER_BYTES, data.len - BATCH_HEADER_BYTES,
                          row[ROW_RECORD_COUNT], row[ROW_LAST_OFFSET_DELTA],
                          row[ROW_BASE_TIMESTAMP]) &&
            facts.has_all_offsets && facts.max_timestamp == row[ROW_MAX_TIMESTAMP])
            fields = Py_BuildValue(
                "LLLiIiLLLLLLL", 0LL, (long long)row[ROW_SIZE], (long long)big_i32(at + 12), 2,
                (unsigned int)crc, 0, (long long)row[ROW_LAST_OFFSET_DELTA],
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

/* ---- Records to Arrow ------------------------------------------------------------------------ */

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

ALWAYS_INLINE void set_bit(uint8_t *bits, int64_t index) { bits[index >> 3] |= (uint8_t)(1 << (index & 7)); }

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

ALWAYS_INLINE int put_record(Output *output, const int64_t *row, const Record *record, int is_writing)
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

ALWAYS_INLINE int decode_payload(Output *output, const int64_t *row, const uint8_t *at, int64_t size,
                                 int is_writing)
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

/* Of `bytes`, new; NULL with an exception set. A validity bitmap begins with all bits off. */
static void *new_bytes(PyObject **bytes, int64_t size, int is_zeroed)
{
    *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (*bytes == NULL)
        return NULL;
    char *data = PyBytes_AsString(*bytes);
    if (is_zeroed)
        memset(data, 0, (size_t)size);
    return data;
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

PyDoc_STRVAR(decode_doc,
             "decode(payloads, rows, first_offset, end_offset, offsets, timestamps, types, keys, "
             "values, headers, /)\n--\n\n"
             "The records of decompressed payloads, whose batches are `rows` as `scan` gives them, "
             "at offsets from `first_offset` to before `end_offset`, as Arrow's buffers: their "
             "count, then for each column that is asked for its bytes, else None. Offsets are "
             "int64; timestamps int64, us; types int32; keys and values (validity or None, int32 "
             "offsets, data); headers (validity or None, int32 offsets, keys, values). Raises "
             "ValueError for what are no such records.");

static PyObject *records_decode(PyObject *module, PyObject *arguments)
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

/* ---- Arrow to records ------------------------------------------------------------------------ */

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

/* From where to where a row goes: how much that is, -1 for null, -2 when the buffers say what cannot
 * be. */
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

PyDoc_STRVAR(encode_doc,
             "encode(rows, timestamps, keys, values, headers, bytes_max, /)\n--\n\n"
             "(payload, count, base_timestamp, max_timestamp): the records at `rows` (int64), from "
             "the first on, as many as fit into `bytes_max`, at least one. Timestamps are int64, "
             "ms; keys and values (first, validity or None, int32 offsets, data or None), or None "
             "for nulls; headers (first, validity or None, int32 offsets, keys, values) or None.");

static PyObject *records_encode(PyObject *module, PyObject *arguments)
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

/* ---- The module ------------------------------------------------------------------------------ */

static PyMethodDef methods[] = {
    {"crc32c", records_crc32c, METH_VARARGS,
     "crc32c(data, value=0, /)\n--\n\nThe CRC-32C of `data`, continued from `value`."},
    {"crc32c_by_table", records_crc32c_by_table, METH_VARARGS,
     "crc32c_by_table(data, value=0, /)\n--\n\nThe same without the processor's instruction."},
    {"scan", records_scan, METH_VARARGS, scan_doc},
    {"check", records_check, METH_VARARGS, check_doc},
    {"check_plain", records_check_plain, METH_O, check_plain_doc},
    {"decode", records_decode, METH_VARARGS, decode_doc},
    {"encode", records_encode, METH_VARARGS, encode_doc},
    {NULL, NULL, 0, NULL},
};

static int execute(PyObject *module)
{
    prepare_crc();
    return PyModule_AddIntConstant(module, "INTERFACE", 3);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)execute},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_records", "Record batches at the speed of memory.", 0, methods, slots,
    NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__records(void) { return PyModuleDef_Init(&definition); }
