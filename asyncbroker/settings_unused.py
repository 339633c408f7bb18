"""Kafka's broker settings without an effect here, so that a real `server.properties` loads.

How a row is read is told in `settings.py`. Names, types, ranges and defaults are those of Kafka
4.3. The names that have to do with who a client is are in `settings_security.py`.
"""

from __future__ import annotations

from typing import Final

# Of Kafka 3 and earlier, of the authorizer, and internal ones: taken without a look at the value.
RETIRED_SETTINGS: Final = """
advertised.host.name advertised.port allow.everyone.if.no.acl.found auto.include.jmx.reporter
broker.id.generation.enable control.plane.listener.name
controller.performance.always.log.threshold.ms controller.performance.sample.period.ms
delegation.token.master.key eligible.leader.replicas.enable
group.consumer.regex.refresh.interval.ms group.coordinator.new.enable
group.share.initialize.retry.interval.ms group.share.persister.class.name host.name
inter.broker.protocol.version internal.metadata.delete.delay.millis
internal.metadata.log.segment.bytes internal.metadata.max.batch.size.in.bytes
log.initial.task.delay.ms log.message.downconversion.enable log.message.format.version
log.message.timestamp.difference.max.ms metadata.max.snapshot.interval.ms
offsets.commit.required.acks password.encoder.cipher.algorithm password.encoder.iterations
password.encoder.key.length password.encoder.keyfactory.algorithm password.encoder.old.secret
password.encoder.secret port producer.id.expiration.check.interval.ms quota.consumer.default
quota.producer.default remote.log.index.file.cache.ttl.ms
remote.log.manager.task.retry.backoff.max.ms remote.log.manager.task.retry.backoff.ms
remote.log.manager.task.retry.jitter reserved.broker.max.id server.max.startup.time.ms
share.coordinator.cold.partition.snapshot.interval.ms
share.coordinator.state.topic.prune.interval.ms super.users unclean.leader.election.interval.ms
unstable.api.versions.enable unstable.feature.versions.enable zookeeper.clientCnxnSocket
zookeeper.connect zookeeper.connection.timeout.ms zookeeper.max.in.flight.requests
zookeeper.metadata.migration.enable zookeeper.metadata.migration.min.batch.size
zookeeper.session.timeout.ms zookeeper.set.acl zookeeper.ssl.cipher.suites
zookeeper.ssl.client.enable zookeeper.ssl.crl.enable zookeeper.ssl.enabled.protocols
zookeeper.ssl.endpoint.identification.algorithm zookeeper.ssl.keystore.location
zookeeper.ssl.keystore.password zookeeper.ssl.keystore.type zookeeper.ssl.ocsp.enable
zookeeper.ssl.protocol zookeeper.ssl.truststore.location zookeeper.ssl.truststore.password
zookeeper.ssl.truststore.type zookeeper.sync.time.ms
"""

PLUGIN_PREFIXES: Final = (
    "listener.name.",
    "config.providers.",
    "remote.log.metadata.",
    "rlmm.config.",
    "rsm.config.",
    "metrics.jmx.",
    "authorizer.",
)

# What Kafka takes while a broker runs. Of TLS and of users nothing is here: who changes those
# means to close or to open a door.
DYNAMIC_UNUSED_SETTINGS: Final = """
background.threads config.providers follower.fetch.last.tiered.offset.enable
group.coordinator.cached.buffer.max.bytes group.share.assignment.interval.ms
group.streams.assignment.interval.ms log.cleaner.io.buffer.size max.connection.creation.rate
metric.reporters num.io.threads num.network.threads num.replica.fetchers remote.fetch.max.wait.ms
remote.list.offsets.request.timeout.ms remote.log.index.file.cache.total.size.bytes
remote.log.manager.copier.thread.pool.size remote.log.manager.copy.max.bytes.per.second
remote.log.manager.expiration.thread.pool.size remote.log.manager.fetch.max.bytes.per.second
remote.log.manager.follower.thread.pool.size remote.log.reader.threads
share.coordinator.cached.buffer.max.bytes transaction.partition.verification.enable
"""

# The same of those that are set for a broker by its id, never for all of them.
DYNAMIC_UNUSED_SETTINGS_OF_ONE_BROKER: Final = """
cordoned.log.dirs sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
sasl.kerberos.principal.to.local.rules sasl.kerberos.service.name
sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds
sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
sasl.mechanism.inter.broker.protocol
"""

