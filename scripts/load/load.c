/* A load generator that costs little itself, so that what is measured is the broker.
 *
 * It opens N connections, keeps D copies of one prebuilt request in flight on each (Produce v7 with one
 * uncompressed batch, Fetch v11 that walks on through a partition and wraps at its end, or OffsetCommit
 * v2 with the offset of one partition), and prints one JSON object: requests, bytes, latency percentiles,
 * and the CPU seconds that the named processes spent meanwhile. Connection i talks to partition i mod P;
 * it commits for a group of its own, without members.
 *
 *   load produce HOST PORT TOPIC PARTITIONS CONNECTIONS DEPTH SECONDS PIDS ACKS RECORDS RECORD_BYTES [RATE]
 *   load fetch   HOST PORT TOPIC PARTITIONS CONNECTIONS DEPTH SECONDS PIDS MAX_BYTES
 *   load commit  HOST PORT TOPIC PARTITIONS CONNECTIONS DEPTH SECONDS PIDS
 *
 * PIDS is a comma-separated list of the broker's processes ("0": none, no CPU figures). With RATE so
 * many requests a second are due, in all, by the clock and not by what was answered (DEPTH is not looked
 * at), and a latency counts from when its request was due, also if that could not be sent in time.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { DEPTH_MAX = 64, EVENTS_MAX = 256, LATENCIES_MAX = 40000000 };

/* ---- growing buffers and Kafka's primitive types ---- */

typedef struct {
    uint8_t *bytes;
    size_t size, capacity;
} Buffer;

static void put(Buffer *b, const void *source, size_t size) {
    if (b->size + size > b->capacity) {
        b->capacity = (b->size + size) * 2;
        b->bytes = realloc(b->bytes, b->capacity);
        if (!b->bytes) { perror("realloc"); exit(1); }
    }
    memcpy(b->bytes + b->size, source, size);
    b->size += size;
}
static void put8(Buffer *b, int8_t v) { put(b, &v, 1); }
static void put16(Buffer *b, int16_t v) { uint16_t x = htobe16((uint16_t)v); put(b, &x, 2); }
static void put32(Buffer *b, int32_t v) { uint32_t x = htobe32((uint32_t)v); put(b, &x, 4); }
static void put64(Buffer *b, int64_t v) { uint64_t x = htobe64((uint64_t)v); put(b, &x, 8); }
static void put_string(Buffer *b, const char *s) { put16(b, (int16_t)strlen(s)); put(b, s, strlen(s)); }
static void put_varint(Buffer *b, int64_t v) {
    uint64_t zigzag = ((uint64_t)v << 1) ^ (uint64_t)(v >> 63);
    for (; zigzag > 127; zigzag >>= 7) put8(b, (int8_t)((zigzag & 127) | 128));
    put8(b, (int8_t)zigzag);
}
static int16_t get16(const uint8_t *p) { uint16_t x; memcpy(&x, p, 2); return (int16_t)be16toh(x); }
static int32_t get32(const uint8_t *p) { uint32_t x; memcpy(&x, p, 4); return (int32_t)be32toh(x); }
static int64_t get64(const uint8_t *p) { uint64_t x; memcpy(&x, p, 8); return (int64_t)be64toh(x); }

static uint32_t crc32c(const uint8_t *p, size_t size) {
    uint32_t crc = ~0u;
    while (size--) {
        crc ^= *p++;
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >> 1) ^ 0x82f63b78u : crc >> 1;
    }
    return ~crc;
}

/* ---- what is measured ---- */

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* User and system seconds of the processes, from /proc (see proc(5): fields 14 and 15). */
static double cpu_seconds(const char *pids) {
    double total = 0;
    char list[256], path[64], line[2048];
    snprintf(list, sizeof list, "%s", pids);
    for (char *pid = strtok(list, ","); pid; pid = strtok(NULL, ",")) {
        snprintf(path, sizeof path, "/proc/%s/stat", pid);
        FILE *file = fopen(path, "r");
        if (!file) continue;
        unsigned long user = 0, kernel = 0;
        if (fgets(line, sizeof line, file)) {
            char *after_name = strrchr(line, ')');
            if (after_name) sscanf(after_name + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &kernel);
        }
        fclose(file);
        total += (double)(user + kernel) / (double)sysconf(_SC_CLK_TCK);
    }
    return total;
}

