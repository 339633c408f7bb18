"""Groups and their offsets, for the handlers: which shard serves which group, and since when.

Each partition of `__consumer_offsets` has a shard (`group_shard.py`); a group belongs to the
partition that Java's hash of its id says, as in Kafka, so that Kafka's tools look in the right
place. The topic is created when somebody first looks for a coordinator or needs one.

Not known here: what the requests mean, and what becomes of them (`coordinator/`).
"""

from __future__ import annotations

import asyncio
import dataclasses
import struct
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from asyncbroker.coordinator.config import GroupConfig, MigrationPolicy
from asyncbroker.coordinator.coordinator import GroupCoordinator
from asyncbroker.coordinator.effects import Caller
from asyncbroker.group_settings import value_in_force
from asyncbroker.group_shard import GroupShard
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from asyncbroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from asyncbroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from asyncbroker.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from asyncbroker.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from asyncbroker.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from asyncbroker.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
)
from asyncbroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from asyncbroker.topic_config import automatic_topic
from asyncbroker.topic_names import GROUP_METADATA_TOPIC
from asyncbroker.topic_view import TopicView

if TYPE_CHECKING:
    from asyncbroker.clock import Clock
    from asyncbroker.config import BrokerConfig
    from asyncbroker.context import RequestContext
    from asyncbroker.group_settings import GroupSettings
    from asyncbroker.group_shard import Durability, Operation
    from asyncbroker.partition import Partition
    from asyncbroker.protocol.messages.consumer_group_describe import DescribedConsumerGroup
    from asyncbroker.protocol.messages.delete_groups import DeletableGroupResult
    from asyncbroker.protocol.messages.describe_groups import DescribedGroup
    from asyncbroker.protocol.messages.list_groups import ListedGroup
    from asyncbroker.topic import Topic
    from asyncbroker.topics import Topics

_INT32: Final = 1 << 32
_INT32_MAX: Final = (1 << 31) - 1
_INT32_MIN: Final = -(1 << 31)


