"""The settings of single groups (resources of type 32), by Kafka's names.

How a row is read is told in `settings.py`. Names, types, ranges and defaults are those of Kafka
4.3. A group that has none of its own has the broker's, which is named like it with `group.` before:
`consumer.session.timeout.ms` and `group.consumer.session.timeout.ms`. All are accepted and kept,
also those of kinds of groups that are not here, since tools set and compare them.
"""

from __future__ import annotations

from typing import Final

GROUP_SETTINGS: Final = """
consumer.assignment.interval.ms  int  1000   0..
    The shortest time between two assignments of a consumer group.
consumer.heartbeat.interval.ms   int  5000   1..
    How often members of a consumer group report.
consumer.session.timeout.ms      int  45000  1..
    A silent member of a consumer group is thrown out after so long.
"""

# Accepted, kept and shown: share groups (KIP-932) and streams groups (KIP-1071) are not here.
UNUSED_GROUP_SETTINGS: Final = """
share.assignment.interval.ms        int      1000              0..
    The shortest time between two assignments of a share group.
share.auto.offset.reset             string   latest            reset
    Where a share group begins: latest, earliest, or by_duration: and an ISO 8601 duration.
share.delivery.count.limit          int      5                 2..
    How often a record is delivered before it is given up.
share.heartbeat.interval.ms         int      5000              1..
    How often members of a share group report.
share.isolation.level               string   read_uncommitted  read_committed|read_uncommitted
    Whether a share group reads records of transactions that are not committed.
share.partition.max.record.locks    int      2000              100..
    Records of one partition that may be locked.
share.record.lock.duration.ms       int      30000             1000..
    How long a record stays locked.
share.renew.acknowledge.enable      boolean  true              .
    Whether members of a share group may have a record longer.
share.session.timeout.ms            int      45000             1..
    A member of a share group is dropped after so long.
streams.assignment.interval.ms      int      1000              0..
    The shortest time between two assignments of a streams group.
streams.heartbeat.interval.ms       int      5000              1..
    How often members of a streams group report.
streams.initial.rebalance.delay.ms  int      3000              0..
    How long an empty streams group waits for more members.
streams.num.standby.replicas        int      0                 0..
    Standby replicas of each task.
streams.session.timeout.ms          int      45000             1..
    A member of a streams group is dropped after so long.
"""
