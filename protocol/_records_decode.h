/* The outputs of records as Arrow's buffers, which are written batch by batch. */

#ifndef ASYNCBROKER_RECORDS_DECODE_H
#define ASYNCBROKER_RECORDS_DECODE_H

#include "_records.h"

/* A column of bytes: what it has so far, and the room that it is written to. */
typedef struct {
    int64_t size;
    int64_t nulls;
    int64_t count;
    int32_t *offsets;
    uint8_t *data;
    uint8_t *validity;
    int64_t room;
    int64_t rows;
    PyObject *offsets_bytes;
    PyObject *data_bytes;
    PyObject *validity_bytes;
} Pieces;

/* The records of some batches that are wanted. All zeros but for what is wanted to begin with. */
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
    int64_t *offsets;
    int64_t *timestamps;
    int32_t *types;
    int32_t *header_places;
    uint8_t *header_validity;
    int64_t rows_room;
    PyObject *offsets_bytes;
    PyObject *timestamps_bytes;
    PyObject *types_bytes;
    PyObject *header_places_bytes;
    PyObject *header_validity_bytes;
    /* Where it went wrong. */
    const char *wrong;
    int64_t wrong_at;
} Output;

#if defined(__GNUC__) || defined(__clang__)
#pragma GCC visibility push(hidden)
#endif

/* Room for so many rows, and for so many bytes in each column of bytes; 0 with an exception set. */
int open_outputs(Output *output, int64_t rows, int64_t room);

/* Adds the records of a payload, without the GIL; 0 if they are none, or there is no room. */
int write_payload(Output *output, const int64_t *row, const uint8_t *at, int64_t size);

/* What has come, as `decode` returns it. */
PyObject *take_outputs(Output *output);

/* Always to be called in the end, unless nothing was opened. */
void close_outputs(Output *output);

#if defined(__GNUC__) || defined(__clang__)
#pragma GCC visibility pop
#endif

#endif