static float *latencies;
static size_t latency_count;
static int ascending(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}
static double percentile(double fraction) {
    if (!latency_count) return 0;
    size_t index = (size_t)((double)latency_count * fraction);
    return latencies[index < latency_count ? index : latency_count - 1] * 1e3;
}

/* ---- the requests ---- */

/* One batch of `count` records of `size` random letters, without keys, headers or compression. */
static Buffer make_batch(int count, int size) {
    Buffer records = {0}, checked = {0}, batch = {0};
    srand(7);
    for (int i = 0; i < count; i++) {
        Buffer r = {0};
        put8(&r, 0);
        put_varint(&r, 0);
        put_varint(&r, i);
        put_varint(&r, -1);
        put_varint(&r, size);
        for (int k = 0; k < size; k++) put8(&r, (int8_t)('a' + rand() % 26));
        put_varint(&r, 0);
        put_varint(&records, (int64_t)r.size);
        put(&records, r.bytes, r.size);
        free(r.bytes);
    }
    int64_t ms = (int64_t)time(NULL) * 1000;
    put16(&checked, 0);
    put32(&checked, count - 1);
    put64(&checked, ms);
    put64(&checked, ms);
    put64(&checked, -1);
    put16(&checked, -1);
    put32(&checked, -1);
    put32(&checked, count);
    put(&checked, records.bytes, records.size);
    put64(&batch, 0);
    put32(&batch, (int32_t)(4 + 1 + 4 + checked.size));
    put32(&batch, -1);
    put8(&batch, 2);
    put32(&batch, (int32_t)crc32c(checked.bytes, checked.size));
    put(&batch, checked.bytes, checked.size);
    return batch;
}

static Buffer make_produce(const char *topic, int partition, int acks, const Buffer *batch) {
    Buffer b = {0};
    put32(&b, 0);
    put16(&b, 0);
    put16(&b, 7);
    put32(&b, 0);
    put_string(&b, "load");
    put16(&b, -1);
    put16(&b, (int16_t)acks);
    put32(&b, 30000);
    put32(&b, 1);
    put_string(&b, topic);
    put32(&b, 1);
    put32(&b, partition);
    put32(&b, (int32_t)batch->size);
    put(&b, batch->bytes, batch->size);
    return b;
}

static size_t fetch_offset_at; /* where the fetch offset stands in a Fetch request */

static Buffer make_fetch(const char *topic, int partition, int max_bytes) {
    Buffer b = {0};
    put32(&b, 0);
    put16(&b, 1);
    put16(&b, 11);
    put32(&b, 0);
    put_string(&b, "load");
    put32(&b, -1);        /* replica id */
    put32(&b, 100);       /* max wait */
    put32(&b, 1);         /* min bytes */
    put32(&b, max_bytes);
    put8(&b, 0);          /* isolation */
    put32(&b, 0);         /* session */
    put32(&b, -1);        /* session epoch */
    put32(&b, 1);
    put_string(&b, topic);
    put32(&b, 1);
    put32(&b, partition);
    put32(&b, -1);        /* current leader epoch */
    fetch_offset_at = b.size;
    put64(&b, 0);
    put64(&b, -1);
    put32(&b, max_bytes);
    put32(&b, 0);         /* forgotten topics */
    put_string(&b, "");
    return b;
}

static Buffer make_commit(const char *topic, int partition, int group) {
    Buffer b = {0};
    char name[32];
    snprintf(name, sizeof name, "load-%d", group);
    put32(&b, 0);
    put16(&b, 8);
    put16(&b, 2);
    put32(&b, 0);
    put_string(&b, "load");
    put_string(&b, name);
    put32(&b, -1);        /* generation */
    put_string(&b, "");   /* member id */
    put64(&b, -1);        /* retention time */
    put32(&b, 1);
    put_string(&b, topic);
    put32(&b, 1);
    put32(&b, partition);
    put64(&b, 1);
    put_string(&b, "");   /* metadata */
    return b;
}

/* ---- the connections ---- */

typedef struct {
    int fd;
    Buffer request, input;
    double sent_at[DEPTH_MAX];
    unsigned sent, answered;
    int64_t offset;
} Connection;

