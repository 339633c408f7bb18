"""The group coordinator of one partition of `__consumer_offsets`: all its groups and their offsets.

A pure state machine. Each entry point takes a request, the time, and whatever else it needs to know
of the world, changes the state, and returns effects (`effects.py` says what the caller owes them).
The caller also calls `expire` when `next_deadline` has come. A fresh coordinator is brought up to
date with `replay`, record by record, and starts its clocks with `finish_loading`.

What a restart keeps is what is in the records: the last stable generation of each group with its
member ids and assignments, so that members of stable groups go on where they were, and heartbeats
are all it takes. A rebalance that was under way is lost, with the generation it was to have: its
members hear ILLEGAL_GENERATION or UNKNOWN_MEMBER_ID and join again.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from asyncbroker.coordinator.config import GroupConfig
from asyncbroker.coordinator.consumer.describe import listed
from asyncbroker.coordinator.consumer.group import ConsumerGroup
from asyncbroker.coordinator.consumer.groups import ConsumerGroups
from asyncbroker.coordinator.consumer.offsets import check_commit as check_consumer_commit
from asyncbroker.coordinator.consumer.offsets import check_fetch
from asyncbroker.coordinator.consumer.records import ConsumerRecord
from asyncbroker.coordinator.consumer.topics import TopicView
from asyncbroker.coordinator.deadlines import RETENTION, DeadlineKind, Deadlines
from asyncbroker.coordinator.effects import Caller, Effect, Instant, MemberKey, Token
from asyncbroker.coordinator.group import NO_GENERATION, Group, GroupState
from asyncbroker.coordinator.join import UNKNOWN_MEMBER_ID, error_of, join
from asyncbroker.coordinator.offset_requests import (
    PartitionExists,
    check_commit,
    commit,
    delete,
    fetch,
)
from asyncbroker.coordinator.offsets import GroupOffsets, Offsets
from asyncbroker.coordinator.rebalance import (
    forget_token,
    join_failed,
    pass_deadline,
    prepare_rebalance,
)
from asyncbroker.coordinator.records import (
    GroupMetadataRecord,
    GroupMetadataValue,
    OffsetCommitRecord,
    decode_record,
    group_tombstone,
    offset_tombstone,
)
from asyncbroker.coordinator.restoring import restored_group
from asyncbroker.coordinator.sync import heartbeat, leave, sync, unknown_members
from asyncbroker.coordinator.turn import Turn, counted
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.consumer_group_describe import DescribedConsumerGroup
from asyncbroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from asyncbroker.protocol.messages.delete_groups import DeletableGroupResult
from asyncbroker.protocol.messages.describe_groups import DescribedGroup
from asyncbroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from asyncbroker.protocol.messages.join_group import JoinGroupRequest
from asyncbroker.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from asyncbroker.protocol.messages.list_groups import ListedGroup
from asyncbroker.protocol.messages.offset_commit import OffsetCommitRequest
from asyncbroker.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from asyncbroker.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
)
from asyncbroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


class GroupCoordinator:
    """The groups of one partition. Not safe for threads: one owner calls it."""

    def __init__(self, config: GroupConfig, topics: TopicView) -> None:
        self._config = config
        # A group id is that of a group of one kind only.
        self._groups: dict[str, Group] = {}
        self._consumers = ConsumerGroups(config, topics)
        self._topics = topics
        self._offsets = Offsets()
        self._deadlines = Deadlines()

    # ---- membership

    def join(
        self, request: JoinGroupRequest, caller: Caller, token: Token, now: Instant
    ) -> list[Effect]:
        """JoinGroup: parked, as a rule, until the next generation is complete."""
        turn = self._turn(now)
        if (error := error_of(request, self._config)) is not ErrorCode.NONE:
            turn.reply(token, join_failed(error, request.member_id))
            return turn.effects
        if (consumers := self._consumers.get(request.group_id)) is not None:
            if consumers.members:
                self._replace(self._consumers.join(consumers, request, caller, token, turn))
                return turn.effects
            if request.member_id == UNKNOWN_MEMBER_ID:
                turn.append(self._consumers.remove(consumers).records)
        group = self._groups.get(request.group_id)
        if group is None:
            if request.member_id != UNKNOWN_MEMBER_ID:
                turn.reply(token, join_failed(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
                return turn.effects
            group = self._create(request.group_id, now)
        join(group, request, caller, token, turn)
        self._drop_if_never_stored(group)
        return turn.effects

    def sync(self, request: SyncGroupRequest, token: Token, now: Instant) -> list[Effect]:
        """SyncGroup: parked, for followers, until the leader has synced."""
        turn = self._turn(now)
        group = self._groups.get(request.group_id)
        if (consumers := self._consumers.get(request.group_id)) is not None:
            self._consumers.sync(consumers, request, token, turn)
        elif group is None:
            turn.reply(token, SyncGroupResponse(error_code=_no_such_group(request.group_id)))
        else:
            sync(group, request, token, turn)
        return turn.effects

    def heartbeat(self, request: HeartbeatRequest, token: Token, now: Instant) -> list[Effect]:
        """Heartbeat: answered at once, whatever the disk does."""
        turn = self._turn(now)
        group = self._groups.get(request.group_id)
        if (consumers := self._consumers.get(request.group_id)) is not None:
            response = self._consumers.classic_heartbeat(consumers, request, turn)
        elif group is None:
            response = HeartbeatResponse(error_code=_no_such_group(request.group_id))
        else:
            response = heartbeat(group, request, turn)
        turn.reply(token, response, at_once=True)
        return turn.effects

    def leave(self, request: LeaveGroupRequest, token: Token, now: Instant) -> list[Effect]:
        """LeaveGroup, of a list of members (handlers turn the single one of v0 to v2 into one)."""
        turn = self._turn(now)
        group = self._groups.get(request.group_id)
        if not request.group_id:
            turn.reply(token, LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))
        elif (consumers := self._consumers.get(request.group_id)) is not None:
            self._replace(self._consumers.leave(consumers, request, token, turn))
        elif group is None:
            turn.reply(token, unknown_members(request))
        else:
            turn.reply(token, leave(group, request, turn))
            self._drop_if_never_stored(group)
        return turn.effects

    def forget(self, token: Token, group_id: str, now: Instant) -> list[Effect]:
        """The connection of a request to this group is lost: nobody waits for its answer."""
        turn = self._turn(now)
        if (group := self._groups.get(group_id)) is not None:
            forget_token(group, token, turn)
            self._drop_if_never_stored(group)
        return turn.effects

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, token: Token, now: Instant
    ) -> list[Effect]:
        """ConsumerGroupHeartbeat: answered at once if it says nothing that has to be durable."""
        turn = self._turn(now)
        classic = self._groups.get(request.group_id)
        successor = self._consumers.heartbeat(request, caller, token, classic, turn)
        if self._consumers.get(request.group_id) is not None:
            self._groups.pop(request.group_id, None)
        self._replace(successor)
        return turn.effects

    # ---- offsets

    def commit_offsets(
        self,
        request: OffsetCommitRequest,
        caller: Caller,
        token: Token,
        exists: PartitionExists,
        now: Instant,
    ) -> list[Effect]:
        """OffsetCommit: answered when the offsets are durable. `exists(topic, partition)` says
        which partitions there are. A commit of a classic group's member is a sign of life."""
        turn = self._turn(now)
        group = self._groups.get(request.group_id)
        member = None
        error = ErrorCode.NONE
        consumers = self._consumers.get(request.group_id)
        try:
            if consumers is not None:
                check_consumer_commit(consumers, request, caller, self._topics)
            else:
                check_commit(group, request, caller)
        except KafkaError as refusal:
            error = refusal.code
        else:
            member = group.members.get(request.member_id) if group is not None else None
        response = commit(error, request, exists, self._offsets, turn)
        if group is None and consumers is None and self._offsets.of(request.group_id):
            self._create(request.group_id, now)
        if group is not None and member is not None:
            turn.answer(group, member, token, response)
        else:
            turn.reply(token, response)
        return turn.effects

    def fetch_offsets(
        self,
        request: OffsetFetchRequestGroup,
        token: Token,
        now: Instant,
        *,
        require_stable: bool,
    ) -> list[Effect]:
        """OffsetFetch of one group: replies with its `OffsetFetchResponseGroup`."""
        turn = self._turn(now)
        consumers = self._consumers.get(request.group_id)
        try:
            if consumers is not None:
                check_fetch(consumers, request)
        except KafkaError as refusal:
            turn.reply(token, OffsetFetchResponseGroup(request.group_id, error_code=refusal.code))
        else:
            turn.reply(token, fetch(request, self._offsets, require_stable=require_stable))
        return turn.effects

    def delete_offsets(
        self, request: OffsetDeleteRequest, token: Token, exists: PartitionExists, now: Instant
    ) -> list[Effect]:
        """OffsetDelete: answered when the deletion is durable."""
        turn = self._turn(now)
        group = self._groups.get(request.group_id)
        if not request.group_id:
            turn.reply(token, OffsetDeleteResponse(ErrorCode.INVALID_GROUP_ID))
        elif (consumers := self._consumers.get(request.group_id)) is not None:
            turn.reply(token, delete(consumers, request, exists, self._offsets, turn))
        elif group is None:
            turn.reply(token, OffsetDeleteResponse(ErrorCode.GROUP_ID_NOT_FOUND))
        else:
            turn.reply(token, delete(group, request, exists, self._offsets, turn))
            self._drop_if_never_stored(group)
        return turn.effects

    def committed_topics(self) -> set[str]:
        """The topics in which any group has an offset."""
        return self._offsets.topics()

    def on_topics_deleted(self, topics: Iterable[str], now: Instant) -> list[Effect]:
        """Forgets the offsets of topics that are gone: a new topic of that name starts afresh."""
        turn = self._turn(now)
        gone = self._offsets.of_topics(frozenset(topics))
        for group_id, topic, partition in gone:
            self._offsets.remove(group_id, topic, partition)
        turn.append(offset_tombstone(*key) for key in gone)
        return turn.effects

    # ---- administration

    def describe(self, group_id: str) -> DescribedGroup:
        """DescribeGroups of one group. One that is not there, or no classic one, is "Dead", which
        is no error; the message says which."""
        group = self._groups.get(group_id)
        if group is None:
            what = "is not a classic group" if self._consumers.get(group_id) else "not found"
            return DescribedGroup(
                group_id=group_id,
                group_state=GroupState.DEAD.value,
                error_message=f"Group {group_id} {what}.",
            )
        return group.described()

    def describe_consumer_group(self, group_id: str) -> DescribedConsumerGroup:
        """ConsumerGroupDescribe of one group. Raises GROUP_ID_NOT_FOUND, also for a classic one."""
        group = self._consumers.describe(group_id)
        if group is None:
            what = "is not a consumer group" if group_id in self._groups else "not found"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")
        return group

    def generation_of(self, group_id: str) -> int:
        """The generation of a group; -1 for an unknown one."""
        group = self._groups.get(group_id)
        return NO_GENERATION if group is None else group.generation_id

    def offsets_of(self, group_id: str) -> GroupOffsets:
        """What a group has committed, by topic and partition; to be read only."""
        return self._offsets.of(group_id)

    def list_groups(
        self, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> list[ListedGroup]:
        """ListGroups; filters are compared without regard to case, and empty ones pass all."""
        wanted_states = {state.strip().lower() for state in states}
        wanted_types = {kind.strip().lower() for kind in types}
        classic = (group.listed() for group in self._groups.values())
        consumers = (listed(group) for group in self._consumers)
        return [
            group
            for group in (*classic, *consumers)
            if (not wanted_types or group.group_type in wanted_types)
            and (not wanted_states or group.group_state.lower() in wanted_states)
        ]

    def delete(self, group_id: str, token: Token, now: Instant) -> list[Effect]:
        """DeleteGroups of one group: replies with its `DeletableGroupResult`."""
        turn = self._turn(now)
        group = self._groups.get(group_id)
        error = ErrorCode.NONE
        if (consumers := self._consumers.get(group_id)) is not None:
            if consumers.members:
                error = ErrorCode.NON_EMPTY_GROUP
            else:
                self._bury(consumers, "it was deleted", turn)
        elif group is None:
            error = ErrorCode.GROUP_ID_NOT_FOUND
        elif group.state is not GroupState.EMPTY:
            error = ErrorCode.NON_EMPTY_GROUP
        else:
            self._bury(group, "it was deleted", turn)
        turn.reply(token, DeletableGroupResult(group_id, error))
        return turn.effects

    # ---- time

    def next_deadline(self) -> float | None:
        """When to call `expire` next, on the monotonic clock; may be early, never late."""
        return self._deadlines.next_deadline()

    def expire(self, now: Instant, held_back: Container[MemberKey] = ()) -> list[Effect]:
        """Does what is due: phases of rebalances, sessions, the retention of offsets. Members whose
        answers are `held_back` by the disk cannot send heartbeats, and are not silent."""
        turn = self._turn(now)
        while (key := self._deadlines.pop_due(now.monotonic)) is not None:
            if key.kind is DeadlineKind.RETENTION:
                self._expire_offsets(turn, bury_unused=True)
                turn.set_deadline(RETENTION, self._config.offsets_retention_check_interval_ms)
            elif (consumers := self._consumers.get(key.group_id)) is not None:
                if MemberKey(key.group_id, key.member_id) in held_back:
                    self._consumers.renew_session(consumers, key.member_id, turn)
                else:
                    self._replace(self._consumers.pass_deadline(consumers, key, turn))
            elif (group := self._groups.get(key.group_id)) is not None:
                member = group.members.get(key.member_id)
                if member is not None and MemberKey(key.group_id, key.member_id) in held_back:
                    turn.renew_session(group, member)
                    continue
                pass_deadline(group, key, turn)
                self._drop_if_never_stored(group)
        return turn.effects

    def answered(self, members: Iterable[MemberKey], now: Instant) -> None:
        """Answers that were held back have gone out: the members' sessions run from now."""
        turn = self._turn(now)
        for key in members:
            if (consumers := self._consumers.get(key.group_id)) is not None:
                self._consumers.renew_session(consumers, key.member_id, turn)
                continue
            group = self._groups.get(key.group_id)
            member = group.members.get(key.member_id) if group is not None else None
            if group is not None and member is not None:
                turn.renew_session(group, member)

    def expire_offsets(self, now: Instant) -> list[Effect]:
        """Forgets expired offsets out of turn, and groups that have nothing left by it."""
        turn = self._turn(now)
        self._expire_offsets(turn, bury_unused=False)
        return turn.effects

    def postpone_members(self, seconds: float) -> None:
        """Moves the ends of all sessions and phases: for a clock that is about to jump while the
        members' own clocks stay."""
        self._deadlines.postpone(seconds, but=RETENTION)

    # ---- loading

    def replay(self, key: bytes, value: bytes | None, producer_id: int | None = None) -> None:
        """Applies one record of the partition, in order; `producer_id` if it is transactional.

        Raises ProtocolError for a record that does not fit its version. Records about other kinds
        of groups are passed over.
        """
        record = decode_record(key, value)
        if isinstance(record, GroupMetadataRecord):
            self._replay_group(record.key.group, record.value)
        elif isinstance(record, OffsetCommitRecord):
            offset_key = record.key
            if record.value is None:
                self._offsets.remove(offset_key.group, offset_key.topic, offset_key.partition)
                return
            if offset_key.group not in self._groups and not self._consumers.get(offset_key.group):
                self._groups[offset_key.group] = Group(offset_key.group, None)
            self._offsets.put(
                offset_key.group, offset_key.topic, offset_key.partition, record.value, producer_id
            )
        elif isinstance(record, ConsumerRecord):
            self._consumers.replay(record)
            if self._consumers.get(record.key.group_id) is not None:
                # One that only stored offsets so far, as it seemed.
                self._groups.pop(record.key.group_id, None)

    def replay_marker(self, producer_id: int, *, is_commit: bool) -> None:
        """Applies the marker that ends a transaction."""
        self._offsets.end_transaction(producer_id, is_commit=is_commit)

    def finish_loading(self, now: Instant) -> list[Effect]:
        """Starts the clocks: each member has its whole session timeout to come back."""
        turn = self._turn(now)
        for group in self._groups.values():
            for member in group.members.values():
                turn.renew_session(group, member)
            if len(group.members) > self._config.member_count_max:
                prepare_rebalance(group, "it has more members than group.max.size", turn)
        self._consumers.finish_loading(turn)
        turn.set_deadline(RETENTION, self._config.offsets_retention_check_interval_ms)
        return turn.effects

    # ---- helpers

    def _turn(self, now: Instant) -> Turn:
        return Turn(self._config, self._deadlines, now)

    def _replace(self, successor: Group | None) -> None:
        """A consumer group has become a classic group."""
        if successor is not None:
            self._groups[successor.group_id] = successor

    def _create(self, group_id: str, now: Instant) -> Group:
        group = self._groups[group_id] = Group(group_id, now.wall_ms)
        return group

    def _drop_if_never_stored(self, group: Group) -> None:
        """A group whose first members never came to a generation leaves nothing behind."""
        if (
            group.is_unused()
            and group.generation_id == 0
            and not self._offsets.of(group.group_id)
            and not self._offsets.has_pending(group.group_id)
        ):
            del self._groups[group.group_id]

    def _bury(self, group: Group | ConsumerGroup, reason: str, turn: Turn) -> None:
        """Deletes a group with all that it has, for good: every record of it gets a tombstone."""
        group_id = group.group_id
        partitions = [
            (topic, partition)
            for topic, offsets in self._offsets.of(group_id).items()
            for partition in offsets
        ]
        for topic, partition in partitions:
            self._offsets.remove(group_id, topic, partition)
        tombstones = [offset_tombstone(group_id, *partition) for partition in partitions]
        if isinstance(group, ConsumerGroup):
            tombstones += self._consumers.remove(group).records
        else:
            for member_id in sorted(group.pending_member_ids):
                turn.end_session(group, member_id)
            group.move_to(GroupState.DEAD, turn.now.wall_ms)
            del self._groups[group_id]
            tombstones.append(group_tombstone(group_id))
        turn.note(group, f"the group is gone: {reason}")
        turn.append(tombstones)

    def _expire_offsets(self, turn: Turn, *, bury_unused: bool) -> None:
        """Forgets offsets whose retention is over, and groups that have nothing left by it; those
        that had nothing before as well, if `bury_unused`."""
        retention_ms = self._config.offsets_retention_ms
        for group in (*self._groups.values(), *self._consumers):
            group_id = group.group_id
            expired = self._offsets.expired(group, turn.now.wall_ms, retention_ms)
            for topic, partition in expired:
                self._offsets.remove(group_id, topic, partition)
            if expired:
                turn.note(group, f"{counted(len(expired), 'offset')} expired")
            turn.append(offset_tombstone(group_id, *partition) for partition in expired)
            if (
                (expired or bury_unused)
                and group.is_unused()
                and not self._offsets.of(group_id)
                and not self._offsets.has_pending(group_id)
            ):
                self._bury(group, "it has no members and no offsets", turn)

    def _replay_group(self, group_id: str, value: GroupMetadataValue | None) -> None:
        """Puts a group into the state that its record describes: stable, or empty."""
        if value is None:
            self._groups.pop(group_id, None)
            return
        self._consumers.forget(group_id)
        self._groups[group_id] = restored_group(group_id, value)


def _no_such_group(group_id: str) -> ErrorCode:
    """The error of requests from members to a group that is not there."""
    return ErrorCode.UNKNOWN_MEMBER_ID if group_id else ErrorCode.INVALID_GROUP_ID