UNUSED_SETTINGS: Final = """
# Nodes, threads and sockets
process.roles                           list     broker      broker|controller
    Whether a node is broker, controller or both.
background.threads                      int      10          1..
    Threads for background work.
num.io.threads                          int      8           1..
    Threads that serve requests.
num.network.threads                     int      3           1..
    Threads that read and write sockets.
num.replica.alter.log.dirs.threads      int      -           .
    Threads that move replicas between disks.
num.replica.fetchers                    int      1           1..
    Threads that fetch from each other broker.
queued.max.requests                     int      500         1..
    Requests that may wait for a thread before reading stops.
request.timeout.ms                      int      30000       .
    How long this node waits for answers of other nodes.
socket.connection.setup.timeout.ms      long     10000       .
    How long a connection to another node may take to open.
socket.connection.setup.timeout.max.ms  long     30000       .
    The longest wait for a connection after many failures.
early.start.listeners                   list     -           .
    Listeners that open before an authorizer is ready.
inter.broker.listener.name              string   -           .
    The listener that brokers use among themselves.
security.inter.broker.protocol          string   PLAINTEXT   PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL
    The security protocol that brokers use among themselves.
initial.broker.registration.timeout.ms  int      60000       .
    How long a broker tries to register with a controller.
broker.heartbeat.interval.ms            int      2000        .
    How often a broker reports to its controller.
broker.session.timeout.ms               int      9000        .
    A broker that has not reported for so long is fenced.
controlled.shutdown.enable              boolean  true        .
    Whether leadership moves away before a stop.
max.connection.creation.rate            int      2147483647  0..
    New connections a second.
config.providers                        list     ""          .
    Classes that look up values of settings elsewhere.
cordoned.log.dirs                       list     ""          .
    Data directories that get no new partitions.
log.dir.failure.timeout.ms              long     30000       1..
    A node with a failed directory stops when it cannot report it for so long.

# Controllers (KRaft)
controller.quorum.voters                         list     ""          .
    The controllers, as ID@HOST:PORT.
controller.quorum.bootstrap.servers              list     ""          .
    Where to ask for the controllers.
controller.quorum.auto.join.enable               boolean  false       .
    Whether a new controller joins the quorum by itself.
controller.quorum.append.linger.ms               int      25          0..
    How long writes are gathered before a flush.
controller.quorum.election.backoff.max.ms        int      1000        0..
    The longest wait before another election.
controller.quorum.election.timeout.ms            int      1000        0..
    How long to do without a leader before an election.
controller.quorum.fetch.max.bytes                int      1048576     1..
    Bytes of one fetch among controllers.
controller.quorum.fetch.snapshot.max.bytes       int      1048576     1..
    Bytes of one part of a snapshot among controllers.
controller.quorum.fetch.timeout.ms               int      2000        0..
    How long to do without a fetch before an election.
controller.quorum.request.timeout.ms             int      2000        0..
    How long a controller waits for an answer.
controller.quorum.retry.backoff.ms               int      20          0..
    How long a controller waits before it asks again.
controller.quota.window.num                      int      11          1..
    Samples kept for quotas on changes of topics.
controller.quota.window.size.seconds             int      1           1..
    Seconds of one sample for quotas on changes of topics.
controller.socket.timeout.ms                     int      30000       .
    How long a broker waits for its controller.
metadata.log.dir                                 string   -           .
    Where the log of the cluster's metadata is kept.
metadata.log.max.record.bytes.between.snapshots  long     20971520    1..
    Bytes of metadata after which a snapshot is taken.
metadata.log.max.snapshot.interval.ms            long     3600000     0..
    Time after which a snapshot of the metadata is taken.
metadata.log.segment.bytes                       int      1073741824  8388608..
    Segment size of the metadata log.
metadata.log.segment.ms                          long     604800000   .
    Segment age of the metadata log.
metadata.max.idle.interval.ms                    int      500         0..
    How often an idle controller writes a record.
metadata.max.retention.bytes                     long     104857600   .
    Size to which the metadata log is cut.
metadata.max.retention.ms                        long     604800000   .
    Age to which the metadata log is cut.

# Replication
auto.leader.rebalance.enable                          boolean  true      .
    Whether leadership returns to preferred replicas by itself.
leader.imbalance.check.interval.seconds               long     300       1..
    How often that is looked at.
unclean.leader.election.enable                        boolean  false     .
    Whether a replica that is behind may lead when no other can.
replica.fetch.backoff.ms                              int      1000      0..
    A follower's wait after a failed fetch.
replica.fetch.max.bytes                               int      1048576   0..
    Bytes that a follower fetches of one partition.
replica.fetch.min.bytes                               int      1         .
    Bytes that a follower waits for.
replica.fetch.response.max.bytes                      int      10485760  0..
    Bytes that a follower fetches at once.
replica.fetch.wait.max.ms                             int      500       .
    The longest that a follower's fetch waits.
replica.high.watermark.checkpoint.interval.ms         long     5000      .
    How often high watermarks are recorded.
replica.lag.time.max.ms                               long     30000     .
    A follower that is behind for so long leaves the in-sync replicas.
replica.selector.class                                string   -         .
    The class that sends a consumer to a near replica.
replica.socket.receive.buffer.bytes                   int      65536     .
    SO_RCVBUF of connections between brokers.
replica.socket.timeout.ms                             int      30000     .
    How long a follower waits for an answer.
alter.log.dirs.replication.quota.window.num           int      11        1..
    Samples kept for quotas on moves between disks.
alter.log.dirs.replication.quota.window.size.seconds  int      1         1..
    Seconds of such a sample.
replication.quota.window.num                          int      11        1..
    Samples kept for quotas on replication.
replication.quota.window.size.seconds                 int      1         1..
    Seconds of such a sample.

# The log
compression.gzip.level  int  -1  -1|1..9
    The level when a batch is compressed with gzip; -1 is the codec's own.
compression.lz4.level  int  9  1..17
    The level when a batch is compressed with lz4.
compression.zstd.level  int  3  -131072..22
    The level when a batch is compressed with zstd.
log.cleaner.io.buffer.size           int      524288                  0..
    Bytes for reading and writing while compacting.
log.flush.interval.messages          long     9223372036854775807     1..
    Records after which a partition is flushed.
log.flush.interval.ms                long     -                       .
    Time after which a partition is flushed.
log.flush.scheduler.interval.ms      long     9223372036854775807     .
    How often it is looked at what must be flushed.
log.flush.start.offset.checkpoint.interval.ms  int  60000  0..
    How often the first offset of each partition is recorded.
log.local.retention.bytes            long     -2                      -2..
    Bytes of a tiered partition that stay on this disk.
log.local.retention.ms               long     -2                      -2..
    How long records of a tiered partition stay on this disk.
log.preallocate                      boolean  false                   .
    Whether a segment's file is given its full size at once.

# Queues of waiting requests
delete.records.purgatory.purge.interval.requests  int  1     .
    Requests after which done DeleteRecords are dropped.
fetch.purgatory.purge.interval.requests           int  1000  .
    Requests after which done Fetches are dropped.
producer.purgatory.purge.interval.requests        int  1000  .
    Requests after which done Produces are dropped.
share.fetch.purgatory.purge.interval.requests     int  1000  .
    Requests after which done ShareFetches are dropped.
max.request.partition.size.limit                  int  2000  1..
    Partitions that one DescribeTopicPartitions answers.

# Policies, quotas and metrics
alter.config.policy.class.name       class   -                                            .
    The class that allows or forbids changes of settings.
create.topic.policy.class.name       class   -                                            .
    The class that allows or forbids new topics.
client.quota.callback.class          class   -                                            .
    The class that computes quotas.
quota.window.num                     int     11                                           1..
    Samples kept for client quotas.
quota.window.size.seconds            int     1                                            1..
    Seconds of such a sample.
kafka.metrics.polling.interval.secs  int     10                                           1..
    How often Yammer metrics reporters are asked.
kafka.metrics.reporters              list    ""                                           .
    Classes that report Yammer metrics.
metric.reporters                     list    org.apache.kafka.common.metrics.JmxReporter  .
    Classes that report metrics.
metrics.num.samples                  int     2                                            1..
    Samples kept for metrics.
metrics.recording.level              string  INFO                                         .
    Which metrics are kept.
metrics.sample.window.ms             long    30000                                        1..
    Time of one sample for metrics.
telemetry.max.bytes                  int     1048576                                      1..
    Bytes of metrics that a client may push.

# Transactions
add.partitions.to.txn.retry.backoff.max.ms                   int      100        0..
    The longest wait before a partition is added again.
add.partitions.to.txn.retry.backoff.ms                       int      20         1..
    The first wait before a partition is added again.
transaction.abort.timed.out.transaction.cleanup.interval.ms  int      10000      1..
    How often timed out transactions are aborted.
transaction.max.timeout.ms  int  900000  1..
    The longest transaction timeout that a producer may ask for.
transaction.partition.verification.enable                    boolean  true       .
    Whether a transactional write is checked with the coordinator.
transaction.remove.expired.transaction.cleanup.interval.ms   int      3600000    1..
    How often expired transactional ids are dropped.
transaction.state.log.load.buffer.size                       int      5242880    1..
    Bytes read at once while transaction state loads.
transaction.state.log.min.isr                                int      2          1..
    min.insync.replicas of __transaction_state.
transaction.state.log.num.partitions                         int      50         1..
    Partitions of __transaction_state.
transaction.state.log.replication.factor                     short    3          1..
    Replicas of __transaction_state.
transaction.state.log.segment.bytes                          int      104857600  1..
    segment.bytes of __transaction_state.
transaction.two.phase.commit.enable                          boolean  false      .
    Whether transactions may take part in a two-phase commit (KIP-939).
transactional.id.expiration.ms                               int      604800000  1..
    A transactional id without use for so long is forgotten.

# Group coordinator
group.coordinator.append.linger.ms         int     -1                        -1..
    How long records of groups are gathered before a write.
group.coordinator.background.threads       int     2                         1..
    Threads for computing assignments.
group.coordinator.cached.buffer.max.bytes  int     1048588                   524288..
    The largest buffer that is kept for reuse.
group.coordinator.rebalance.protocols  list  \
    classic,consumer,streams  consumer|classic|share|streams
    The group protocols that are offered.
group.coordinator.threads                  int     4                         1..
    Threads of the group coordinator.
offsets.load.buffer.size                   int     5242880                   1..
    Bytes read at once while offsets load.
offsets.commit.timeout.ms  int  5000  1..
    How long a commit may wait to become durable.
offsets.topic.compression.codec            int     0                         .
    The codec of records in __consumer_offsets.

# Share groups (KIP-932)
group.share.assignment.interval.ms                      int    1000       0..
    The shortest time between two assignments of a share group.
group.share.assignors                                   list   simple     .
    The assignor of share groups.
group.share.delivery.count.limit                        int    5          2..10
    How often a record is delivered before it is given up.
group.share.heartbeat.interval.ms                       int    5000       1..
    How often members of a share group report.
group.share.max.assignment.interval.ms                  int    15000      0..
    The longest assignment interval of a group's own.
group.share.max.delivery.count.limit                    int    10         5..25
    The highest delivery count of a group's own.
group.share.max.heartbeat.interval.ms                   int    15000      1..
    The longest heartbeat interval of a group's own.
group.share.max.partition.max.record.locks              int    4000       2000..10000
    The highest lock count of a group's own.
group.share.max.record.lock.duration.ms                 int    60000      30000..3600000
    The longest lock of a group's own.
group.share.max.session.timeout.ms                      int    60000      1..
    The longest session timeout of a group's own.
group.share.max.share.sessions                          int    2000       1..
    Share sessions that are kept.
group.share.max.size                                    int    200        1..1000
    The most members of a share group.
group.share.min.assignment.interval.ms                  int    0          0..
    The shortest assignment interval of a group's own.
group.share.min.delivery.count.limit                    int    2          2..5
    The lowest delivery count of a group's own.
group.share.min.heartbeat.interval.ms                   int    5000       1..
    The shortest heartbeat interval of a group's own.
group.share.min.partition.max.record.locks              int    100        100..2000
    The lowest lock count of a group's own.
group.share.min.record.lock.duration.ms                 int    15000      1000..30000
    The shortest lock of a group's own.
group.share.min.session.timeout.ms                      int    45000      1..
    The shortest session timeout of a group's own.
group.share.partition.max.record.locks                  int    2000       100..10000
    Records of one partition that may be locked.
group.share.record.lock.duration.ms                     int    30000      1000..3600000
    How long a record stays locked.
group.share.session.timeout.ms                          int    45000      1..
    A member of a share group is dropped after so long.
share.coordinator.append.linger.ms                      int    -1         -1..
    How long records of share state are gathered before a write.
share.coordinator.cached.buffer.max.bytes               int    1048588    524288..
    The largest buffer that is kept for reuse.
share.coordinator.load.buffer.size                      int    5242880    1..
    Bytes read at once while share state loads.
share.coordinator.snapshot.update.records.per.snapshot  int    500        0..500
    Changes written between two snapshots.
share.coordinator.state.topic.compression.codec         int    0          .
    The codec of records in __share_group_state.
share.coordinator.state.topic.min.isr                   short  2          1..
    min.insync.replicas of __share_group_state.
share.coordinator.state.topic.num.partitions            int    50         1..
    Partitions of __share_group_state.
share.coordinator.state.topic.replication.factor        short  3          1..
    Replicas of __share_group_state.
share.coordinator.state.topic.segment.bytes             int    104857600  1..
    segment.bytes of __share_group_state.
share.coordinator.threads                               int    1          1..
    Threads of the share coordinator.
share.coordinator.write.timeout.ms                      int    5000       1..
    How long a write of share state may take.

# Streams groups (KIP-1071)
group.streams.assignment.interval.ms      int  1000        0..
    The shortest time between two assignments of a streams group.
group.streams.heartbeat.interval.ms       int  5000        1..
    How often members of a streams group report.
group.streams.initial.rebalance.delay.ms  int  3000        0..
    How long an empty streams group waits for more members.
group.streams.max.assignment.interval.ms  int  15000       0..
    The longest assignment interval of a group's own.
group.streams.max.heartbeat.interval.ms   int  15000       1..
    The longest heartbeat interval of a group's own.
group.streams.max.session.timeout.ms      int  60000       1..
    The longest session timeout of a group's own.
group.streams.max.size                    int  2147483647  1..
    The most members of a streams group.
group.streams.max.standby.replicas        int  2           0..
    The most standby replicas of a group's own.
group.streams.min.assignment.interval.ms  int  0           0..
    The shortest assignment interval of a group's own.
group.streams.min.heartbeat.interval.ms   int  5000        1..
    The shortest heartbeat interval of a group's own.
group.streams.min.session.timeout.ms      int  45000       1..
    The shortest session timeout of a group's own.
group.streams.num.standby.replicas        int  0           0..
    Standby replicas of each task.
group.streams.session.timeout.ms          int  45000       1..
    A member of a streams group is dropped after so long.

# Tiered storage (KIP-405)
follower.fetch.last.tiered.offset.enable  boolean  false  .
    Whether a new follower begins after what is tiered.
remote.fetch.max.wait.ms  int  500  1..
    The longest that a fetch waits for the remote store.
remote.list.offsets.request.timeout.ms  long  30000  1..
    How long ListOffsets waits for the remote store.
remote.log.index.file.cache.total.size.bytes  long  1073741824  1..
    Bytes of remote indexes kept on this disk.
remote.log.manager.copier.thread.pool.size  int  10  1..
    Threads that copy segments away.
remote.log.manager.copy.max.bytes.per.second  long  9223372036854775807  1..
    Bytes a second copied away.
remote.log.manager.copy.quota.window.num  int  11  1..
    Samples kept for that quota.
remote.log.manager.copy.quota.window.size.seconds  int  1  1..
    Seconds of such a sample.
remote.log.manager.expiration.thread.pool.size  int  10  1..
    Threads that delete remote segments.
remote.log.manager.fetch.max.bytes.per.second  long  9223372036854775807  1..
    Bytes a second read from the remote store.
remote.log.manager.fetch.quota.window.num  int  11  1..
    Samples kept for that quota.
remote.log.manager.fetch.quota.window.size.seconds  int  1  1..
    Seconds of such a sample.
remote.log.manager.follower.thread.pool.size  int  2  1..
    Threads that look up what is tiered.
remote.log.manager.task.interval.ms  long  30000  1..
    How often segments are copied and deleted.
remote.log.manager.thread.pool.size  int  2  1..
    The older name of the follower pool's size.
remote.log.metadata.custom.metadata.max.bytes  int  128  0..
    Bytes that a store may keep with a segment.
remote.log.metadata.manager.class.name  string  \
    org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager  .
    The class that keeps the list of remote segments.
remote.log.metadata.manager.class.path  string  -  .
    Where that class is found.
remote.log.metadata.manager.impl.prefix  string  rlmm.config.  .
    The prefix of that class's own settings.
remote.log.metadata.manager.listener.name  string  -  .
    The listener that it uses.
remote.log.reader.max.pending.tasks  int  100  1..
    Remote reads that may wait.
remote.log.reader.threads  int  10  1..
    Threads that read from the remote store.
remote.log.storage.manager.class.name  string  -  .
    The class that moves segments.
remote.log.storage.manager.class.path  string  -  .
    Where that class is found.
remote.log.storage.manager.impl.prefix  string  rsm.config.  .
    The prefix of that class's own settings.
remote.log.storage.system.enable  boolean  false  .
    Whether tiered storage is on.
"""
