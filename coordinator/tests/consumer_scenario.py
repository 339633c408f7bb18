"""A coordinator with topics, a clock, a log and members of the consumer protocol, for tests.

Members do what real ones do: a heartbeat says what changed, a new assignment is taken over at once
or, by a member that lags, only when the test says so; what has to go is given up before what is new
is used. `Scenario` of `group_scenario.py` does the same for the classic protocol; both may be about
the same coordinator.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from asyncbroker.coordinator.config import GroupConfig
from asyncbroker.coordinator.consumer.group import ConsumerGroup
from asyncbroker.coordinator.consumer.topics import TopicPartition
from asyncbroker.coordinator.effects import Caller
from asyncbroker.coordinator.tests.fake_topics import FakeTopics
from asyncbroker.coordinator.tests.group_scenario import Scenario, Token
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.consumer_group_heartbeat import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatTopicPartitions,
)


@dataclass
class Consumer:
    """A member as it sees itself: `owned` is what it reads, `to_own` what it was told last."""

    name: str
    group: str = "g"
    topics: tuple[str, ...] | None = ("t",)
    regex: str | None = None
    instance: str | None = None
    assignor: str | None = None
    rebalance_ms: int = 60_000

    member_id: str = ""
    epoch: int = JOIN_EPOCH
    owned: set[TopicPartition] = field(default_factory=set)
    to_own: set[TopicPartition] = field(default_factory=set)
    has_news: bool = True
    lives: int = 1

    def forget_all(self) -> None:
        """Begins anew: nothing is owned, everything is told again."""
        self.epoch = JOIN_EPOCH
        self.owned, self.to_own = set(), set()
        self.has_news = True


class ConsumerScenario:
    """One coordinator and its members of the consumer protocol."""

    def __init__(self, config: GroupConfig, topics: FakeTopics) -> None:
        self.topics = topics
        self.s = Scenario(config, topics=topics)
        self.members: dict[str, Consumer] = {}

    def group(self, group_id: str = "g") -> ConsumerGroup:
        """The group inside the coordinator."""
        group = self.s.coordinator._consumers.get(group_id)
        assert group is not None
        return group

    def add(self, name: str, **options: object) -> Consumer:
        """A member that has not joined yet."""
        member = Consumer(name, **options)  # type: ignore[arg-type]
        member.member_id = f"{name}-1"
        self.members[name] = member
        return member

    def restart_member(self, name: str) -> None:
        """A new process of the member, with a new id."""
        member = self.members[name]
        member.lives += 1
        member.member_id = f"{name}-{member.lives}"
        member.forget_all()

    def heartbeat(self, name: str, *, takes_over: bool = True) -> ConsumerGroupHeartbeatResponse:
        """One heartbeat as the member would send it now, and what it makes of the answer. A member
        that lags (not `takes_over`) goes on with what it has."""
        member = self.members[name]
        is_full = member.epoch == JOIN_EPOCH or member.has_news
        request = ConsumerGroupHeartbeatRequest(
            group_id=member.group,
            member_id=member.member_id,
            member_epoch=member.epoch,
            instance_id=member.instance,
            topic_partitions=self._wire(member.owned),
        )
        if is_full:
            request.rebalance_timeout_ms = member.rebalance_ms
            request.subscribed_topic_names = list(member.topics or ())
            request.subscribed_topic_regex = member.regex
            request.server_assignor = member.assignor
        response = self.ask(name, request)
        if response.error_code in (
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.GROUP_ID_NOT_FOUND,
        ):
            member.forget_all()
        if response.error_code:
            return response
        member.has_news = False
        member.epoch = response.member_epoch
        if response.assignment is not None:
            member.to_own = {
                (topic.topic_id, index)
                for topic in response.assignment.topic_partitions
                for index in topic.partitions
            }
        if takes_over:
            self.take_over(name)
        return response

    def take_over(self, name: str) -> None:
        """The member has given up what it was to, and reads what it was given."""
        member = self.members[name]
        member.owned = set(member.to_own)

    def leave(self, name: str, *, for_a_while: bool = False) -> ConsumerGroupHeartbeatResponse:
        """The member stops."""
        member = self.members[name]
        request = ConsumerGroupHeartbeatRequest(
            group_id=member.group,
            member_id=member.member_id,
            member_epoch=LEAVE_STATIC_EPOCH if for_a_while else LEAVE_EPOCH,
            instance_id=member.instance,
        )
        member.forget_all()
        return self.ask(name, request)

    def ask(
        self, name: str, request: ConsumerGroupHeartbeatRequest, version: int = 1
    ) -> ConsumerGroupHeartbeatResponse:
        """Any heartbeat."""
        token = Token(len(self.s.tokens) + 1, "consumer_heartbeat", name)
        self.s.tokens.append(token)
        caller = Caller(version, name, "/127.0.0.1", f"unique-{len(self.s.tokens)}")
        self.s._do(self.s.coordinator.consumer_heartbeat(request, caller, token, self.s.now))
        response = self.s.replies[token]
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        return response

    def settle(self, *names: str, rounds: int = 12, seconds: float = 2.0) -> None:
        """Heartbeats of these members until nothing changes any more, as a rule."""
        for _ in range(rounds):
            for name in names or tuple(self.members):
                self.heartbeat(name)
            self.s.wait(seconds)

    def owners(self) -> dict[TopicPartition, list[str]]:
        """Who reads what, by what the members themselves do."""
        found: dict[TopicPartition, list[str]] = {}
        for member in self.members.values():
            for partition in member.owned:
                found.setdefault(partition, []).append(member.name)
        return found

    @staticmethod
    def _wire(partitions: set[TopicPartition]) -> list[HeartbeatTopicPartitions]:
        topics: dict[bytes, list[int]] = {}
        for topic_id, index in sorted(partitions):
            topics.setdefault(topic_id, []).append(index)
        return [HeartbeatTopicPartitions(*topic) for topic in topics.items()]
