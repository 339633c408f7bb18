/* Records what a process does to the files below one directory; for LD_PRELOAD.
 *
 *     RECORDED_DIRECTORY   the directory, absolute; without it nothing is recorded
 *     RECORDED_TO          the file that records are appended to
 *     RECORDED_SYNC_US     how long an fsync takes, at most, in microseconds
 *
 * Each call is a record before it is made, and another with its result: who is killed leaves at most
 * one call of which nobody knows whether it was made. Calls are made one at a time, so that the file
 * has them in their order. An fsync is not made, it only takes its time; others go on meanwhile, and
 * its two records say when it began and ended.
 *
 * A record, in the byte order of the machine:
 *
 *      0 4  magic "RECD"
 *      4 4  kind, a letter
 *      8 4  process id
 *     12 4  file descriptor, or result
 *     16 8  time, CLOCK_MONOTONIC in nanoseconds
 *     24 8  position, size or flags
 *     32 8  bytes that follow: paths, each with a zero at its end, or what is written
 *     40    these bytes, then the magic again
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define DESCRIPTORS_MAX 65536
#define REAL(name) ((__typeof__(&name))real(#name))

struct head {
    char magic[4];
    int32_t kind, process, descriptor;
    int64_t time, number, size;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char is_recorded[DESCRIPTORS_MAX];
static const char *directory, *target;
static size_t directory_size;
static long sync_us;
static int output = -1, output_process;

static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

__attribute__((constructor)) static void begin(void) {
    const char *us = getenv("RECORDED_SYNC_US");
    target = getenv("RECORDED_TO");
    sync_us = us ? atol(us) : 0;
    directory = target ? getenv("RECORDED_DIRECTORY") : NULL;
    directory_size = directory ? strlen(directory) : 0;
}

static void put(int kind, int descriptor, int64_t number, const struct iovec *parts, int count) {
    struct head head = {{'R', 'E', 'C', 'D'}, kind, getpid(), descriptor, 0, number, 0};
    struct iovec all[8];
    struct timespec now;
    if (output < 0 || output_process != getpid()) {
        output = REAL(open)(target, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
        output_process = getpid();
    }
    clock_gettime(CLOCK_MONOTONIC, &now);
    head.time = now.tv_sec * 1000000000LL + now.tv_nsec;
    all[0] = (struct iovec){&head, sizeof head};
    for (int at = 0; at < count; at++) {
        all[at + 1] = parts[at];
        head.size += parts[at].iov_len;
    }
    all[count + 1] = (struct iovec){head.magic, sizeof head.magic};
    /* One call for all of it: what appends to a file is not cut in two by others. */
    if (REAL(writev)(output, all, count + 2) < 0)
        abort();
}

