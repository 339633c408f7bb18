"""Consumers: one that reads on its own, and a member of a group that commits what it has read."""

from __future__ import annotations

import json
from typing import Final

from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from asyncbroker.protocol.messages.heartbeat import HeartbeatRequest
from asyncbroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from asyncbroker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from asyncbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from asyncbroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from asyncbroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from asyncbroker.tests.history.history import Assigned, Commit, Committed, Joined, Outcome
from asyncbroker.tests.simulation.client import PASSING, Client, Shared, place_of
from asyncbroker.tests.simulation.fetching import (
    FetchSession,
    Key,
    fetch,
    next_position,
    offset_at,
)
from asyncbroker.tests.simulation.link import Lost

SESSION_MS: Final = 1500
HEARTBEAT_SECONDS: Final = 0.3


class Reader(Client):
    """Reads all partitions of some topics, from the beginning, over and over, in a fetch session
    or without one; in the end up to what was the end when all faults were over."""

    def __init__(self, shared: Shared, name: str, topics: list[str]) -> None:
        super().__init__(shared, name)
        self._topics = topics
        self._positions: dict[Key, int] = {}
        self._session = FetchSession() if self.random.random() < 0.7 else None

    async def run(self) -> None:
        """Reads until the run is finishing, and then to the end."""
        positions = self._positions
        while not self.shared.is_finishing:
            for topic in self._topics:
                for index in range(self.shared.topics.get(topic, 0)):
                    positions.setdefault((topic, index), 0)
            await self.pause(0.1)
            if positions:
                await self._read(self.random.choice([1, 300, 4096]))
            if positions and self.random.random() < 0.05:
                # Reads something again: it must be what it was.
                key = self.random.choice(list(positions))
                positions[key] = self.random.randint(0, positions[key])
        ends = {key: await offset_at(self, key, -1) for key in positions}
        while any(positions[key] < end for key, end in ends.items()):
            await self._read(self.random.choice([300, 4096]))
        self.disconnect()
        self.is_done = True

    async def _read(self, partition_bytes_max: int) -> None:
        try:
            fetched = await fetch(
                self,
                self._positions,
                wait_ms=self.random.choice([0, 50, 500]),
                partition_bytes_max=partition_bytes_max,
                session=self._session,
            )
        except Lost:
            await self.pause(0.1)
            return
        for key, answer in fetched.items():
            self._positions[key] = await next_position(self, key, self._positions[key], answer)


class Rejoin(Exception):
    """The member has to join again."""


