"""The settings of a topic, and the broker settings from which a topic inherits them.

How a row is read is told in `settings.py`. Names, types, ranges and defaults are those of Kafka
4.3. All are accepted and kept, also those without an effect here, since tools set and compare them.
"""

from __future__ import annotations

from typing import Final

# The two lists of throttled replicas and three of tiered storage are a topic's own.
INHERITED_FROM: Final[dict[str, str]] = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.type": "compression.type",
    "compression.zstd.level": "compression.zstd.level",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}

TOPIC_SETTINGS: Final = """
cleanup.policy                   list    delete               compact|delete
    What old segments go through: deletion, compaction, or both.
compression.type  string  producer  uncompressed|zstd|lz4|snappy|gzip|producer
    The codec that batches are stored in; `producer` keeps the one they came with.
delete.retention.ms              long    86400000             0..
    How long a compacted topic keeps the mark of a deleted key.
file.delete.delay.ms             long    60000                0..
    How long the files of a deleted segment stay, renamed, before they are removed.
index.interval.bytes             int     4096                 0..
    An index entry is written once for so many bytes of log.
max.compaction.lag.ms            long    9223372036854775807  1..
    The longest that a record stays uncompacted.
max.message.bytes                int     1048588              0..
    The largest record batch, in bytes, after compression.
message.timestamp.after.max.ms   long    3600000              0..
    How far in the future a producer's timestamp may lie.
message.timestamp.before.max.ms  long    9223372036854775807  0..
    How far in the past a producer's timestamp may lie.
message.timestamp.type           string  CreateTime           CreateTime|LogAppendTime
    Whether records keep the producer's timestamp or get that of the append.
min.cleanable.dirty.ratio        double  0.5                  0..1
    The uncompacted share of the log that starts its compaction.
min.compaction.lag.ms            long    0                    0..
    The shortest that a record stays uncompacted.
min.insync.replicas              int     1                    1..
    Replicas that must be in sync for acks=all; above 1 every such write is refused here.
retention.bytes                  long    -1                   .
    Old segments are deleted while so many bytes of the partition stay; -1 for no limit.
retention.ms                     long    604800000            -1..
    Segments whose records are all older than this are deleted; -1 for never.
segment.bytes                    int     1073741824           1048576..
    A segment is closed and a new one begun before it would grow beyond this.
segment.index.bytes              int     10485760             4..
    A segment whose index would grow beyond this is closed.
segment.jitter.ms                long    0                    0..
    Up to so much is taken off segment.ms at random, so that topics do not roll at once.
segment.ms                       long    604800000            1..
    A segment is closed when its first record is older than this.
"""

# Accepted, kept and shown, without an effect on the topic.
UNUSED_TOPIC_SETTINGS: Final = """
compression.gzip.level                   int      -1                   -1|1..9
    The level when a batch is compressed with gzip; -1 is the codec's own.
compression.lz4.level                    int      9                    1..17
    The level when a batch is compressed with lz4.
compression.zstd.level                   int      3                    -131072..22
    The level when a batch is compressed with zstd.
flush.messages                           long     9223372036854775807  1..
    Records after which the partition is flushed.
flush.ms                                 long     9223372036854775807  0..
    Time after which the partition is flushed.
follower.replication.throttled.replicas  list     ""                   throttled
    Replicas whose copying is throttled at the follower.
leader.replication.throttled.replicas    list     ""                   throttled
    Replicas whose copying is throttled at the leader.
local.retention.bytes                    long     -2                   -2..
    Bytes of a tiered partition that stay on this disk.
local.retention.ms                       long     -2                   -2..
    How long records of a tiered partition stay on this disk.
preallocate                              boolean  false                .
    Whether a segment's file is given its full size at once.
remote.log.copy.disable                  boolean  false                .
    Whether a tiered topic stops copying segments away.
remote.log.delete.on.disable             boolean  false                .
    Whether remote segments go when tiered storage is turned off.
remote.storage.enable                    boolean  false                .
    Whether the topic is tiered.
unclean.leader.election.enable           boolean  false                .
    Whether a replica that is behind may lead when no other can.
"""