class Groups:
    """All groups of the broker. All methods are for the event loop's thread.

    Methods that serve a request return its response, or an awaitable of it. They raise KafkaError,
    or the awaitable does, when no coordinator can be asked: COORDINATOR_LOAD_IN_PROGRESS,
    NOT_COORDINATOR or COORDINATOR_NOT_AVAILABLE, all of which make clients come again.
    """

    def __init__(
        self,
        *,
        config: BrokerConfig,
        settings: GroupSettings,
        topics: Topics,
        commits: Durability,
        clock: Clock,
        trusted_now_ms: Callable[[], int],
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._settings = settings
        self._own_configs: dict[str, GroupConfig] = {}
        self._config = group_config_of(config, self._own_configs)
        self._broker_config = config
        self._topics = topics
        self._topic_view = TopicView(topics)
        self._commits = commits
        self._clock = clock
        self._trusted_now_ms = trusted_now_ms
        self._random_bytes = random_bytes
        self._shards: list[GroupShard] = []
        self._is_closed = False
        for group_id in settings.group_ids():
            self.use_settings_of(group_id)

    # ---- start and stop

    def start(self) -> None:
        """Loads the groups there are; needs the topics to be there."""
        topic = self._topics.get(GROUP_METADATA_TOPIC)
        if topic is not None:
            self._open(topic)

    async def stop(self) -> None:
        """Answers all who wait; what was committed is durable when this returns."""
        self._is_closed = True
        await asyncio.gather(*(shard.close() for shard in self._shards))

    def is_loading(self) -> bool:
        """Whether some groups are still being loaded."""
        return any(shard.is_loading() for shard in self._shards)

    def on_topics_deleted(self, names: Iterable[str]) -> None:
        """Forgets what groups committed in topics that are gone."""
        names = list(names)
        for shard in self._shards:
            shard.on_topics_deleted(names)

    async def forget_topic(self, name: str) -> None:
        """The same for good, before a topic of this name is made anew. Waits for the disk, and for
        groups that are being loaded. Raises KafkaError if it cannot be had."""
        for shard in list(self._shards):
            await shard.forget_topic(name)

    async def hand_over(self, index: int, elect: Callable[[], Awaitable[Partition]]) -> None:
        """Has another coordinator take over the groups of one partition: those who wait for members
        are told NOT_COORDINATOR, then `elect` says what the partition is now, and the groups are
        loaded from it. Raises LookupError for a partition that has no groups yet."""
        if not 0 <= index < len(self._shards):
            raise LookupError(f"{GROUP_METADATA_TOPIC}-{index} has no groups")
        await self._shards[index].close()
        shard = self._shards[index] = self._make_shard(await elect())
        shard.load()

    def use_settings_of(self, group_id: str) -> None:
        """Has a group go by the settings of its own, from its members' next requests on."""
        settings = self._settings.of(group_id)
        if settings:
            config = own_config_of(self._config, settings, self._broker_config)
            self._own_configs[group_id] = config
        else:
            self._own_configs.pop(group_id, None)

    # ---- for who moves the clock

    def expire_offsets(self) -> None:
        """Looks for expired offsets now."""
        for shard in self._shards:
            shard.expire_offsets()

    def postpone_members(self, seconds: float) -> None:
        """Gives members of all groups, and rebalances, so much more time."""
        for shard in self._shards:
            shard.postpone_members(seconds)

    def at_work(self) -> list[asyncio.Task[Any]]:
        """What is being loaded or written."""
        return [task for shard in self._shards for task in shard.at_work()]

    # ---- requests

    def find(self, group_id: str) -> Awaitable[None] | None:
        """Makes sure that the group has a coordinator: None when it has. One that is loading is
        one too: whoever asks it is told to come again."""
        if not self._shards:
            return self._after_creation(lambda: self.find(group_id))
        shard = self._shard_of(group_id)
        if not shard.is_loading():
            shard.look()
        return None

    def join(
        self, context: RequestContext, request: JoinGroupRequest
    ) -> JoinGroupResponse | Awaitable[JoinGroupResponse]:
        """JoinGroup; waits for the other members, as a rule."""
        caller = self._caller(context)
        return self._ask(
            request.group_id,
            lambda coordinator, token, now: coordinator.join(request, caller, token, now),
            context,
        )

    def sync(
        self, context: RequestContext, request: SyncGroupRequest
    ) -> SyncGroupResponse | Awaitable[SyncGroupResponse]:
        """SyncGroup; followers wait for their leader."""
        return self._ask(
            request.group_id,
            lambda coordinator, token, now: coordinator.sync(request, token, now),
            context,
        )

    def heartbeat(
        self, request: HeartbeatRequest
    ) -> HeartbeatResponse | Awaitable[HeartbeatResponse]:
        """Heartbeat; a group that is being loaded takes every heartbeat for a good one, since an
        error would make its members start over."""
        if self._shards and self._shard_of(request.group_id).is_loading():
            return HeartbeatResponse()
        return self._ask(
            request.group_id,
            lambda coordinator, token, now: coordinator.heartbeat(request, token, now),
        )

    def consumer_heartbeat(
        self, context: RequestContext, request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerGroupHeartbeatResponse | Awaitable[ConsumerGroupHeartbeatResponse]:
        """ConsumerGroupHeartbeat; waits until what it has changed is durable."""
        caller = self._caller(context)
        return self._ask(
            request.group_id,
            lambda coordinator, token, now: coordinator.consumer_heartbeat(
                request, caller, token, now
            ),
        )

    def leave(
        self, request: LeaveGroupRequest
    ) -> LeaveGroupResponse | Awaitable[LeaveGroupResponse]:
        """LeaveGroup with a list of members."""
        return self._ask(
            request.group_id,
            lambda coordinator, token, now: coordinator.leave(request, token, now),
        )

    def commit(
        self, context: RequestContext, request: OffsetCommitRequest
    ) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
        """OffsetCommit; waits until the offsets are durable."""
        # Nobody gets a member id by it.
        caller = Caller(context.api_version, context.client_id, context.client_host)
        return self._ask(
            request.group_id,
            lambda coordinator, token, now: coordinator.commit_offsets(
                request, caller, token, self._partition_exists, now
            ),
        )

    def fetch(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> OffsetFetchResponseGroup | Awaitable[OffsetFetchResponseGroup]:
        """OffsetFetch of one group."""
        return self._ask(
            request.group_id,
            lambda coordinator, token, now: coordinator.fetch_offsets(
                request, token, now, require_stable=require_stable
            ),
        )

    def delete_offsets(
        self, request: OffsetDeleteRequest
    ) -> OffsetDeleteResponse | Awaitable[OffsetDeleteResponse]:
        """OffsetDelete; waits until the deletion is durable."""
        return self._ask(
            request.group_id,
            lambda coordinator, token, now: coordinator.delete_offsets(
                request, token, self._partition_exists, now
            ),
        )

    def delete(self, group_id: str) -> DeletableGroupResult | Awaitable[DeletableGroupResult]:
        """DeleteGroups of one group."""
        return self._ask(
            group_id, lambda coordinator, token, now: coordinator.delete(group_id, token, now)
        )

    def describe(self, group_id: str) -> DescribedGroup:
        """DescribeGroups of one group."""
        return self.coordinator_of(group_id).describe(group_id)

    def describe_consumer_group(self, group_id: str) -> DescribedConsumerGroup:
        """ConsumerGroupDescribe of one group. Raises GROUP_ID_NOT_FOUND too."""
        return self.coordinator_of(group_id).describe_consumer_group(group_id)

    def list_groups(self, states: Iterable[str], types: Iterable[str]) -> list[ListedGroup]:
        """ListGroups, over all shards."""
        return [
            group for shard in self._shards for group in shard.look().list_groups(states, types)
        ]

    def count_by_state(self) -> Counter[str]:
        """How many groups there are in each state; none of those that are being loaded."""
        return Counter(
            group.group_state
            for shard in self._shards
            if shard.is_serving()
            for group in shard.look().list_groups()
        )

    def coordinator_of(self, group_id: str) -> GroupCoordinator:
        """The coordinator that has the group, for who wants to look at it."""
        if not self._shards:
            return GroupCoordinator(self._config, self._topic_view)
        return self._shard_of(group_id).look()

    # ---- helpers

    def _ask(
        self, group_id: str, operation: Operation, context: RequestContext | None = None
    ) -> Any | Awaitable[Any]:
        """Has the group's shard run an operation, once there are shards."""
        if not self._shards:
            return self._after_creation(lambda: self._ask(group_id, operation, context))
        return self._shard_of(group_id).ask(operation, context, group_id)

    def _shard_of(self, group_id: str) -> GroupShard:
        if len(self._shards) == 1:
            return self._shards[0]
        return self._shards[partition_of(group_id, len(self._shards))]

    def _partition_exists(self, topic_name: str, index: int) -> bool:
        topic = self._topics.get(topic_name)
        return topic is not None and 0 <= index < len(topic.partitions)

    def _caller(self, context: RequestContext) -> Caller:
        """Who asks. Hosts are shown as Java prints addresses, with a slash; tools expect that."""
        return Caller(
            api_version=context.api_version,
            client_id=context.client_id,
            client_host=f"/{context.client_host}",
            unique=str(uuid.UUID(bytes=self._random_bytes(16), version=4)),
        )

    async def _after_creation(self, operation: Callable[[], Any | Awaitable[Any]]) -> Any:
        """Creates `__consumer_offsets`, and then does it; any number may wait for the creation."""
        try:
            ensured = self._topics.ensure(
                GROUP_METADATA_TOPIC, *automatic_topic(GROUP_METADATA_TOPIC, self._broker_config)
            )
            topic = await ensured if isinstance(ensured, asyncio.Future) else ensured
        except KafkaError as error:
            message = f"{GROUP_METADATA_TOPIC} could not be created: {error}"
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message) from error
        if self._is_closed:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if not self._shards:
            self._open(topic)
        outcome = operation()
        return await outcome if isinstance(outcome, Awaitable) else outcome

    def _open(self, topic: Topic) -> None:
        """Starts a shard on each partition. Those that the topic has count, not the setting."""
        self._shards = [self._make_shard(partition) for partition in topic.partitions]
        for shard in self._shards:
            shard.load()

    def _make_shard(self, partition: Partition) -> GroupShard:
        return GroupShard(
            partition,
            self._config,
            commits=self._commits,
            clock=self._clock,
            trusted_now_ms=self._trusted_now_ms,
            topics=self._topic_view,
        )


def group_config_of(config: BrokerConfig, own: Mapping[str, GroupConfig]) -> GroupConfig:
    """The broker's settings that the coordinator goes by."""
    return GroupConfig(
        session_timeout_ms_min=config.group_min_session_timeout_ms,
        session_timeout_ms_max=config.group_max_session_timeout_ms,
        initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        member_count_max=config.group_max_size,
        consumer_session_timeout_ms=config.group_consumer_session_timeout_ms,
        consumer_heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
        consumer_assignment_interval_ms=config.group_consumer_assignment_interval_ms,
        consumer_member_count_max=config.group_consumer_max_size,
        consumer_assignors=config.group_consumer_assignors,
        migration_policy=MigrationPolicy(config.group_consumer_migration_policy.lower()),
        offset_metadata_size_max=config.offset_metadata_max_bytes,
        offsets_retention_ms=config.offsets_retention_minutes * 60_000,
        offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
        own=own,
    )


def own_config_of(
    base: GroupConfig, settings: Mapping[str, str], config: BrokerConfig
) -> GroupConfig:
    """What holds for a group that has settings of its own."""
    session_timeout_ms, heartbeat_interval_ms, assignment_interval_ms = (
        value_in_force(f"consumer.{name}", settings, config)
        for name in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")
    )
    return dataclasses.replace(
        base,
        consumer_session_timeout_ms=session_timeout_ms,
        # Where the ranges have become such that this is more, nobody could stay.
        consumer_heartbeat_interval_ms=min(heartbeat_interval_ms, session_timeout_ms - 1),
        consumer_assignment_interval_ms=assignment_interval_ms,
    )


def partition_of(group_id: str, partition_count: int) -> int:
    """The partition of a group: the absolute value of Java's `String.hashCode`, modulo."""
    code = java_hash(group_id)
    return (0 if code == _INT32_MIN else abs(code)) % partition_count


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 code units, in 32 bits with a sign."""
    code = 0
    for (unit,) in struct.iter_unpack("<H", text.encode("utf-16-le")):
        code = (31 * code + unit) % _INT32
    return code if code <= _INT32_MAX else code - _INT32