class Member(Client):
    """A member of a group, dynamic or (with an instance) static."""

    def __init__(
        self, shared: Shared, name: str, group: str, topics: list[str], instance: str | None
    ) -> None:
        super().__init__(shared, name)
        self._group = group
        self._topics = topics
        self._instance = instance
        self._member_id = ""
        self._generation = -1
        self._owned: list[Key] = []
        self._positions: dict[Key, int] = {}
        self._committed: dict[Key, int] = {}
        self._has_committed = False
        self._session = FetchSession() if self.random.random() < 0.5 else None

    async def run(self) -> None:
        """Joins, reads and commits, and joins again, until the run is finishing and a last round
        has gone well."""
        while not (self.shared.is_finishing and self._has_committed):
            try:
                await self._join()
                await self._live()
            except Rejoin:
                await self.pause(0.1)
            except Lost:
                await self.pause(0.2)
        self.disconnect()
        self.is_done = True

    # ---- joining

    async def _join(self) -> None:
        """Gets into the next generation, and learns what is ours in it."""
        await self._find_coordinator()
        started = self.now
        version = self.shared.versions["JoinGroup"]
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            member_id=self._member_id,
            group_instance_id=self._instance if version >= 5 else None,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", b"")],
        )
        response = await self.ask("JoinGroup", request)
        code = ErrorCode(response.error_code)
        self.note("join", code.name, response.generation_id, response.member_id[-6:])
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = response.member_id
            raise Rejoin
        self._check(code)
        self._member_id, self._generation = response.member_id, response.generation_id
        self.shared.history.add(
            Joined(
                self.name,
                self._group,
                self._generation,
                self._member_id,
                self._instance_id(),
                started,
                self.now,
            )
        )
        members = [member.member_id for member in response.members]
        await self._sync(members if response.leader == self._member_id else [])

    async def _sync(self, members: list[str]) -> None:
        parts: dict[str, list[Key]] = {member: [] for member in members}
        keys = [
            (topic, index)
            for topic in self._topics
            for index in range(self.shared.topics.get(topic, 0))
        ]
        for number, key in enumerate(keys):
            if members:
                parts[members[number % len(members)]].append(key)
        started = self.now
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._instance_id(),
            assignments=[
                SyncGroupRequestAssignment(member, json.dumps(part).encode())
                for member, part in parts.items()
            ],
        )
        if self.shared.versions["SyncGroup"] >= 5:
            request.protocol_type, request.protocol_name = "consumer", "range"
        response = await self.ask("SyncGroup", request)
        code = ErrorCode(response.error_code)
        self._check(code)
        part = json.loads(response.assignment or b"[]")
        self._owned = [(topic, index) for topic, index in part]
        self.note("generation", self._generation, self._owned)
        self.shared.history.add(
            Assigned(
                self.name,
                self._group,
                self._generation,
                self._member_id,
                self._instance_id(),
                frozenset(place_of(*key) for key in self._owned),
                started,
                self.now,
            )
        )

    def _instance_id(self) -> str | None:
        return self._instance if self.shared.versions["JoinGroup"] >= 5 else None

    def _check(self, code: ErrorCode) -> None:
        """Raises Rejoin for what makes a member join again."""
        if code is ErrorCode.NONE:
            return
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self._member_id = ""
            self._generation = -1
        elif code not in PASSING and code not in (
            ErrorCode.REBALANCE_IN_PROGRESS,
            ErrorCode.ILLEGAL_GENERATION,
        ):
            self.shared.complain(self.name, f"group {self._group}: {code.name}")
        raise Rejoin

    async def _find_coordinator(self) -> None:
        version = self.shared.versions["FindCoordinator"]
        request = (
            FindCoordinatorRequest(key=self._group)
            if version < 4
            else FindCoordinatorRequest(coordinator_keys=[self._group])
        )
        response = await self.ask("FindCoordinator", request)
        answer = response if version < 4 else response.coordinators[0]
        self._check(ErrorCode(answer.error_code))

    # ---- a generation

    async def _live(self) -> None:
        """Reads what is ours and commits, until the generation ends. Raises Rejoin, Lost."""
        await self._read_committed()
        while True:
            if self._owned:
                fetched = await fetch(
                    self,
                    {key: self._positions[key] for key in self._owned},
                    wait_ms=self.random.choice([0, 100, 300]),
                    session=self._session,
                )
                for key, answer in fetched.items():
                    self._positions[key] = await next_position(
                        self, key, self._positions[key], answer
                    )
            if self.random.random() < 0.6 or self.shared.is_finishing:
                await self._commit()
            await self._heartbeat()
            if self.shared.is_finishing:
                self._has_committed = True
                return
            await self.pause(HEARTBEAT_SECONDS)
            await self._misbehave()

    async def _misbehave(self) -> None:
        chance = self.random.random()
        if chance < 0.03:
            self.note("crashes")
            self.disconnect()
            await self.pause(2.5 * SESSION_MS / 1000)
            self._member_id = ""
            raise Rejoin
        if chance < 0.10:
            # Out for longer than its session, and does not know it when it comes back.
            self.note("sleeps")
            await self.sleep((1.0 + 2.0 * self.random.random()) * SESSION_MS / 1000)
        elif chance < 0.12:
            await self._leave()
            raise Rejoin

    async def _heartbeat(self) -> None:
        request = HeartbeatRequest(
            self._group, self._generation, self._member_id, self._instance_id()
        )
        response = await self.ask("Heartbeat", request)
        self._check(ErrorCode(response.error_code))

    async def _leave(self) -> None:
        identity = MemberIdentity(self._member_id, self._instance_id())
        request = LeaveGroupRequest(self._group, members=[identity])
        if self.shared.versions["LeaveGroup"] < 3:
            request = LeaveGroupRequest(self._group, member_id=self._member_id)
        response = await self.ask("LeaveGroup", request)
        self.note("leaves", ErrorCode(response.error_code).name)
        self._member_id = ""

    # ---- offsets

    async def _read_committed(self) -> None:
        """Learns where to begin in what is ours."""
        if not self._owned:
            return
        indexes: dict[str, list[int]] = {}
        for topic, index in self._owned:
            indexes.setdefault(topic, []).append(index)
        offsets = await committed(self, self._group, indexes)
        if offsets is None:
            raise Rejoin
        for key in self._owned:
            self._positions[key] = max(0, offsets[key])

    async def _commit(self) -> None:
        if not self._owned:
            return
        keys = [key for key in self._owned if self.random.random() < 0.7]
        commits = {
            key: Commit(
                self.name,
                self._group,
                place_of(*key),
                self._positions[key],
                self.now,
                self._member_id,
                self._generation,
            )
            for key in keys
        }
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for (topic, index), commit in commits.items():
            self.shared.history.add(commit)
            of_topic = topics.setdefault(topic, OffsetCommitRequestTopic(topic))
            of_topic.partitions.append(OffsetCommitRequestPartition(index, commit.offset, -1, ""))
        if not topics:
            return
        request = OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member_id,
            group_instance_id=self._instance_id(),
            topics=list(topics.values()),
        )
        response = await self.ask("OffsetCommit", request)
        codes: list[ErrorCode] = []
        for answer in response.topics:
            for partition in answer.partitions:
                commit = commits[answer.name, partition.partition_index]
                code = ErrorCode(partition.error_code)
                codes.append(code)
                commit.ended, commit.error = self.now, code.name
                if code is ErrorCode.NONE:
                    commit.outcome = Outcome.OK
                elif code not in PASSING:
                    commit.outcome = Outcome.FAIL
        self.note("commit", {key: commit.offset for key, commit in commits.items()}, codes[0].name)
        for code in codes:
            self._check(code)


