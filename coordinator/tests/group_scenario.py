"""A coordinator with a clock, a log and some clients, for tests: no IO, nothing random.

Clients remember what the coordinator told them (member id, generation), as real ones do, so that a
test says `s.join("a")` and not what the request looks like. Replies are collected by token; records
go to a list which `restart` replays into a new coordinator.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from asyncbroker.coordinator.config import GroupConfig
from asyncbroker.coordinator.consumer.topics import TopicView
from asyncbroker.coordinator.coordinator import GroupCoordinator
from asyncbroker.coordinator.effects import Append, Caller, Effect, Instant, Record, Reply
from asyncbroker.coordinator.tests.fake_topics import FakeTopics
from asyncbroker.protocol.consumer_protocol import (
    ConsumerProtocolSubscription,
    encode_subscription,
)
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.heartbeat import HeartbeatRequest
from asyncbroker.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from asyncbroker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from asyncbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from asyncbroker.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from asyncbroker.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from asyncbroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment


class Token(NamedTuple):
    """A request: its number, its API, and who sent it."""

    number: int
    api: str
    client: str


@dataclass
class Client:
    """What a client is configured with, and what it has been told."""

    name: str
    group: str = "g"
    instance: str | None = None
    protocols: tuple[str, ...] = ("range",)
    topics: tuple[str, ...] = ("t",)
    protocol_type: str = "consumer"
    session_ms: int = 10_000
    rebalance_ms: int = 60_000
    version: int = 9
    reason: str | None = None

    member_id: str = ""
    generation: int = -1


@dataclass
class Scenario:
    """One partition's coordinator and its world."""

    config: GroupConfig = field(default_factory=GroupConfig)
    topics: TopicView = field(default_factory=FakeTopics)
    partitions: set[tuple[str, int]] = field(default_factory=lambda: {("t", 0), ("t", 1), ("u", 0)})

    def __post_init__(self) -> None:
        self.coordinator = GroupCoordinator(self.config, self.topics)
        self.now = Instant(0.0, 1_000_000)
        self.clients: dict[str, Client] = {}
        self.log: list[Record] = []
        self.replies: dict[Token, Any] = {}
        self.tokens: list[Token] = []
        self.forgotten: set[Token] = set()
        self.effects: list[Effect] = []
        self.coordinator.finish_loading(self.now)

    # ---- clients

    def client(self, name: str, **options: Any) -> Client:
        """The client of this name, configured anew with the options given."""
        known = self.clients.get(name) or Client(name)
        self.clients[name] = replace(known, **options)
        return self.clients[name]

    def join(self, name: str, **options: Any) -> Token:
        """JoinGroup as the client would send it; options are those of `Client`."""
        client = self.client(name, **options)
        metadata = encode_subscription(ConsumerProtocolSubscription(topics=list(client.topics)))
        token = self._token("join", name)
        request = JoinGroupRequest(
            group_id=client.group,
            session_timeout_ms=client.session_ms,
            rebalance_timeout_ms=client.rebalance_ms if client.version >= 1 else -1,
            member_id=client.member_id,
            group_instance_id=client.instance,
            protocol_type=client.protocol_type,
            protocols=[JoinGroupRequestProtocol(name, metadata) for name in client.protocols],
            reason=client.reason,
        )
        self._do(self.coordinator.join(request, self._caller(client), token, self.now))
        return token

    def enter(self, name: str, **options: Any) -> Token:
        """JoinGroup, and again with the member id that the first one brings (KIP-394)."""
        token = self.join(name, **options)
        if self.error(token) is ErrorCode.MEMBER_ID_REQUIRED:
            token = self.join(name)
        return token

    def sync(
        self,
        name: str,
        assignments: dict[str, bytes] | None = None,
        **fields: Any,
    ) -> Token:
        """SyncGroup; assignments are by client name, or by member id for unknown names."""
        client = self.clients[name]
        token = self._token("sync", name)
        request = SyncGroupRequest(
            group_id=client.group,
            generation_id=client.generation,
            member_id=client.member_id,
            group_instance_id=client.instance,
            assignments=[
                SyncGroupRequestAssignment(
                    self.clients[who].member_id if who in self.clients else who, assignment
                )
                for who, assignment in (assignments or {}).items()
            ],
        )
        for key, value in fields.items():
            setattr(request, key, value)
        self._do(self.coordinator.sync(request, token, self.now))
        return token

    def heartbeat(self, name: str, **fields: Any) -> ErrorCode:
        """Heartbeat, and what came back."""
        client = self.clients[name]
        token = self._token("heartbeat", name)
        request = HeartbeatRequest(
            client.group, client.generation, client.member_id, client.instance
        )
        for key, value in fields.items():
            setattr(request, key, value)
        self._do(self.coordinator.heartbeat(request, token, self.now))
        error = self.error(token)
        assert error is not None
        return error

    def leave(self, *names: str, by_instance: bool = False, group: str | None = None) -> Token:
        """LeaveGroup of some clients; by their instance ids alone, as an administrator does."""
        clients = [self.clients[name] for name in names]
        token = self._token("leave", ",".join(names))
        request = LeaveGroupRequest(
            group_id=group if group is not None else clients[0].group,
            members=[
                MemberIdentity("" if by_instance else client.member_id, client.instance)
                for client in clients
            ],
        )
        self._do(self.coordinator.leave(request, token, self.now))
        return token

    def commit(self, name: str, offsets: dict[tuple[str, int], int], **fields: Any) -> Token:
        """OffsetCommit of a member, or of nobody in particular if the client never joined."""
        client = self.clients.get(name) or self.client(name)
        token = self._token("commit", name)
        options = {key: fields.pop(key) for key in ("metadata", "leader_epoch") if key in fields}
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for (topic, partition), offset in offsets.items():
            topics.setdefault(topic, OffsetCommitRequestTopic(topic)).partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=offset,
                    committed_leader_epoch=options.get("leader_epoch", -1),
                    committed_metadata=options.get("metadata", ""),
                )
            )
        request = OffsetCommitRequest(
            group_id=client.group,
            generation_id_or_member_epoch=client.generation,
            member_id=client.member_id,
            group_instance_id=client.instance,
            topics=list(topics.values()),
        )
        for key, value in fields.items():
            setattr(request, key, value)
        self._do(
            self.coordinator.commit_offsets(
                request, self._caller(client), token, self.exists, self.now
            )
        )
        return token

    def fetch(
        self,
        group: str = "g",
        partitions: list[tuple[str, int]] | None = None,
        *,
        require_stable: bool = False,
    ) -> Any:
        """OffsetFetch of one group, all topics by default: the response's group."""
        token = self._token("fetch", group)
        topics = None
        if partitions is not None:
            topics = [
                OffsetFetchRequestTopics(topic, partition_indexes=[index])
                for topic, index in partitions
            ]
        request = OffsetFetchRequestGroup(group_id=group, topics=topics)
        self._do(
            self.coordinator.fetch_offsets(request, token, self.now, require_stable=require_stable)
        )
        return self.replies[token]

    def offsets(self, group: str = "g") -> dict[tuple[str, int], int]:
        """All committed offsets of a group."""
        return {
            (topic.name, partition.partition_index): partition.committed_offset
            for topic in self.fetch(group).topics
            for partition in topic.partitions
        }

    def delete_offsets(self, partitions: list[tuple[str, int]], group: str = "g") -> Token:
        """OffsetDelete."""
        token = self._token("delete_offsets", group)
        topics = [
            OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(index)])
            for topic, index in partitions
        ]
        request = OffsetDeleteRequest(group, topics)
        self._do(self.coordinator.delete_offsets(request, token, self.exists, self.now))
        return token

    def delete(self, group: str = "g") -> ErrorCode:
        """DeleteGroups of one group, and what came back."""
        token = self._token("delete", group)
        self._do(self.coordinator.delete(group, token, self.now))
        return ErrorCode(self.replies[token].error_code)

    def delete_topic(self, topic: str) -> None:
        """The topic is deleted."""
        self.partitions = {key for key in self.partitions if key[0] != topic}
        self._do(self.coordinator.on_topics_deleted([topic], self.now))

    def lose_connection(self, token: Token) -> None:
        """The connection of a waiting request breaks."""
        self.forgotten.add(token)
        group = self.clients[token.client].group
        self._do(self.coordinator.forget(token, group, self.now))

    # ---- the world

    def wait(self, seconds: float) -> None:
        """Lets time pass, with everything that falls due on the way."""
        end = self.now.monotonic + seconds
        while (deadline := self.coordinator.next_deadline()) is not None and deadline <= end:
            self._move_to(max(deadline, self.now.monotonic))
            self._do(self.coordinator.expire(self.now))
        self._move_to(end)

    def restart(self) -> None:
        """A new coordinator that knows only the log; requests that waited are lost."""
        self.forgotten.update(token for token in self.tokens if token not in self.replies)
        self.coordinator = GroupCoordinator(self.config, self.topics)
        for key, value in self.log:
            self.coordinator.replay(key, value)
        self._do(self.coordinator.finish_loading(self.now))

    def exists(self, topic: str, partition: int) -> bool:
        """Whether there is such a partition."""
        return (topic, partition) in self.partitions

    # ---- what came of it

    def error(self, token: Token) -> ErrorCode | None:
        """The error of an answer, NONE included; None while there is no answer."""
        if token not in self.replies:
            return None
        return ErrorCode(self.replies[token].error_code)

    def partition_errors(self, token: Token) -> dict[tuple[str, int], ErrorCode]:
        """The outcomes of an OffsetCommit or an OffsetDelete."""
        return {
            (topic.name, partition.partition_index): ErrorCode(partition.error_code)
            for topic in self.replies[token].topics
            for partition in topic.partitions
        }

    def state(self, group: str = "g") -> str:
        """The group's state by DescribeGroups."""
        return self.coordinator.describe(group).group_state

    def is_waiting(self, token: Token) -> bool:
        """Whether a request has had no answer yet."""
        return token not in self.replies

    def _caller(self, client: Client) -> Caller:
        return Caller(client.version, client.name, "/127.0.0.1", str(len(self.tokens)))

    def _token(self, api: str, client: str) -> Token:
        token = Token(len(self.tokens) + 1, api, client)
        self.tokens.append(token)
        return token

    def _move_to(self, monotonic: float) -> None:
        wall_ms = self.now.wall_ms + round((monotonic - self.now.monotonic) * 1000)
        self.now = Instant(monotonic, wall_ms)

    def _do(self, effects: list[Effect]) -> None:
        """Carries the effects out: appends to the log, replies to the clients."""
        self.effects.extend(effects)
        for effect in effects:
            if isinstance(effect, Append):
                self.log.extend(effect.records)
            elif isinstance(effect, Reply):
                token = effect.token
                assert isinstance(token, Token)
                assert token not in self.replies, f"{token} is answered twice"
                assert token not in self.forgotten, f"{token} is answered, but forgotten"
                self.replies[token] = effect.response
                if isinstance(effect.response, JoinGroupResponse):
                    self._learn(token.client, effect.response)

    def _learn(self, name: str, response: JoinGroupResponse) -> None:
        client = self.clients[name]
        if response.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            client.member_id = response.member_id
            client.generation = response.generation_id
        elif response.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            client.member_id = ""
            client.generation = -1


def stable_group(*names: str, config: GroupConfig | None = None, **options: Any) -> Scenario:
    """A stable group of these clients, the first one leading; each is assigned its own name."""
    s = Scenario(config or GroupConfig())
    for name in names:
        s.enter(name, **options)
    settle(s, *names)
    return s


def settle(s: Scenario, *names: str) -> None:
    """Ends the join phase by waiting, and lets all sync, the leader last."""
    s.wait(s.config.initial_rebalance_delay_ms / 1000 * (len(names) + 1))
    leader = leader_of(s, names)
    for name in names:
        if name != leader:
            s.sync(name)
    s.sync(leader, {name: name.encode() for name in names})
    assert s.state(s.clients[leader].group) == "Stable"


def leader_of(s: Scenario, names: tuple[str, ...]) -> str:
    """The client that the last answers to JoinGroup call the leader."""
    for token in reversed(s.tokens):
        reply = s.replies.get(token)
        if isinstance(reply, JoinGroupResponse) and reply.leader and token.client in names:
            return next(n for n in names if s.clients[n].member_id == reply.leader)
    raise AssertionError("nobody has joined")
