"""A classic group: its states, which may follow which, and its members.

This file holds what a group is and the questions one can ask it. What moves it from state to
state is in `join.py` (JoinGroup), `sync.py` (SyncGroup, Heartbeat, LeaveGroup) and `rebalance.py`
(the two phases of a rebalance, and the deadlines).
"""

from __future__ import annotations

from collections import Counter
from enum import Enum
from typing import Final

from asyncbroker.coordinator.member import Member
from asyncbroker.coordinator.subscription import topics_of
from asyncbroker.protocol.consumer_protocol import PROTOCOL_TYPE as CONSUMER_PROTOCOL_TYPE
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.describe_groups import DescribedGroup
from asyncbroker.protocol.messages.list_groups import ListedGroup

NO_GENERATION: Final = -1
CLASSIC_TYPE: Final = "classic"


class GroupState(Enum):
    """The states by the names that DescribeGroups and ListGroups show."""

    EMPTY = "Empty"
    """No members: only offsets, or new member ids that nobody has used yet.

    JoinGroup      admits a member, which starts the initial rebalance
    SyncGroup      UNKNOWN_MEMBER_ID
    Heartbeat      UNKNOWN_MEMBER_ID
    LeaveGroup     UNKNOWN_MEMBER_ID for each member, but takes back an unused member id
    OffsetCommit   only without a generation ("standalone"); otherwise UNKNOWN_MEMBER_ID
    OffsetFetch    answers, as in every state
    DeleteGroups   deletes

    Left by the first member (PreparingRebalance), by DeleteGroups and by the expiry of the last
    offset (Dead).
    """

    PREPARING_REBALANCE = "PreparingRebalance"
    """The join phase: members join again, or for the first time, and wait for the others.

    JoinGroup      parks, until all members have joined or the rebalance timeout has passed
    SyncGroup      REBALANCE_IN_PROGRESS
    Heartbeat      REBALANCE_IN_PROGRESS, and counts as a sign of life
    LeaveGroup     removes the member, which may complete the phase
    OffsetCommit   from members of the old generation: so that they can commit what they have read
                   before they give up their partitions
    DeleteGroups   NON_EMPTY_GROUP

    Left when the phase is complete: with members (CompletingRebalance), or without (Empty).
    """

    COMPLETING_REBALANCE = "CompletingRebalance"
    """The sync phase: the generation is numbered, its leader makes the assignment.

    JoinGroup      unchanged member: answers the generation again, its first answer may be lost;
                   a new or changed one: starts over
    SyncGroup      parks followers; the leader's brings the assignment and answers all
    Heartbeat      answers, and counts as a sign of life
    LeaveGroup     removes the member and starts over
    OffsetCommit   REBALANCE_IN_PROGRESS: the old generation is over
    DeleteGroups   NON_EMPTY_GROUP

    Left by the leader's SyncGroup (Stable), by any change of the members (PreparingRebalance).
    """

    STABLE = "Stable"
    """Every member has its assignment, or can fetch it.

    JoinGroup      unchanged follower: answers the current generation; a new or changed member, or
                   the leader: starts a rebalance; a known static member with a new process: takes
                   its old place without one (KIP-345)
    SyncGroup      answers the member's assignment
    Heartbeat      answers, and counts as a sign of life
    LeaveGroup     removes the member and starts a rebalance
    OffsetCommit   from members of this generation; counts as a sign of life
    DeleteGroups   NON_EMPTY_GROUP

    Left by any change of the members (PreparingRebalance).
    """

    DEAD = "Dead"
    """Deleted. The group is no longer in the coordinator's table, so requests do not find it and
    are answered as for a group that never was; DescribeGroups calls such groups "Dead" too.
    """


TRANSITIONS: Final[dict[GroupState, frozenset[GroupState]]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.STABLE, GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.DEAD: frozenset(),
}