async def committed(
    client: Client, group: str, indexes: dict[str, list[int]]
) -> dict[Key, int] | None:
    """Asks for a group's offsets, and puts them into the history; None when it must be asked
    again. Raises Lost."""
    version = client.shared.versions["OffsetFetch"]
    topics = [
        OffsetFetchRequestTopics(topic, partition_indexes=wanted)
        for topic, wanted in indexes.items()
    ]
    if version >= 8:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=topics)])
    else:
        request = OffsetFetchRequest(group_id=group, topics=topics)  # type: ignore[arg-type]
    started = client.now
    response = await client.ask("OffsetFetch", request)
    answer = response.groups[0] if version >= 8 else response
    if (code := ErrorCode(answer.error_code)) is not ErrorCode.NONE:
        if code not in PASSING:
            client.shared.complain(client.name, f"offsets of {group}: {code.name}")
        return None
    offsets: dict[Key, int] = {}
    for topic in answer.topics:
        for partition in topic.partitions:
            key = (topic.name, partition.partition_index)
            if ErrorCode(partition.error_code) is not ErrorCode.NONE:
                return None
            offsets[key] = partition.committed_offset
            client.shared.history.add(
                Committed(
                    client.name,
                    group,
                    place_of(*key),
                    partition.committed_offset,
                    started,
                    client.now,
                )
            )
    client.note("committed", group, offsets)
    return offsets