static enum { PRODUCE, FETCH, COMMIT } kind;
static const char *topic;
static long requests, errors;
static double bytes_moved;
static int32_t correlation;

static void dial(Connection *c, const char *host, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int on = 1;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    inet_pton(AF_INET, host, &address.sin_addr);
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address)) { perror("connect"); exit(1); }
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static void send_request(Connection *c, double due) {
    uint32_t id = htobe32((uint32_t)++correlation);
    memcpy(c->request.bytes + 8, &id, 4);
    if (kind == FETCH) {
        uint64_t offset = htobe64((uint64_t)c->offset);
        memcpy(c->request.bytes + fetch_offset_at, &offset, 8);
    }
    for (size_t done = 0; done < c->request.size;) {
        ssize_t n = send(c->fd, c->request.bytes + done, c->request.size - done, MSG_NOSIGNAL);
        if (n <= 0) { perror("send"); exit(1); }
        done += (size_t)n;
    }
    c->sent_at[c->sent++ % DEPTH_MAX] = due;
}

static void note_error(const char *what, int code) {
    if (errors++ < 4) fprintf(stderr, "%s error %d\n", what, code);
}

/* The response starts after its size; one topic and one partition are known to be in it. */
static void read_produce_response(const uint8_t *p, size_t batch_size) {
    int16_t code = get16(p + 4 + 4 + 2 + strlen(topic) + 4 + 4);
    if (code) note_error("produce", code);
    bytes_moved += (double)batch_size;
}

static void read_commit_response(const uint8_t *p) {
    int16_t code = get16(p + 4 + 4 + 2 + strlen(topic) + 4 + 4);
    if (code) note_error("commit", code);
}

static void read_fetch_response(Connection *c, const uint8_t *p) {
    const uint8_t *at = p + 4 + 4 + 2 + 4 + 4 + 2 + strlen(topic) + 4 + 4;
    int16_t code = get16(at);
    if (code) note_error("fetch", code);
    at += 2 + 8 + 8 + 8;
    int32_t aborted = get32(at);
    at += 4 + (aborted > 0 ? aborted * 16 : 0) + 4;
    int32_t size = get32(at);
    at += 4;
    if (size <= 0) { c->offset = 0; return; }
    bytes_moved += size;
    for (const uint8_t *end = at + size; at + 61 <= end; at += 12 + get32(at + 8))
        c->offset = get64(at) + get32(at + 23) + 1;
}

static void receive(Connection *c, size_t batch_size, int stopping) {
    if (c->input.size + (1 << 18) > c->input.capacity) {
        c->input.capacity = c->input.capacity ? c->input.capacity * 2 : 1 << 20;
        c->input.bytes = realloc(c->input.bytes, c->input.capacity);
    }
    ssize_t n = recv(c->fd, c->input.bytes + c->input.size, c->input.capacity - c->input.size, 0);
    if (n <= 0) { fprintf(stderr, "the broker closed the connection\n"); exit(1); }
    c->input.size += (size_t)n;
    size_t done = 0;
    while (c->input.size - done >= 4) {
        size_t size = (size_t)get32(c->input.bytes + done);
        if (c->input.size - done < 4 + size) break;
        if (latency_count < LATENCIES_MAX)
            latencies[latency_count++] = (float)(now() - c->sent_at[c->answered % DEPTH_MAX]);
        c->answered++;
        requests++;
        if (kind == PRODUCE) read_produce_response(c->input.bytes + done + 4, batch_size);
        else if (kind == COMMIT) read_commit_response(c->input.bytes + done + 4);
        else read_fetch_response(c, c->input.bytes + done + 4);
        done += 4 + size;
        if (!stopping) send_request(c, now());
    }
    memmove(c->input.bytes, c->input.bytes + done, c->input.size - done);
    c->input.size -= done;
}

/* ---- requests that are due by the clock ---- */

static double rate, started;
static long due_count; /* how many were due and have been sent */

static void arm(int timer) {
    double next = started + (double)due_count / rate;
    struct itimerspec when = {0};
    when.it_value.tv_sec = (time_t)next;
    when.it_value.tv_nsec = (long)((next - (double)when.it_value.tv_sec) * 1e9);
    if (timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL)) { perror("timerfd_settime"); exit(1); }
}

