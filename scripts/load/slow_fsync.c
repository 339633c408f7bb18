/* A disk that takes longer: preloaded into a process, adds a time to each of its fsyncs.
 *
 *   cc -O2 -shared -fPIC -o slow_fsync.so slow_fsync.c -ldl
 *   FSYNC_EXTRA_MS=2 LD_PRELOAD=./slow_fsync.so COMMAND
 *
 * Whoever wants to know how a broker behaves on a slower disk than there is here measures all of them
 * this way, and the disk too (scripts/bench --fsync-ms).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <time.h>

static void wait_longer(void)
{
    const char *text = getenv("FSYNC_EXTRA_MS");
    double ms = text == NULL ? 0 : atof(text);
    struct timespec left = {(time_t)(ms / 1e3), (long)(ms * 1e6) % 1000000000L};
    int error = errno;
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        continue;
    errno = error;
}

static int slowly(const char *name, int fd)
{
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    int result = next(fd);
    wait_longer();
    return result;
}

int fsync(int fd)
{
    return slowly("fsync", fd);
}

int fdatasync(int fd)
{
    return slowly("fdatasync", fd);
}
