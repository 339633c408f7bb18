"""The broker's settings that have an effect, and which settings stand in for others.

How a row is read is told in `settings.py`. Names, types and ranges are those of Kafka 4.3; defaults
differ where one node needs it: `node.id`, `log.dir`, `controller.listener.names`,
`queued.max.request.bytes`, `sasl.enabled.mechanisms`, the types of key stores, the two of
`offsets.topic`, the two socket buffers, which the system sizes better when it is left to do so, and
`socket.listen.backlog.size`.
"""

from __future__ import annotations

from typing import Final

# A setting's stand-ins, the first that is given wins, and what their values are multiplied by.
STAND_INS: Final[dict[str, tuple[tuple[str, int], ...]]] = {
    "log.retention.ms": (("log.retention.minutes", 60_000), ("log.retention.hours", 3_600_000)),
    "log.roll.ms": (("log.roll.hours", 3_600_000),),
    "log.roll.jitter.ms": (("log.roll.jitter.hours", 3_600_000),),
    "log.flush.interval.ms": (("log.flush.scheduler.interval.ms", 1),),
}

BROKER_SETTINGS: Final = """
# This node
node.id      int     1   0..
    The id of this broker; clients key their connections by it, so it must never change.
broker.id    int     -1  .
    The older name of node.id, used when node.id is not given.
broker.rack  string  -   .
    The rack that metadata answers name for this broker.
log.dir      list    -   .
    The data directory, used when log.dirs is not given. Without either, everything is in memory.
log.dirs     list    -   .
    The data directory. One is served: a list of several is refused.

# Listeners and connections
listeners  list  PLAINTEXT://:9092  .
    Where to listen, as NAME://HOST:PORT; an empty host means all addresses, port 0 a free one.
advertised.listeners  list  -  .
    The addresses told to clients, as NAME://HOST:PORT; those of listeners when not given.
listener.security.protocol.map  string  \
    SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT  .
    The security protocol of each listener name, as NAME:PROTOCOL.
controller.listener.names  list  ""  .
    Listeners of KRaft controllers; they are left out here.
socket.request.max.bytes  int  104857600  1..
    The largest request, in bytes; a larger one closes its connection.
socket.listen.backlog.size  int  1024  1..
    How many connections may wait to be accepted.
socket.send.buffer.bytes  int  -1  .
    SO_SNDBUF of each connection, in bytes; -1 leaves it to the system.
socket.receive.buffer.bytes  int  -1  .
    SO_RCVBUF of each connection, in bytes; -1 leaves it to the system.
connections.max.idle.ms  long  600000  .
    A connection without a request in hand for so long is closed.
max.connections  int  2147483647  0..
    How many connections may be open; one more is closed at once.
max.connections.per.ip  int  2147483647  0..
    How many connections one address may hold; one more is closed at once.
max.connections.per.ip.overrides  string  ""  .
    Other limits for single addresses, as ADDRESS:COUNT,ADDRESS:COUNT.
queued.max.request.bytes  long  268435456  .
    Bytes of requests in hand over all connections before reading pauses; -1 for no limit.

# Logging in
sasl.enabled.mechanisms  list  SCRAM-SHA-256,SCRAM-SHA-512  .
    The SASL mechanisms that are offered: of PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512.
sasl.server.max.receive.size  int  524288  .
    The largest request before authentication is done, in bytes.
connections.max.reauth.ms  long  0  .
    A SASL connection must authenticate again after so long; 0 for never.
connection.failed.authentication.delay.ms  int  100  0..
    How long a failed authentication waits for its answer.

# TLS
ssl.keystore.location    string    -                .
    The file with a listener's private key and its certificates, its own first.
ssl.keystore.type        string    PEM              .
    The format of the key store. Only PEM is served.
ssl.key.password         password  -                .
    The password of the private key.
ssl.truststore.location  string    -                .
    The file with the authorities whose certificates clients may show.
ssl.truststore.type      string    PEM              .
    The format of the trust store. Only PEM is served.
ssl.client.auth          string    none             required|requested|none
    Whether clients must show a certificate.
ssl.enabled.protocols    list      TLSv1.2,TLSv1.3  TLSv1.2|TLSv1.3
    The TLS versions that are allowed.

# Topics
auto.create.topics.enable   boolean  true  .
    Whether a client that asks for an unknown topic creates it.
num.partitions              int      1     1..
    Partitions of a topic that is created without a count.
default.replication.factor  int      1     .
    Replicas of a topic that is created without a count. One node holds one.
delete.topic.enable         boolean  true  .
    Whether topics can be deleted.

# What topics inherit
min.insync.replicas                  int     1                    1..
    Replicas that must be in sync for acks=all; above 1 every such write is refused here.
message.max.bytes                    int     1048588              0..
    The largest record batch, in bytes, after compression.
compression.type  string  producer  uncompressed|zstd|lz4|snappy|gzip|producer
    The codec that batches are stored in; `producer` keeps the one they came with.
log.cleanup.policy                   list    delete               compact|delete
    What old segments go through: deletion, compaction, or both.
log.cleaner.delete.retention.ms      long    86400000             0..
    How long a compacted topic keeps the mark of a deleted key.
log.cleaner.max.compaction.lag.ms    long    9223372036854775807  1..
    The longest that a record stays uncompacted.
log.cleaner.min.cleanable.ratio      double  0.5                  0..1
    The uncompacted share of a log that starts its compaction.
log.cleaner.min.compaction.lag.ms    long    0                    0..
    The shortest that a record stays uncompacted.
log.segment.bytes                    int     1073741824           1048576..
    A segment is closed and a new one begun before it would grow beyond this.
log.roll.ms                          long    -                    .
    A segment is closed when its first record is older than this.
log.roll.hours                       int     168                  1..
    As log.roll.ms, in hours, when that is not given.
log.roll.jitter.ms                   long    -                    .
    Up to so much is taken off log.roll.ms at random, so that topics do not roll at once.
log.roll.jitter.hours                int     0                    0..
    As log.roll.jitter.ms, in hours, when that is not given.
log.retention.ms                     long    -                    .
    Segments whose records are all older than this are deleted; -1 for never.
log.retention.minutes                int     -                    .
    As log.retention.ms, in minutes, when that is not given.
log.retention.hours                  int     168                  .
    As log.retention.ms, in hours, when neither is given.
log.retention.bytes                  long    -1                   .
    Old segments are deleted while so many bytes of a partition stay; -1 for no limit.
log.segment.delete.delay.ms          long    60000                0..
    How long the files of a deleted segment stay, renamed, before they are removed.
log.index.interval.bytes             int     4096                 0..
    An index entry is written once for so many bytes of log.
log.index.size.max.bytes             int     10485760             4..
    A segment whose index would grow beyond this is closed.
log.message.timestamp.type           string  CreateTime           CreateTime|LogAppendTime
    Whether records keep the producer's timestamp or get that of the append.
log.message.timestamp.before.max.ms  long    9223372036854775807  0..
    How far in the past a producer's timestamp may lie.
log.message.timestamp.after.max.ms   long    3600000              0..
    How far in the future a producer's timestamp may lie.

# Reading
fetch.max.bytes                            int  57671680  1024..
    The most that one Fetch answers, in bytes, whatever the client asks.
max.incremental.fetch.session.cache.slots  int  1000      0..
    How many fetch sessions (KIP-227) are kept.

# Producers
producer.id.expiration.ms   int  86400000  1..
    A producer that is silent for so long is forgotten.

# Groups
group.initial.rebalance.delay.ms     int    3000        .
    How long an empty group waits for more members before its first assignment.
group.min.session.timeout.ms         int    6000        .
    The shortest session timeout that a member may ask for.
group.max.session.timeout.ms         int    1800000     .
    The longest session timeout that a member may ask for.
group.max.size                       int    2147483647  1..
    The most members of one group.
offset.metadata.max.bytes            int    4096        .
    The longest text that a member may store with an offset.
offsets.retention.minutes            int    10080       1..
    Offsets of a group without members are dropped after so long.
offsets.retention.check.interval.ms  long   600000      1..
    How often dead offsets are looked for.
offsets.topic.num.partitions         int    1           1..
    Partitions of __consumer_offsets; counts when the topic is created.
offsets.topic.replication.factor     short  1           1..
    Replicas of __consumer_offsets. One node holds one.
offsets.topic.segment.bytes          int    104857600   1..
    segment.bytes of __consumer_offsets; counts when the topic is created.

# Groups of the consumer protocol (KIP-848)
group.consumer.assignment.interval.ms      int     1000                      0..
    The shortest time between two assignments of a consumer group.
group.consumer.assignors                   list    uniform,range             uniform|range
    Assignors that the broker offers; the first is for who has no wish.
group.consumer.heartbeat.interval.ms       int     5000                      1..
    How often members of a consumer group report.
group.consumer.max.assignment.interval.ms  int     15000                     0..
    The longest that group.consumer.assignment.interval.ms may be.
group.consumer.max.heartbeat.interval.ms   int     15000                     1..
    The longest that group.consumer.heartbeat.interval.ms may be.
group.consumer.max.session.timeout.ms      int     60000                     1..
    The longest that group.consumer.session.timeout.ms may be.
group.consumer.max.size                    int     2147483647                1..
    The most members of a consumer group.
group.consumer.migration.policy  string  bidirectional  ~DISABLED|DOWNGRADE|UPGRADE|BIDIRECTIONAL
    Which way groups may change between the classic and the new protocol.
group.consumer.min.assignment.interval.ms  int     0                         0..
    The shortest that group.consumer.assignment.interval.ms may be.
group.consumer.min.heartbeat.interval.ms   int     5000                      1..
    The shortest that group.consumer.heartbeat.interval.ms may be.
group.consumer.min.session.timeout.ms      int     45000                     1..
    The shortest that group.consumer.session.timeout.ms may be.
group.consumer.session.timeout.ms          int     45000                     1..
    A silent member of a consumer group is thrown out after so long.

# The log directory
log.flush.offset.checkpoint.interval.ms        int  60000  0..
    How often the point is recorded from which recovery must check.
log.retention.check.interval.ms                long 300000 1..
    How often segments are looked for that retention deletes.
log.journal.bytes                              long  67108864  0..
    Size of the journal of acks=all on the disk, in bytes, at least 65536; 0: none, each file alone.
log.journal.stretch.max.bytes                  int  131072  0..
    A partition with more bytes than this to make durable goes past the journal.
num.recovery.threads.per.data.dir              int  2      1..
    Threads that open partitions at start.

# Compaction
log.cleaner.enable                   boolean  true                    .
    Whether compacted topics are compacted.
log.cleaner.threads                  int      1                       0..
    Logs that are compacted at the same time.
log.cleaner.backoff.ms               long     15000                   0..
    How long after the end of one look at all compacted logs the next one begins.
log.cleaner.dedupe.buffer.size       long     134217728               .
    Bytes for the table of keys while compacting, over all threads.
log.cleaner.io.buffer.load.factor    double   0.9                     .
    How full the table of keys may get.
log.cleaner.io.max.bytes.per.second  double   1.7976931348623157E308  .
    Bytes a second that compaction may read and write.

# asyncbroker's own limits
asyncbroker.append.inline.max.bytes       int      262144     0..
    Batches up to this size are appended on the event loop, larger ones in a worker thread.
asyncbroker.batch.decompressed.max.bytes  int      134217728  1..
    The most that one compressed batch may expand to, where the broker must look inside.
asyncbroker.check.compressed.max.bytes    int      2147483647 0..
    Compressed batches up to this size are taken only if their records are what the header says.
asyncbroker.connection.output.max.bytes   int      262144     1..
    Unsent bytes of one connection at which its requests are no longer read.
asyncbroker.connection.frame.timeout.ms   int      60000      1..
    A request that has begun to arrive must be whole after so long.
asyncbroker.max.partitions                int      100000     1..
    The most partitions over all topics; creating more is refused.
asyncbroker.max.open.files                int      0          0..
    Segment files that are kept open; the least used are closed. 0: half of what the system allows.
asyncbroker.max.waiting.fetches           int      100000     1..
    Fetches that may wait for data; more are answered at once.
asyncbroker.metrics.topics.max            int      100        0..
    Topics with metrics of their own (--metrics); the totals have all of them.
asyncbroker.replication.factor.cap        boolean  false      .
    Create topics with one replica, whatever number is asked for, and say so.
asyncbroker.reserve.bytes                 long     2097152    0..
    Room kept back for deletions, metadata and group commits on a full disk; 0 for none.
asyncbroker.scrub.bytes.per.second        long     10485760   0..
    How fast stored data is read to find damage before a reader does; 0 for not at all.
asyncbroker.scrub.interval.ms             long     604800000  0..
    How long after all data was read so the next such pass begins.
asyncbroker.stop.timeout.ms               int      30000      0..
    How long a stop waits for what is in hand.
asyncbroker.writeback.bytes               int      8388608    1..
    Appended bytes of a partition after which the system is asked to write them to disk.
asyncbroker.worker.threads                int      12         1..
    Threads for work on files that would block the event loop.
asyncbroker.reader.threads                int      8          1..
    Threads that read for consumers what is not in memory.
"""
