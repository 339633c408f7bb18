/* One write with its fdatasync at a time, in a thread that needs the interpreter for nothing.
 *
 * A commit round that goes through a thread of Python pays twice for the interpreter's lock: the
 * thread gets it to begin, and again to say that it has ended, each time from the event loop, which
 * is at work meanwhile. Here the thread takes it once, when it starts, and gives it back until the
 * end; it is told of a write by a semaphore, and tells of its end by an eventfd, which a loop can
 * watch.
 *
 *     submit   IDLE -> SUBMITTED      the thread that owns the writer
 *     serve    SUBMITTED -> WRITTEN   the writer's own thread, without the interpreter's lock
 *     outcome  WRITTEN -> IDLE        the thread that owns the writer
 *
 * Who waits for a write may leave it an `Answer`: bytes for a socket, which the thread sends when all
 * is durable, so that the loop, which has one core and no more, need not. Nothing of it is sent if
 * anything went wrong. Whoever made it may take it back at any time, and is told how much has left:
 *
 *     PENDING -> SENDING -> ENDED     the writer's own thread
 *     PENDING -> ENDED                `end`, which waits while it is SENDING: that is one call that
 *                                     never waits. From then on the socket is left alone.
 *
 * What a write means is what `RealFile.pwrite` and `RealFile.datasync` mean, by the same calls:
 * tests hold it to them. Linux only; only the stable ABI.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>
#include <sched.h>
#include <semaphore.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { IDLE, SUBMITTED, WRITTEN };
enum { PENDING, SENDING, ENDED };

typedef struct {
    PyObject_HEAD
    PyObject *bytes;
    const char *data;
    Py_ssize_t size;
    Py_ssize_t sent;
    int socket;
    int state;
} Answer;

typedef struct {
    PyObject_HEAD
    PyObject *answer_type;
    sem_t wake;
    int event; /* readable from the end of a write until its outcome is taken */
    int state;
    int is_ending;
    int file;
    int error;
    off_t position;
    double seconds;
    Py_buffer data;
    Answer **answers; /* each of them held */
    Py_ssize_t answer_count;
} Writer;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* An errno, 0 if all of it is durable. */
static int write_synced(int file, const char *data, size_t size, off_t position)
{
    struct stat status;
    while (size > 0) {
        ssize_t written = pwrite(file, data, size, position);
        if (written < 0) {
            if (errno == EINTR)
                continue;
            return errno;
        }
        if (written == 0)
            return EIO; /* the system writes nothing and names no error */
        data += written;
        size -= (size_t)written;
        position += written;
    }
    while (fdatasync(file) != 0)
        if (errno != EINTR)
            return errno;
    if (fstat(file, &status) != 0)
        return errno;
    return status.st_nlink == 0 ? ENOENT : 0; /* removed by somebody: no start will find it */
}

/* ---- Answers --------------------------------------------------------------------------------- */

/* In the writer's own thread. What cannot be sent at once, or not at all, is left to the owner. */
static void send_answer(Answer *answer)
{
    int expected = PENDING;
    ssize_t sent;
    if (!__atomic_compare_exchange_n(&answer->state, &expected, SENDING, 0, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE))
        return;
    sent = send(answer->socket, answer->data, (size_t)answer->size, MSG_DONTWAIT | MSG_NOSIGNAL);
    answer->sent = sent < 0 ? 0 : sent;
    __atomic_store_n(&answer->state, ENDED, __ATOMIC_RELEASE);
}

PyDoc_STRVAR(answer_end_doc,
             "end()\n--\n\n"
             "How many of its bytes have been sent; from now on none will be.");

static PyObject *answer_end(PyObject *self, PyObject *unused)
{
    Answer *answer = (Answer *)self;
    int expected = PENDING;
    (void)unused;
    if (!__atomic_compare_exchange_n(&answer->state, &expected, ENDED, 0, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE))
        while (__atomic_load_n(&answer->state, __ATOMIC_ACQUIRE) != ENDED)
            sched_yield();
    return PyLong_FromSsize_t(answer->sent);
}

static PyObject *answer_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Answer *answer;
    PyObject *bytes;
    int socket;
    (void)keywords;
    if (!PyArg_ParseTuple(arguments, "iS:Answer", &socket, &bytes))
        return NULL;
    answer = (Answer *)allocate(type, 0); /* all zeros */
    if (answer == NULL)
        return NULL;
    Py_INCREF(bytes);
    answer->bytes = bytes;
    answer->data = PyBytes_AsString(bytes);
    answer->size = PyBytes_Size(bytes);
    answer->socket = socket;
    return (PyObject *)answer;
}