/* Sends what is due, by one connection after the other. One that has all that it can have in flight holds
 * up the others, and what they send late. */
static void send_due(Connection *connections, int count, int timer) {
    uint64_t expired;
    if (read(timer, &expired, sizeof expired) < 0 && errno != EAGAIN) { perror("read"); exit(1); }
    for (double due; (due = started + (double)due_count / rate) <= now(); due_count++) {
        Connection *c = connections + due_count % count;
        if (c->sent - c->answered == DEPTH_MAX) break;
        send_request(c, due);
    }
    arm(timer);
}

int main(int argc, char **argv) {
    kind = argc > 1 && !strcmp(argv[1], "produce") ? PRODUCE : argc > 1 && !strcmp(argv[1], "commit") ? COMMIT : FETCH;
    if (argc < (kind == PRODUCE ? 13 : kind == FETCH ? 11 : 10)) { fprintf(stderr, "usage: see the head of load.c\n"); return 2; }
    topic = argv[4];
    rate = kind == PRODUCE && argc > 13 ? atof(argv[13]) : 0;
    int port = atoi(argv[3]), partitions = atoi(argv[5]), count = atoi(argv[6]), depth = atoi(argv[7]);
    double seconds = atof(argv[8]);
    const char *pids = argv[9];
    if (depth < 1 || depth > DEPTH_MAX || partitions < 1 || count < 1) { fprintf(stderr, "bad counts\n"); return 2; }
    Buffer batch = {0};
    if (kind == PRODUCE) batch = make_batch(atoi(argv[11]), atoi(argv[12]));
    latencies = malloc(sizeof(float) * (size_t)LATENCIES_MAX);
    Connection *connections = calloc((size_t)count, sizeof *connections);
    int poll_fd = epoll_create1(0);
    for (int i = 0; i < count; i++) {
        Connection *c = connections + i;
        dial(c, argv[2], port);
        c->request = kind == PRODUCE ? make_produce(topic, i % partitions, atoi(argv[10]), &batch)
                     : kind == FETCH ? make_fetch(topic, i % partitions, atoi(argv[10]))
                                     : make_commit(topic, i % partitions, i);
        uint32_t size = htobe32((uint32_t)c->request.size - 4);
        memcpy(c->request.bytes, &size, 4);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(poll_fd, EPOLL_CTL_ADD, c->fd, &event);
    }
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    double cpu_before = cpu_seconds(pids), start = started = now();
    for (int i = 0; i < count && rate == 0; i++)
        for (int d = 0; d < depth; d++) send_request(connections + i, now());
    if (rate > 0) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
        epoll_ctl(poll_fd, EPOLL_CTL_ADD, timer, &event);
        send_due(connections, count, timer);
    }
    struct epoll_event events[EVENTS_MAX];
    for (int stopping = 0; !stopping || requests < correlation;) {
        int ready = epoll_wait(poll_fd, events, EVENTS_MAX, 30000);
        if (ready <= 0) { fprintf(stderr, "no answer for 30 s\n"); return 1; }
        stopping = now() - start > seconds;
        for (int i = 0; i < ready; i++) {
            if (events[i].data.ptr) receive(events[i].data.ptr, batch.size, stopping || rate > 0);
            else if (!stopping) send_due(connections, count, timer);
            else epoll_ctl(poll_fd, EPOLL_CTL_DEL, timer, NULL);
        }
    }
    double elapsed = now() - start, cpu = cpu_seconds(pids) - cpu_before;
    qsort(latencies, latency_count, sizeof *latencies, ascending);
    printf("{\"requests_per_s\": %.1f, \"mb_per_s\": %.2f, \"p50_ms\": %.3f, \"p99_ms\": %.3f, \"max_ms\": %.2f, "
           "\"cpu_s\": %.3f, \"elapsed_s\": %.3f, \"cpu_s_per_gb\": %.3f, \"cpu_us_per_request\": %.2f, \"errors\": %ld}\n",
           (double)requests / elapsed, bytes_moved / elapsed / 1e6, percentile(.5), percentile(.99), percentile(1),
           cpu, elapsed, bytes_moved > 0 ? cpu / (bytes_moved / 1e9) : 0, cpu / (double)requests * 1e6, errors);
    return errors > 0;
}