class Group:
    """One group by its id. `protocol_type` is None as long as no member ever joined ("simple"
    groups only store offsets); `state_since_ms` is None when an old record did not tell."""

    __slots__ = (
        "generation_id",
        "group_id",
        "has_grown",
        "initial_delay_left_ms",
        "is_initial_rebalance",
        "leader_id",
        "members",
        "pending_member_ids",
        "pending_sync_ids",
        "protocol_name",
        "protocol_type",
        "state",
        "state_since_ms",
        "static_member_ids",
        "subscribed_topics",
    )

    def __init__(self, group_id: str, now_ms: int | None) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_since_ms = now_ms
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None

        # In the order in which they came: the first joiner leads, and the next one after it.
        self.members: dict[str, Member] = {}
        self.static_member_ids: dict[str, str] = {}
        # Ids given out with MEMBER_ID_REQUIRED that have not come back yet (KIP-394).
        self.pending_member_ids: set[str] = set()
        self.pending_sync_ids: set[str] = set()

        # The first rebalance of an empty group waits a little for more members to arrive.
        self.is_initial_rebalance = False
        self.has_grown = False
        self.initial_delay_left_ms = 0

        # What the members of a consumer group read; None when that is not known.
        self.subscribed_topics: frozenset[str] | None = None

    # ---- state

    def move_to(self, state: GroupState, now_ms: int) -> None:
        """Changes the state along the table of transitions."""
        if state not in TRANSITIONS[self.state]:
            raise AssertionError(f"group {self.group_id} from {self.state.name} to {state.name}")
        self.state = state
        self.state_since_ms = now_ms

    def is_in(self, *states: GroupState) -> bool:
        """Whether the state is one of these."""
        return self.state in states

    def is_unused(self) -> bool:
        """Whether nobody is in the group or about to be."""
        return self.state is GroupState.EMPTY and not self.pending_member_ids

    # ---- members

    def add(self, member: Member, protocol_type: str) -> None:
        """Takes a member in; the first one sets the protocol type and leads."""
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self.pending_member_ids.discard(member.member_id)
        if member.group_instance_id is not None:
            self.static_member_ids[member.group_instance_id] = member.member_id

    def remove(self, member_id: str) -> None:
        """Takes a member or a pending id out; leadership goes to the member that came next."""
        self.pending_member_ids.discard(member_id)
        self.pending_sync_ids.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is not None and member.group_instance_id is not None:
            del self.static_member_ids[member.group_instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)

    def rename_static_member(self, old_member_id: str, new_member_id: str) -> Member:
        """Gives a static member the id of its new process; its part, and its lead, stay."""
        member = self.members.pop(old_member_id)
        assert member.group_instance_id is not None
        member.member_id = new_member_id
        self.members[new_member_id] = member
        self.static_member_ids[member.group_instance_id] = new_member_id
        if old_member_id in self.pending_sync_ids:
            self.pending_sync_ids.remove(old_member_id)
            self.pending_sync_ids.add(new_member_id)
        if self.leader_id == old_member_id:
            self.leader_id = new_member_id
        return member

    def check_member(self, member_id: str, group_instance_id: str | None) -> Member:
        """The member that a request names.

        Raises UNKNOWN_MEMBER_ID; or FENCED_INSTANCE_ID when its instance id has gone to another
        process, which has to stop the older one (KIP-345).
        """
        if group_instance_id is not None:
            current_id = self.static_member_ids.get(group_instance_id)
            if current_id is not None and current_id != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
            if current_id is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def rebalance_timeout_ms(self) -> int:
        """The patience of the most patient member."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def have_all_joined(self) -> bool:
        """Whether the join phase has nobody to wait for."""
        if self.pending_member_ids:
            return False
        return all(member.has_joined for member in self.members.values())

    def elect_joined_leader(self) -> bool:
        """Keeps the leader if it has joined, or else the first member that has; False: none has."""
        leader = self.members.get(self.leader_id) if self.leader_id is not None else None
        if leader is not None and leader.has_joined:
            return True
        for member in self.members.values():
            if member.has_joined:
                self.leader_id = member.member_id
                return True
        return False

    # ---- from outside

    def listed(self) -> ListedGroup:
        """The group as ListGroups shows it."""
        return ListedGroup(
            group_id=self.group_id,
            protocol_type=self.protocol_type or "",
            group_state=self.state.value,
            group_type=CLASSIC_TYPE,
        )

    def described(self) -> DescribedGroup:
        """The group as DescribeGroups shows it; the metadata only while it is stable."""
        protocol_name = self.protocol_name if self.state is GroupState.STABLE else None
        return DescribedGroup(
            group_id=self.group_id,
            group_state=self.state.value,
            protocol_type=self.protocol_type or "",
            protocol_data=protocol_name or "",
            members=[member.described_member(protocol_name) for member in self.members.values()],
        )

    # ---- protocols

    def supports(self, protocol_type: str, protocols: dict[str, bytes]) -> bool:
        """Whether a member with these protocols fits in: the same type, and a protocol in common
        with all. Members that rejoin are held against their own old protocols too, as in Kafka."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        if protocol_type != self.protocol_type:
            return False
        members = self.members.values()
        return any(all(name in member.protocols for member in members) for name in protocols)

    def select_protocol(self) -> str:
        """The protocol with the most votes, among those that all members support; of two with as
        many votes the one whose first vote came first."""
        members = list(self.members.values())
        candidates = set(members[0].protocols).intersection(*(m.protocols for m in members[1:]))
        votes = Counter(member.vote(candidates) for member in members)
        return votes.most_common(1)[0][0]

    def start_next_generation(self, now_ms: int) -> None:
        """Ends the join phase: the generation goes up by one, also when nobody is left."""
        self.generation_id += 1
        self.is_initial_rebalance = False
        self.has_grown = False
        self.pending_sync_ids.clear()
        self.protocol_name = self.select_protocol() if self.members else None
        self.refresh_subscribed_topics()
        if self.members:
            self.move_to(GroupState.COMPLETING_REBALANCE, now_ms)
        else:
            self.move_to(GroupState.EMPTY, now_ms)

    def refresh_subscribed_topics(self) -> None:
        """Works out what a consumer group reads, from its members' metadata."""
        self.subscribed_topics = None
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return
        topics: set[str] = set()
        for member in self.members.values():
            if self.protocol_name is None:
                return
            member_topics = topics_of(member.protocols[self.protocol_name])
            if member_topics is None:
                return
            topics |= member_topics
        self.subscribed_topics = frozenset(topics)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member may be reading the topic; in doubt, a consumer group is."""
        if self.subscribed_topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return topic in self.subscribed_topics