static void answer_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    Py_XDECREF(((Answer *)self)->bytes);
    release(self);
    Py_DECREF((PyObject *)type);
}

static PyMethodDef answer_methods[] = {
    {"end", answer_end, METH_NOARGS, answer_end_doc},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(answer_doc,
             "Answer(socket, data, /)\n--\n\n"
             "Bytes that a writer sends when its write is durable. The descriptor must stay open "
             "until `end`.");

static PyType_Slot answer_slots[] = {
    {Py_tp_doc, (void *)answer_doc},
    {Py_tp_new, (void *)answer_new},
    {Py_tp_dealloc, (void *)answer_dealloc},
    {Py_tp_methods, (void *)answer_methods},
    {0, NULL},
};

static PyType_Spec answer_spec = {
    "asyncbroker.log._writer.Answer", sizeof(Answer), 0, Py_TPFLAGS_DEFAULT, answer_slots,
};

/* ---- The writer's own thread ----------------------------------------------------------------- */

static void serve(Writer *writer)
{
    const uint64_t one = 1;
    for (;;) {
        while (sem_wait(&writer->wake) != 0)
            ; /* a signal */
        if (__atomic_load_n(&writer->state, __ATOMIC_ACQUIRE) == SUBMITTED) {
            double began = now();
            writer->error = write_synced(writer->file, writer->data.buf, (size_t)writer->data.len,
                                         writer->position);
            writer->seconds = now() - began;
            for (Py_ssize_t i = 0; writer->error == 0 && i < writer->answer_count; i++)
                send_answer(writer->answers[i]);
            __atomic_store_n(&writer->state, WRITTEN, __ATOMIC_RELEASE);
            while (write(writer->event, &one, sizeof one) < 0 && errno == EINTR)
                ;
        } else if (__atomic_load_n(&writer->is_ending, __ATOMIC_ACQUIRE)) {
            return;
        }
    }
}

PyDoc_STRVAR(serve_doc, "serve()\n--\n\nWrites what is submitted, until `end`.");

static PyObject *writer_serve(PyObject *self, PyObject *unused)
{
    (void)unused;
    Py_BEGIN_ALLOW_THREADS
    serve((Writer *)self);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* ---- The others ------------------------------------------------------------------------------ */

static void release_answers(Writer *writer)
{
    for (Py_ssize_t i = 0; i < writer->answer_count; i++)
        Py_DECREF((PyObject *)writer->answers[i]);
    PyMem_Free(writer->answers);
    writer->answers = NULL;
    writer->answer_count = 0;
}

/* 0 with an exception if they are not all answers. */
static int hold_answers(Writer *writer, PyObject *list)
{
    Py_ssize_t count = PyList_Size(list);
    if (count == 0)
        return 1;
    writer->answers = PyMem_Malloc((size_t)count * sizeof *writer->answers);
    if (writer->answers == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *answer = PyList_GetItem(list, i);
        if (answer == NULL || (PyObject *)Py_TYPE(answer) != writer->answer_type) {
            if (answer != NULL)
                PyErr_SetString(PyExc_TypeError, "an Answer is expected");
            release_answers(writer);
            return 0;
        }
        Py_INCREF(answer);
        writer->answers[writer->answer_count++] = (Answer *)answer;
    }
    return 1;
}

PyDoc_STRVAR(submit_doc,
             "submit(file, data, position, answers, /)\n--\n\n"
             "Has `data` written to a descriptor and synced, and then the list of answers sent. One "
             "at a time: the outcome of the last one must have been taken. Data and file stay as "
             "they are, and open, until then.");

static PyObject *writer_submit(PyObject *self, PyObject *arguments)
{
    Writer *writer = (Writer *)self;
    Py_buffer data;
    PyObject *answers;
    long long position;
    int file;
    if (!PyArg_ParseTuple(arguments, "iy*LO!:submit", &file, &data, &position, &PyList_Type,
                          &answers))
        return NULL;
    if (writer->state != IDLE || writer->is_ending) {
        PyBuffer_Release(&data);
        PyErr_SetString(PyExc_RuntimeError, "the writer is not free");
        return NULL;
    }
    if (!hold_answers(writer, answers)) {
        PyBuffer_Release(&data);
        return NULL;
    }
    writer->file = file;
    writer->data = data;
    writer->position = (off_t)position;
    __atomic_store_n(&writer->state, SUBMITTED, __ATOMIC_RELEASE);
    sem_post(&writer->wake);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(outcome_doc,
             "outcome()\n--\n\n"
             "(errno or 0, seconds) of the write that has ended; None if there is none.");

static PyObject *writer_outcome(PyObject *self, PyObject *unused)
{
    Writer *writer = (Writer *)self;
    uint64_t count;
    (void)unused;
    if (__atomic_load_n(&writer->state, __ATOMIC_ACQUIRE) != WRITTEN)
        Py_RETURN_NONE;
    /* The thread may be about to say so. It is next to nothing that is waited for. */
    while (read(writer->event, &count, sizeof count) < 0)
        if (errno != EINTR)
            return PyErr_SetFromErrno(PyExc_OSError);
    PyBuffer_Release(&writer->data);
    release_answers(writer);
    writer->state = IDLE;
    return Py_BuildValue("id", writer->error, writer->seconds);
}

PyDoc_STRVAR(end_doc, "end()\n--\n\nHas `serve` return, after what is submitted.");

static PyObject *writer_end(PyObject *self, PyObject *unused)
{
    Writer *writer = (Writer *)self;
    (void)unused;
    __atomic_store_n(&writer->is_ending, 1, __ATOMIC_RELEASE);
    sem_post(&writer->wake);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(fileno_doc, "fileno()\n--\n\nReadable while there is an outcome to take.");

static PyObject *writer_fileno(PyObject *self, PyObject *unused)
{
    (void)unused;
    return PyLong_FromLong(((Writer *)self)->event);
}

/* ---- The type and the module ----------------------------------------------------------------- */

static PyObject *writer_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Writer *writer;
    (void)arguments;
    (void)keywords;
    writer = (Writer *)allocate(type, 0); /* all zeros */
    if (writer == NULL)
        return NULL;
    writer->event = -1;
    writer->answer_type = PyObject_GetAttrString((PyObject *)type, "make_answer");
    if (writer->answer_type == NULL) {
        Py_DECREF((PyObject *)writer);
        return NULL;
    }
    writer->event = eventfd(0, EFD_CLOEXEC);
    if (writer->event < 0 || sem_init(&writer->wake, 0, 0) != 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        if (writer->event >= 0)
            close(writer->event);
        writer->event = -1;
        Py_DECREF((PyObject *)writer);
        return NULL;
    }
    return (PyObject *)writer;
}

/* Nobody serves: who does holds a reference. */
static void writer_dealloc(PyObject *self)
{
    Writer *writer = (Writer *)self;
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    if (writer->state != IDLE)
        PyBuffer_Release(&writer->data);
    release_answers(writer);
    Py_XDECREF(writer->answer_type);
    if (writer->event >= 0) {
        close(writer->event);
        sem_destroy(&writer->wake);
    }
    release(self);
    Py_DECREF((PyObject *)type);
}

static PyMethodDef writer_methods[] = {
    {"serve", writer_serve, METH_NOARGS, serve_doc},
    {"submit", writer_submit, METH_VARARGS, submit_doc},
    {"outcome", writer_outcome, METH_NOARGS, outcome_doc},
    {"end", writer_end, METH_NOARGS, end_doc},
    {"fileno", writer_fileno, METH_NOARGS, fileno_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot writer_slots[] = {
    {Py_tp_new, (void *)writer_new},
    {Py_tp_dealloc, (void *)writer_dealloc},
    {Py_tp_methods, (void *)writer_methods},
    {0, NULL},
};

static PyType_Spec writer_spec = {
    "asyncbroker.log._writer.Writer", sizeof(Writer), 0, Py_TPFLAGS_DEFAULT, writer_slots,
};

static int execute(PyObject *module)
{
    PyObject *writer = PyType_FromSpec(&writer_spec);
    PyObject *answer = PyType_FromSpec(&answer_spec);
    if (writer == NULL || answer == NULL || PyObject_SetAttrString(writer, "make_answer", answer) < 0) {
        Py_XDECREF(writer);
        Py_XDECREF(answer);
        return -1;
    }
    Py_DECREF(answer); /* the other type has it */
    if (PyModule_AddObject(module, "Writer", writer) < 0) {
        Py_DECREF(writer);
        return -1;
    }
    return PyModule_AddIntConstant(module, "INTERFACE", 2);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)execute},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_writer", "Writes with their fdatasync, beside the interpreter.", 0,
    NULL, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__writer(void) { return PyModuleDef_Init(&definition); }