/* The absolute path, if it is below the directory. */
static int find(int at, const char *path, char *found) {
    if (!directory || !path)
        return 0;
    if (path[0] == '/') {
        snprintf(found, PATH_MAX, "%s", path);
    } else {
        char link[64], base[PATH_MAX / 2];
        snprintf(link, sizeof link, at == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", at);
        ssize_t size = readlink(link, base, sizeof base - 1);
        if (size < 0)
            return 0;
        base[size] = 0;
        snprintf(found, PATH_MAX, "%s/%.*s", base, PATH_MAX / 2 - 2, path);
    }
    return !strncmp(found, directory, directory_size) &&
           (found[directory_size] == '/' || !found[directory_size]);
}

static int is_known(int descriptor) {
    return descriptor >= 0 && descriptor < DESCRIPTORS_MAX && is_recorded[descriptor];
}

static void put_paths(int kind, int64_t number, char *first, char *second) {
    struct iovec parts[2] = {{first, strlen(first) + 1}, {second, second ? strlen(second) + 1 : 0}};
    put(kind, -1, number, parts, second ? 2 : 1);
}

static void end(long result) {
    int saved = errno;
    put('d', (int)result, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    errno = saved;
}

/* ---- names */

static int opened(int at, const char *path, int flags, mode_t mode) {
    char found[PATH_MAX];
    if (!find(at, path, found))
        return REAL(openat)(at, path, flags, mode);
    pthread_mutex_lock(&lock);
    put_paths('o', flags, found, NULL);
    int descriptor = REAL(openat)(at, path, flags, mode);
    if (descriptor >= 0 && descriptor < DESCRIPTORS_MAX)
        is_recorded[descriptor] = 1;
    end(descriptor);
    return descriptor;
}

#define MODE(flags, last)                              \
    mode_t mode = 0;                                   \
    if ((flags) & (O_CREAT | O_TMPFILE)) {             \
        va_list rest;                                  \
        va_start(rest, last);                          \
        mode = va_arg(rest, mode_t);                   \
        va_end(rest);                                  \
    }

int open(const char *path, int flags, ...) {
    MODE(flags, flags)
    return opened(AT_FDCWD, path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    MODE(flags, flags)
    return opened(AT_FDCWD, path, flags, mode);
}
int openat(int at, const char *path, int flags, ...) {
    MODE(flags, flags)
    return opened(at, path, flags, mode);
}
int openat64(int at, const char *path, int flags, ...) {
    MODE(flags, flags)
    return opened(at, path, flags, mode);
}

int close(int descriptor) {
    if (!is_known(descriptor))
        return REAL(close)(descriptor);
    pthread_mutex_lock(&lock);
    is_recorded[descriptor] = 0;
    put('c', descriptor, 0, NULL, 0);
    int result = REAL(close)(descriptor);
    end(result);
    return result;
}

static int renamed(int at, const char *old, int to, const char *new) {
    char first[PATH_MAX], second[PATH_MAX];
    if (!find(at, old, first) || !find(to, new, second))
        return REAL(renameat)(at, old, to, new);
    pthread_mutex_lock(&lock);
    put_paths('r', 0, first, second);
    int result = REAL(renameat)(at, old, to, new);
    end(result);
    return result;
}
int rename(const char *old, const char *new) { return renamed(AT_FDCWD, old, AT_FDCWD, new); }
int renameat(int at, const char *old, int to, const char *new) { return renamed(at, old, to, new); }

static int unlinked(int at, const char *path, int flags) {
    char found[PATH_MAX];
    if (!find(at, path, found))
        return REAL(unlinkat)(at, path, flags);
    pthread_mutex_lock(&lock);
    put_paths('u', flags, found, NULL);
    int result = REAL(unlinkat)(at, path, flags);
    end(result);
    return result;
}
int unlink(const char *path) { return unlinked(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinked(AT_FDCWD, path, AT_REMOVEDIR); }
int unlinkat(int at, const char *path, int flags) { return unlinked(at, path, flags); }

static int made(int at, const char *path, mode_t mode) {
    char found[PATH_MAX];
    if (!find(at, path, found))
        return REAL(mkdirat)(at, path, mode);
    pthread_mutex_lock(&lock);
    put_paths('m', mode, found, NULL);
    int result = REAL(mkdirat)(at, path, mode);
    end(result);
    return result;
}
int mkdir(const char *path, mode_t mode) { return made(AT_FDCWD, path, mode); }
int mkdirat(int at, const char *path, mode_t mode) { return made(at, path, mode); }

/* ---- bytes */

static ssize_t written(int descriptor, const void *data, size_t size, off_t position) {
    struct iovec part = {(void *)data, size};
    pthread_mutex_lock(&lock);
    off_t at = position;
    if (at < 0 && fcntl(descriptor, F_GETFL) & O_APPEND) {
        struct stat found;
        fstat(descriptor, &found);
        at = found.st_size;
    } else if (at < 0) {
        at = lseek(descriptor, 0, SEEK_CUR);
    }
    put('w', descriptor, at, &part, 1);
    ssize_t result = position < 0 ? REAL(write)(descriptor, data, size)
                                  : REAL(pwrite)(descriptor, data, size, position);
    end(result);
    return result;
}
ssize_t write(int descriptor, const void *data, size_t size) {
    if (!is_known(descriptor))
        return REAL(write)(descriptor, data, size);
    return written(descriptor, data, size, -1);
}
ssize_t pwrite(int descriptor, const void *data, size_t size, off_t position) {
    if (!is_known(descriptor))
        return REAL(pwrite)(descriptor, data, size, position);
    return written(descriptor, data, size, position);
}
ssize_t pwrite64(int descriptor, const void *data, size_t size, off64_t position) {
    return pwrite(descriptor, data, size, position);
}

static int cut(int descriptor, off_t size) {
    if (!is_known(descriptor))
        return REAL(ftruncate)(descriptor, size);
    pthread_mutex_lock(&lock);
    put('t', descriptor, size, NULL, 0);
    int result = REAL(ftruncate)(descriptor, size);
    end(result);
    return result;
}
int ftruncate(int descriptor, off_t size) { return cut(descriptor, size); }
int ftruncate64(int descriptor, off64_t size) { return cut(descriptor, size); }

static int synced(int descriptor) {
    static __thread unsigned chance;
    pthread_mutex_lock(&lock);
    put('s', descriptor, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    if (!chance)
        chance = (unsigned)(uintptr_t)&chance ^ (unsigned)getpid();
    if (sync_us > 0)
        usleep(rand_r(&chance) % sync_us);
    pthread_mutex_lock(&lock);
    put('S', descriptor, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    return 0;
}
int fsync(int descriptor) {
    return is_known(descriptor) ? synced(descriptor) : REAL(fsync)(descriptor);
}
int fdatasync(int descriptor) {
    return is_known(descriptor) ? synced(descriptor) : REAL(fdatasync)(descriptor);
}

/* ---- what nobody does to a data directory: the recording would not tell the truth */

ssize_t pwritev(int descriptor, const struct iovec *parts, int count, off_t position) {
    if (is_known(descriptor))
        abort();
    return REAL(pwritev)(descriptor, parts, count, position);
}
ssize_t writev(int descriptor, const struct iovec *parts, int count) {
    if (is_known(descriptor))
        abort();
    return REAL(writev)(descriptor, parts, count);
}
int truncate(const char *path, off_t size) {
    char found[PATH_MAX];
    if (find(AT_FDCWD, path, found))
        abort();
    return REAL(truncate)(path, size);
}
