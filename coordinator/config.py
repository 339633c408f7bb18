"""The settings of the group coordinator, by Kafka's names in the broker's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class MigrationPolicy(Enum):
    """Which way groups with members may change between the two protocols."""

    DISABLED = "disabled"
    DOWNGRADE = "downgrade"
    UPGRADE = "upgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def allows_upgrade(self) -> bool:
        """Whether a classic group may become a consumer group."""
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def allows_downgrade(self) -> bool:
        """Whether a consumer group may become a classic group."""
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Kafka's defaults; the name of each setting is in the comment behind it."""

    session_timeout_ms_min: int = 6_000  # group.min.session.timeout.ms
    session_timeout_ms_max: int = 1_800_000  # group.max.session.timeout.ms
    initial_rebalance_delay_ms: int = 3_000  # group.initial.rebalance.delay.ms
    member_count_max: int = 2_147_483_647  # group.max.size
    offset_metadata_size_max: int = 4_096  # offset.metadata.max.bytes
    offsets_retention_ms: int = 10_080 * 60_000  # offsets.retention.minutes
    offsets_retention_check_interval_ms: int = 600_000  # offsets.retention.check.interval.ms

    # Groups of the consumer protocol (KIP-848).
    consumer_session_timeout_ms: int = 45_000  # group.consumer.session.timeout.ms
    consumer_heartbeat_interval_ms: int = 5_000  # group.consumer.heartbeat.interval.ms
    consumer_assignment_interval_ms: int = 1_000  # group.consumer.assignment.interval.ms
    consumer_member_count_max: int = 2_147_483_647  # group.consumer.max.size
    consumer_assignors: tuple[str, ...] = ("uniform", "range")  # group.consumer.assignors
    migration_policy: MigrationPolicy = (
        MigrationPolicy.BIDIRECTIONAL
    )  # ...consumer.migration.policy

    # A new member parked in its first JoinGroup is given up after this time, as in Kafka (it is not
    # a setting there either): its client may have gone and tried again under another id.
    new_member_join_timeout_ms: int = 300_000

    # What holds for groups with settings of their own, by their ids. Whoever made it may change
    # it, and a group goes by what it finds at its next request.
    own: Mapping[str, GroupConfig] = field(default_factory=dict, compare=False, repr=False)

    def of(self, group_id: str) -> GroupConfig:
        """What holds for one group."""
        return self.own.get(group_id, self)
