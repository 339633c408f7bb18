"""The consumer groups of one coordinator: what its entry points do when a group is one of these.

`GroupCoordinator` asks here first. A classic group that becomes a consumer group is handed in, one
that a consumer group becomes is handed out; the coordinator keeps its table of classic groups.
"""

from __future__ import annotations

from collections.abc import Iterator

from asyncbroker.coordinator.config import GroupConfig
from asyncbroker.coordinator.consumer import classic_members
from asyncbroker.coordinator.consumer.changes import Changes
from asyncbroker.coordinator.consumer.departure import close_ranks, remove_members
from asyncbroker.coordinator.consumer.describe import described
from asyncbroker.coordinator.consumer.group import INITIAL_EPOCH, ConsumerGroup
from asyncbroker.coordinator.consumer.heartbeat import (
    check_request,
    check_room,
    heartbeat,
    leave_for_a_while,
)
from asyncbroker.coordinator.consumer.member import ConsumerMember
from asyncbroker.coordinator.consumer.migration import (
    can_downgrade,
    downgrade,
    upgrade,
    upgraded_members,
)
from asyncbroker.coordinator.consumer.reconcile import check_state
from asyncbroker.coordinator.consumer.records import ConsumerRecord
from asyncbroker.coordinator.consumer.regex import check_regex
from asyncbroker.coordinator.consumer.topics import TopicView
from asyncbroker.coordinator.deadlines import (
    DeadlineKey,
    DeadlineKind,
    revocation_deadline,
    session_deadline,
)
from asyncbroker.coordinator.effects import Caller, MemberKey, Token
from asyncbroker.coordinator.group import Group
from asyncbroker.coordinator.rebalance import join_failed
from asyncbroker.coordinator.turn import Turn
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.consumer_group_describe import DescribedConsumerGroup
from asyncbroker.protocol.messages.consumer_group_heartbeat import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from asyncbroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from asyncbroker.protocol.messages.join_group import JoinGroupRequest
from asyncbroker.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)
from asyncbroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

MEMBER_ID_REQUIRED_FROM = 4

# Why a member is thrown out when one of its deadlines passes.
REASONS = {
    DeadlineKind.SESSION: "its session timed out",
    DeadlineKind.REVOCATION: "it did not give up its partitions in time",
    DeadlineKind.REJOIN: "it did not join again in time",
    DeadlineKind.MEMBER_SYNC: "it did not sync in time",
}


