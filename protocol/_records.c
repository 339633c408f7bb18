/* Record batches at the speed of memory: where batches lie, their CRC-32C, whether their records
 * are what they say, their records as Arrow's buffers, records encoded from Arrow's buffers, and
 * what compaction leaves of them.
 *
 * This file is the module; the functions are in `_records_*.c`, what they share in `_records.h`.
 * What is refused there is what the Python of batches.py, records.py and record_facts.py, and of
 * the Spark source's fields.py and encoder.py, refuses, which tests hold it to.
 *
 * No per-record Python objects, no state but CRC tables, only the stable ABI. Not known here:
 * codecs (the payloads come decompressed), transactions, topics.
 */

#include "_records.h"

static PyMethodDef methods[] = {
    {"crc32c", records_crc32c, METH_VARARGS, records_crc32c_doc},
    {"crc32c_by_table", records_crc32c_by_table, METH_VARARGS, records_crc32c_by_table_doc},
    {"scan", records_scan, METH_VARARGS, records_scan_doc},
    {"check", records_check, METH_VARARGS, records_check_doc},
    {"check_plain", records_check_plain, METH_O, records_check_plain_doc},
    {"decode", records_decode, METH_VARARGS, records_decode_doc},
    {"read", records_read, METH_VARARGS, records_read_doc},
    {"encode", records_encode, METH_VARARGS, records_encode_doc},
    {"partition", records_partition, METH_VARARGS, records_partition_doc},
    {"enter_keys", records_enter_keys, METH_VARARGS, records_enter_keys_doc},
    {"ask_keys", records_ask_keys, METH_VARARGS, records_ask_keys_doc},
    {"keep", records_keep, METH_VARARGS, records_keep_doc},
    {NULL, NULL, 0, NULL},
};

static int execute(PyObject *module)
{
    prepare_crc();
    return PyModule_AddIntConstant(module, "INTERFACE", 6);
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
