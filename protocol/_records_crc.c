/* CRC-32C, by the processor's instruction if it has one, else by tables. The tables are the only
 * state of the extension. */

#include "_records.h"

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

#define CRC_POLYNOMIAL 0x82F63B78u
/* Three stretches of this size are worked on at a time: an instruction takes three cycles, and one
 * can begin in each. */
#define STRETCH_BYTES 1024
#define LINE_BYTES 64

/* Asks for bytes that are needed soon; they need not be there at all. */
#if defined(__GNUC__) || defined(__clang__)
#define PREFETCH(data, ahead) __builtin_prefetch((const void *)((uintptr_t)(data) + (ahead)))
#else
#define PREFETCH(data, ahead) ((void)0)
#endif

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
        for (; data < end; data += LINE_BYTES) {
            /* The processor does not foresee that three stretches begin anew: without a word to it
             * bytes that are in none of its own caches take twice as long. */
            PREFETCH(data, 3 * STRETCH_BYTES);
            PREFETCH(data, 4 * STRETCH_BYTES);
            PREFETCH(data, 5 * STRETCH_BYTES);
            for (int at = 0; at < LINE_BYTES; at += 8) {
                first = CRC_STEP_8(first, word_at(data + at));
                second = CRC_STEP_8(second, word_at(data + at + STRETCH_BYTES));
                third = CRC_STEP_8(third, word_at(data + at + 2 * STRETCH_BYTES));
            }
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

static uint32_t update_by_table(uint32_t crc, const uint8_t *data, size_t size)
{
    return ~crc_by_table(~crc, data, size);
}

uint32_t crc_update(uint32_t crc, const uint8_t *data, size_t size)
{
#if defined(HAS_SSE42) || defined(HAS_ARM_CRC)
    if (LIKELY(crc_instruction_is_there))
        return ~crc_by_instruction(~crc, data, size);
#endif
    return update_by_table(crc, data, size);
}

void prepare_crc(void)
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

/* What `update` makes of the arguments of either function. */
static PyObject *crc_of(PyObject *arguments, const char *format,
                        uint32_t (*update)(uint32_t crc, const uint8_t *data, size_t size))
{
    Py_buffer data;
    unsigned long value = 0;
    PyThreadState *without_gil = NULL;
    if (!PyArg_ParseTuple(arguments, format, &data, &value))
        return NULL;
    if (data.len >= GIL_BYTES_MIN)
        without_gil = PyEval_SaveThread();
    uint32_t crc = update((uint32_t)value, data.buf, (size_t)data.len);
    if (without_gil != NULL)
        PyEval_RestoreThread(without_gil);
    PyBuffer_Release(&data);
    return PyLong_FromUnsignedLong(crc);
}

const char records_crc32c_doc[] = PyDoc_STR(
    "crc32c(data, value=0, /)\n--\n\nThe CRC-32C of `data`, continued from `value`.");

PyObject *records_crc32c(PyObject *module, PyObject *arguments)
{
    (void)module;
    return crc_of(arguments, "y*|k:crc32c", crc_update);
}

const char records_crc32c_by_table_doc[] = PyDoc_STR(
    "crc32c_by_table(data, value=0, /)\n--\n\nThe same without the processor's instruction.");

PyObject *records_crc32c_by_table(PyObject *module, PyObject *arguments)
{
    (void)module;
    return crc_of(arguments, "y*|k:crc32c_by_table", update_by_table);
}