class ConsumerGroups:
    """All consumer groups by their ids."""

    def __init__(self, config: GroupConfig, topics: TopicView) -> None:
        self._config = config
        self._topics = topics
        self._groups: dict[str, ConsumerGroup] = {}

    def get(self, group_id: str) -> ConsumerGroup | None:
        """The group of this id."""
        return self._groups.get(group_id)

    def __iter__(self) -> Iterator[ConsumerGroup]:
        return iter(list(self._groups.values()))

    # ---- the consumer protocol

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        caller: Caller,
        token: Token,
        classic: Group | None,
        turn: Turn,
    ) -> Group | None:
        """ConsumerGroupHeartbeat. `classic` is the classic group of this id, which the coordinator
        forgets when there is a consumer group of that id after this; returned is the classic group
        that the consumer group has become."""
        successor = None
        try:
            check_request(request, caller.api_version, self._config)
            if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
                successor = self._leave(request, token, turn)
            else:
                self._stay(request, caller, token, classic, turn)
        except KafkaError as error:
            response = ConsumerGroupHeartbeatResponse(
                error_code=error.code, error_message=error.message
            )
            turn.reply(token, response)
        return successor

    def _stay(
        self,
        request: ConsumerGroupHeartbeatRequest,
        caller: Caller,
        token: Token,
        classic: Group | None,
        turn: Turn,
    ) -> None:
        group_id = request.group_id
        changes = self._changes_of(request, classic, turn)
        response = heartbeat(changes, request, caller, self._topics, turn)
        self._groups[group_id] = changes.group
        turn.append(changes.records)
        assert response.member_id is not None
        says_nothing_new = (
            not changes.records
            and response.assignment is None
            and response.member_epoch == request.member_epoch
        )
        key = MemberKey(group_id, response.member_id)
        turn.reply(token, response, at_once=says_nothing_new, member=key)

    def _changes_of(
        self, request: ConsumerGroupHeartbeatRequest, classic: Group | None, turn: Turn
    ) -> Changes:
        """The group that a member joins or is in: one that is there, a new one, or one that was a
        classic group until now. Raises KafkaError."""
        group_id = request.group_id
        group = self._groups.get(group_id)
        is_joining = request.member_epoch == JOIN_EPOCH
        if group is None and not is_joining:
            what = "not found" if classic is None else "is not a consumer group"
            raise _not_found(f"Group {group_id} {what}.")
        if group is not None:
            check_room(len(group.members), request.member_id in group.members, self._config)
            return Changes(group)
        members = []
        if classic is not None and classic.members:
            members = upgraded_members(classic, self._config, self._topics)
            check_room(len(members), request.member_id in classic.members, self._config)
        # The last that may fail: from here on the classic group is no more.
        if request.subscribed_topic_regex:
            check_regex(request.subscribed_topic_regex)
        if classic is None:
            return Changes(ConsumerGroup(group_id))
        return upgrade(classic, members, turn)

    def _leave(
        self, request: ConsumerGroupHeartbeatRequest, token: Token, turn: Turn
    ) -> Group | None:
        group = self._groups.get(request.group_id)
        if group is None:
            raise _not_found(f"Group {request.group_id} not found.")
        if request.instance_id is None:
            member = group.member(request.member_id)
        else:
            member = group.known_static_member(request.instance_id, request.member_id)
        successor = None
        if request.member_epoch == LEAVE_STATIC_EPOCH:
            changes = Changes(group)
            leave_for_a_while(changes, member, turn)
            turn.append(changes.records)
        else:
            successor = self._remove(group, [member], "it left", turn)
        response = ConsumerGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=request.member_epoch
        )
        turn.reply(token, response)
        return successor

    # ---- members that speak the classic protocol

    def join(
        self,
        group: ConsumerGroup,
        request: JoinGroupRequest,
        caller: Caller,
        token: Token,
        turn: Turn,
    ) -> Group | None:
        """JoinGroup to a consumer group that has members; returns the classic group that it has
        become by that."""
        member_id = request.member_id or caller.unique
        try:
            check_room(len(group.members), member_id in group.members, self._config)
            classic_members.check_protocols(group, request)
            is_static = request.group_instance_id is not None
            is_first = not request.member_id and not is_static
            if is_first and caller.api_version >= MEMBER_ID_REQUIRED_FROM:
                raise KafkaError(ErrorCode.MEMBER_ID_REQUIRED)
            before = classic_members.find_member(group, request)
            subscription = classic_members.subscription_of(request)
            if before is not None:
                check_state(before, classic_members.reported_of(subscription, self._topics))
        except KafkaError as error:
            needs_id = error.code is ErrorCode.MEMBER_ID_REQUIRED
            turn.reply(token, join_failed(error.code, member_id if needs_id else ""))
            return None

        was_last = (
            before is not None
            and is_static
            and can_downgrade(group, [before], self._config, adding=1)
        )
        changes = Changes(group)
        response = classic_members.join(
            changes, before, member_id, request, subscription, caller, self._topics, turn
        )
        successor = None
        if was_last:
            reason = f"member {member_id} took the place of the last one of the other protocol"
            successor = downgrade(changes, self._topics, reason, turn, has_lost_members=False)
            del self._groups[group.group_id]
        turn.append(changes.records)
        turn.reply(token, response, member=MemberKey(group.group_id, member_id))
        return successor

    def sync(
        self, group: ConsumerGroup, request: SyncGroupRequest, token: Token, turn: Turn
    ) -> None:
        """SyncGroup to a consumer group: answered without waiting for anybody."""
        try:
            response = classic_members.sync(group, request, self._topics, turn)
        except KafkaError as error:
            turn.reply(token, SyncGroupResponse(error_code=error.code))
            return
        turn.reply(token, response, member=MemberKey(group.group_id, request.member_id))

    def classic_heartbeat(
        self, group: ConsumerGroup, request: HeartbeatRequest, turn: Turn
    ) -> HeartbeatResponse:
        """Heartbeat to a consumer group."""
        return classic_members.heartbeat(group, request, turn)

    def leave(
        self, group: ConsumerGroup, request: LeaveGroupRequest, token: Token, turn: Turn
    ) -> Group | None:
        """LeaveGroup to a consumer group; returns the classic group that it has become."""
        response = LeaveGroupResponse()
        leaving: dict[str, ConsumerMember] = {}
        for identity in request.members:
            error = ErrorCode.NONE
            try:
                member = classic_members.leaving_member(group, identity)
            except KafkaError as refusal:
                error = refusal.code
            else:
                leaving[member.member_id] = member
            response.members.append(
                MemberResponse(identity.member_id, identity.group_instance_id, error)
            )
        successor = None
        if leaving:
            successor = self._remove(group, list(leaving.values()), "it left", turn)
        turn.reply(token, response)
        return successor

    # ---- time

    def pass_deadline(self, group: ConsumerGroup, key: DeadlineKey, turn: Turn) -> Group | None:
        """A member has taken too long; returns the classic group that this makes of its group."""
        member = group.members.get(key.member_id)
        if member is None:
            return None
        return self._remove(group, [member], REASONS[key.kind], turn)

    def renew_session(self, group: ConsumerGroup, member_id: str, turn: Turn) -> None:
        """A sign of life that is no request: an answer that was held back has gone out."""
        member = group.members.get(member_id)
        if member is None:
            return
        timeout_ms = self._config.of(group.group_id).consumer_session_timeout_ms
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        turn.set_deadline(session_deadline(group.group_id, member_id), timeout_ms)

    # ---- administration and loading

    def describe(self, group_id: str) -> DescribedConsumerGroup | None:
        """ConsumerGroupDescribe of one group."""
        group = self._groups.get(group_id)
        return None if group is None else described(group, self._config, self._topics)

    def remove(self, group: ConsumerGroup) -> Changes:
        """Takes a group out with every record of it."""
        changes = Changes(group)
        changes.remove_all()
        del self._groups[group.group_id]
        return changes

    def replay(self, record: ConsumerRecord) -> None:
        """Applies one record from the log; a record that deletes needs no group."""
        group_id = record.key.group_id
        group = self._groups.get(group_id)
        if group is None:
            if record.value is None:
                return
            group = self._groups[group_id] = ConsumerGroup(group_id)
        group.apply(record)
        if record.value is None and _is_blank(group):
            del self._groups[group_id]

    def forget(self, group_id: str) -> None:
        """The log has a later group of another kind."""
        self._groups.pop(group_id, None)

    def finish_loading(self, turn: Turn) -> None:
        """Starts the clocks: each member has its whole time to come back."""
        for group in self._groups.values():
            for member in group.members.values():
                self.renew_session(group, member.member_id, turn)
                if member.pending_revocation and member.classic is None:
                    key = revocation_deadline(group.group_id, member.member_id)
                    turn.set_deadline(key, member.rebalance_timeout_ms)

    # ---- helpers

    def _remove(
        self, group: ConsumerGroup, members: list[ConsumerMember], reason: str, turn: Turn
    ) -> Group | None:
        """Takes members out; if only members of the classic protocol are left, the group becomes a
        classic one."""
        becomes_classic = can_downgrade(group, members, self._config, adding=0)
        changes = Changes(group)
        remove_members(changes, members, reason, turn)
        if becomes_classic:
            del self._groups[group.group_id]
            why = "the last member of the other protocol is gone"
            return downgrade(changes, self._topics, why, turn, has_lost_members=True)
        close_ranks(changes, self._topics)
        turn.append(changes.records)
        return None


def _is_blank(group: ConsumerGroup) -> bool:
    """Whether nothing is left of a group but its name."""
    return not (
        group.epoch != INITIAL_EPOCH
        or group.assignment_epoch
        or group.members
        or group.targets
        or group.regexes
        or group.has_partition_metadata
    )


def _not_found(message: str) -> KafkaError:
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, message)
