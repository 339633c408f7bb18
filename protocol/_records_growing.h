/* Outputs of which nobody knows the size before they are there. */

#ifndef ASYNCBROKER_RECORDS_GROWING_H
#define ASYNCBROKER_RECORDS_GROWING_H

#include <stdlib.h>

#include "_records.h"

/* Bytes that grow; without the GIL, too. */
typedef struct {
    uint8_t *data;
    int64_t size;
    int64_t room;
} Growing;

/* Room for so many more bytes; NULL when there is no memory. */
ALWAYS_INLINE uint8_t *room_for(Growing *bytes, int64_t size)
{
    if (!LIKELY(bytes->room - bytes->size >= size)) {
        int64_t room = bytes->room * 2 + size + 4096;
        uint8_t *data = realloc(bytes->data, (size_t)room);
        if (data == NULL)
            return NULL;
        bytes->data = data;
        bytes->room = room;
    }
    return bytes->data + bytes->size;
}

ALWAYS_INLINE int append(Growing *bytes, const void *data, int64_t size)
{
    uint8_t *at = room_for(bytes, size);
    if (at == NULL)
        return 0;
    memcpy(at, data, (size_t)size);
    bytes->size += size;
    return 1;
}

static inline PyObject *taken_bytes(const Growing *bytes)
{
    return PyBytes_FromStringAndSize((const char *)bytes->data, (Py_ssize_t)bytes->size);
}

#endif
