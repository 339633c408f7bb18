/* What the files of the extension `_records` share: how bytes are read, and what one has for
 * another.
 *
 * The maps of a batch and of a record are in batches.py and records.py. Everything that is read is
 * a stranger's: a length is held against what is left before it is used.
 *
 * What is called for each record is inline, the rest is seen within the extension only.
 */

#ifndef ASYNCBROKER_RECORDS_H
#define ASYNCBROKER_RECORDS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <string.h>

#if defined(__GNUC__) || defined(__clang__)
#define LIKELY(condition) __builtin_expect(!!(condition), 1)
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#else
#define LIKELY(condition) (condition)
#define ALWAYS_INLINE static __forceinline
#endif

/* Below this, letting go of the GIL costs more than it gives. */
#define GIL_BYTES_MIN 32768

/* ---- What the files have for each other ------------------------------------------------------ */

#if defined(__GNUC__) || defined(__clang__)
#pragma GCC visibility push(hidden)
#endif

void prepare_crc(void);
uint32_t crc_update(uint32_t crc, const uint8_t *data, size_t size);

/* The functions of the module, and what they say of themselves. */
PyObject *records_crc32c(PyObject *module, PyObject *arguments);
PyObject *records_crc32c_by_table(PyObject *module, PyObject *arguments);
PyObject *records_scan(PyObject *module, PyObject *arguments);
PyObject *records_check(PyObject *module, PyObject *arguments);
PyObject *records_check_plain(PyObject *module, PyObject *batch);
PyObject *records_decode(PyObject *module, PyObject *arguments);
PyObject *records_read(PyObject *module, PyObject *arguments);
PyObject *records_encode(PyObject *module, PyObject *arguments);
PyObject *records_partition(PyObject *module, PyObject *arguments);
PyObject *records_enter_keys(PyObject *module, PyObject *arguments);
PyObject *records_ask_keys(PyObject *module, PyObject *arguments);
PyObject *records_keep(PyObject *module, PyObject *arguments);
extern const char records_crc32c_doc[];
extern const char records_crc32c_by_table_doc[];
extern const char records_scan_doc[];
extern const char records_check_doc[];
extern const char records_check_plain_doc[];
extern const char records_decode_doc[];
extern const char records_read_doc[];
extern const char records_encode_doc[];
extern const char records_partition_doc[];
extern const char records_enter_keys_doc[];
extern const char records_ask_keys_doc[];
extern const char records_keep_doc[];

#if defined(__GNUC__) || defined(__clang__)
#pragma GCC visibility pop
#endif

/* ---- Batches --------------------------------------------------------------------------------- */

#define BATCH_HEADER_BYTES 61
#define LENGTH_OVERHEAD 12
#define CRC_AT 17
#define ATTRIBUTES_AT 21
#define COMPRESSION_MASK 7
#define COMPRESSION_LAST 4
#define LOG_APPEND_TIME_BIT 8
#define TRANSACTIONAL_BIT 16
#define CONTROL_BIT 32

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
static inline int read_batch_header(const uint8_t *at, int64_t *row)
{
    int64_t length = big_i32(at + 8);
    row[ROW_SIZE] = length + LENGTH_OVERHEAD;
    row[ROW_BASE_OFFSET] = big_i64(at);
    row[ROW_LAST_OFFSET_DELTA] = big_i32(at + 23);
    row[ROW_ATTRIBUTES] = (int16_t)((uint16_t)at[ATTRIBUTES_AT] << 8 | at[ATTRIBUTES_AT + 1]);
    row[ROW_BASE_TIMESTAMP] = big_i64(at + 27);
    row[ROW_MAX_TIMESTAMP] = big_i64(at + 35);
    row[ROW_PRODUCER_ID] = big_i64(at + 43);
    row[ROW_RECORD_COUNT] = big_i32(at + 57);
    return at[16] == 2 && row[ROW_SIZE] >= BATCH_HEADER_BYTES && row[ROW_BASE_OFFSET] >= 0 &&
           row[ROW_LAST_OFFSET_DELTA] >= 0 && row[ROW_RECORD_COUNT] >= 0 &&
           row[ROW_RECORD_COUNT] <= row[ROW_LAST_OFFSET_DELTA] + 1 &&
           (row[ROW_ATTRIBUTES] & COMPRESSION_MASK) <= COMPRESSION_LAST;
}

/* Whether the CRC of a batch that is all there is right. */
static inline int crc_matches(const uint8_t *at, int64_t size)
{
    return crc_update(0, at + ATTRIBUTES_AT, (size_t)size - ATTRIBUTES_AT) == big_u32(at + CRC_AT);
}

/* ---- Records --------------------------------------------------------------------------------- */

#define RECORD_BYTES_MIN 7
#define VARINT_BYTES_MAX 10
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
    if (LIKELY(end - at >= 2 && at[1] < 0x80)) {
        *word = (uint64_t)(*at & 0x7F) | (uint64_t)at[1] << 7;
        return at + 2;
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

ALWAYS_INLINE uint64_t zigzag(int64_t value)
{
    return (uint64_t)value << 1 ^ (value < 0 ? ~(uint64_t)0 : 0);
}

/* How many bytes the varint of a number takes. */
ALWAYS_INLINE int64_t varint_size(int64_t value)
{
    uint64_t word = zigzag(value);
#if defined(__GNUC__) || defined(__clang__)
    return (63 - __builtin_clzll(word | 1)) / 7 + 1;
#else
    int64_t size = 1;
    while (word >>= 7)
        size++;
    return size;
#endif
}

/* Writes at most VARINT_BYTES_MAX; where they end. */
ALWAYS_INLINE uint8_t *write_varint(uint8_t *at, int64_t value)
{
    uint64_t word = zigzag(value);
    while (word > 0x7F) {
        *at++ = (uint8_t)(word | 0x80);
        word >>= 7;
    }
    *at++ = (uint8_t)word;
    return at;
}

/* The time of a record; 0 when base and delta together have more than 64 bits. */
ALWAYS_INLINE int add_delta(int64_t base, int64_t delta, int64_t *timestamp)
{
    *timestamp = (int64_t)((uint64_t)base + (uint64_t)delta);
    return ((base ^ *timestamp) & (delta ^ *timestamp)) >= 0;
}

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
    const uint8_t *attributes;
    int64_t timestamp_delta;
    const uint8_t *after_timestamp;
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
ALWAYS_INLINE const uint8_t *read_record(const uint8_t *at, const uint8_t *payload_end,
                                         Record *record, const char **wrong)
{
    uint64_t word;
    at = read_word(at, payload_end, 32, &word);
    if (at == NULL || word & 1 || (int64_t)(word >> 1) > payload_end - at) {
        *wrong = "a record's length is not where it should be";
        return NULL;
    }
    const uint8_t *end = record->end = at + (word >> 1);
    *wrong = "a varint within its record is not where it should be";
    record->attributes = at;
    if (at == end || (at = read_word(at + 1, end, 64, &word)) == NULL)
        return NULL;
    record->timestamp_delta = unzigzag(word);
    record->after_timestamp = at;
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

/* ---- Objects --------------------------------------------------------------------------------- */

static inline PyObject *none(void)
{
    Py_INCREF(Py_None);
    return Py_None;
}

/* Of `bytes`, new; NULL with an exception set. A validity bitmap begins with all bits off. */
static inline void *new_bytes(PyObject **bytes, int64_t size, int is_zeroed)
{
    *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (*bytes == NULL)
        return NULL;
    char *data = PyBytes_AsString(*bytes);
    if (is_zeroed)
        memset(data, 0, (size_t)size);
    return data;
}

#endif
