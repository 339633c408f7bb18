"""What holds whatever members of the consumer protocol do: come, go, lag, fall silent, read other
topics, restart; topics that appear, grow and vanish; a broker that restarts.

The one thing above all: no two members ever read the same partition, by what they themselves do.
A member stops reading when its session ends, as real ones do, and not later than the coordinator
gives its partitions to others. And once all behave, everything that somebody wants is read.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from asyncbroker.coordinator.config import GroupConfig
from asyncbroker.coordinator.consumer.group import ConsumerGroupState
from asyncbroker.coordinator.coordinator import GroupCoordinator
from asyncbroker.coordinator.deadlines import revocation_deadline, session_deadline
from asyncbroker.coordinator.tests.consumer_scenario import ConsumerScenario
from asyncbroker.coordinator.tests.fake_topics import FakeTopics
from asyncbroker.protocol.errors import ErrorCode

DYNAMIC = ("a", "b", "c")
STATIC = ("x", "y")
names = st.sampled_from(DYNAMIC + STATIC)
topic_names = st.sampled_from(["t", "u", "tt"])
wishes = st.sampled_from([("t",), ("t", "u"), ("u",), (), ("none",)])

actions = st.one_of(
    st.tuples(st.just("beat"), names, st.booleans()),
    st.tuples(st.just("beat"), names, st.booleans()),
    st.tuples(st.just("take_over"), names),
    st.tuples(st.just("everybody")),
    st.tuples(st.just("leave"), names, st.booleans()),
    st.tuples(st.just("crash"), names),
    st.tuples(st.just("want"), names, wishes),
    st.tuples(st.just("want_regex"), names, st.sampled_from(["t.*", "u", "", "x+"])),
    st.tuples(st.just("prefer"), names, st.sampled_from(["range", "uniform"])),
    st.tuples(st.just("grow"), topic_names),
    st.tuples(st.just("create"), topic_names, st.integers(1, 5)),
    st.tuples(st.just("delete"), topic_names),
    st.tuples(st.just("wait"), st.sampled_from([0.5, 3.0, 20.0, 50.0, 70.0])),
    st.tuples(st.just("restart_broker")),
)

configs = st.builds(GroupConfig, consumer_assignment_interval_ms=st.sampled_from([0, 1_000]))


class World:
    """A scenario in which everything is checked after each step."""

    def __init__(self, config: GroupConfig) -> None:
        self.c = ConsumerScenario(config, FakeTopics(t=4, u=2))
        # Another coordinator, which only ever reads the log.
        self.follower = GroupCoordinator(config, self.c.topics)
        self.records_followed = 0

    def do(self, action: tuple[Any, ...]) -> None:
        kind, *arguments = action
        getattr(self, f"do_{kind}")(*arguments)
        self.stop_those_who_are_out()
        self.check_owners()
        self.check_group()
        self.check_log()

    def member(self, name: str) -> Any:
        member = self.c.members.get(name)
        if member is None:
            member = self.c.add(name, instance=f"i{name}" if name in STATIC else None)
        return member

    # ---- steps

    def do_beat(self, name: str, takes_over: bool) -> None:
        self.member(name)
        response = self.c.heartbeat(name, takes_over=takes_over)
        if response.error_code == ErrorCode.UNRELEASED_INSTANCE_ID:
            return
        assert response.error_code in (
            ErrorCode.NONE,
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.FENCED_INSTANCE_ID,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.GROUP_ID_NOT_FOUND,
        ), response

    def do_take_over(self, name: str) -> None:
        if name in self.c.members and self.c.members[name].epoch > 0:
            self.c.take_over(name)

    def do_everybody(self) -> None:
        self.c.settle(rounds=3, seconds=1)

    def do_leave(self, name: str, for_a_while: bool) -> None:
        if name in self.c.members and self.c.members[name].epoch > 0:
            self.c.leave(name, for_a_while=for_a_while and name in STATIC)

    def do_crash(self, name: str) -> None:
        """The process is gone without a word, and another one starts."""
        if name in self.c.members:
            self.c.restart_member(name)

    def do_want(self, name: str, wanted: tuple[str, ...]) -> None:
        member = self.member(name)
        member.topics, member.has_news = wanted, True

    def do_want_regex(self, name: str, regex: str) -> None:
        member = self.member(name)
        member.regex, member.has_news = regex, True

    def do_prefer(self, name: str, assignor: str) -> None:
        member = self.member(name)
        member.assignor, member.has_news = assignor, True

    def do_grow(self, name: str) -> None:
        info = self.c.topics.find(name)
        if info is not None and info.partition_count < 7:
            self.c.topics.grow(name, info.partition_count + 1)

    def do_create(self, name: str, partition_count: int) -> None:
        if self.c.topics.find(name) is None:
            self.c.topics.create(name, partition_count)

    def do_delete(self, name: str) -> None:
        if self.c.topics.find(name) is not None:
            self.c.topics.delete(name)

    def do_wait(self, seconds: float) -> None:
        self.c.s.wait(seconds)

    def do_restart_broker(self) -> None:
        self.c.s.restart()

    # ---- what has to hold

    def stop_those_who_are_out(self) -> None:
        """A member whose session has ended reads no more: its own clock tells it, no later than the
        coordinator's (it counts from when it sent its last heartbeat)."""
        group = self.c.s.coordinator._consumers.get("g")
        for member in self.c.members.values():
            known = group.members.get(member.member_id) if group is not None else None
            if known is None and member.owned:
                member.owned = set()
                member.to_own = set()

    def check_owners(self) -> None:
        for partition, readers in self.c.owners().items():
            assert len(readers) == 1, (partition, readers)

    def check_group(self) -> None:
        group = self.c.s.coordinator._consumers.get("g")
        if group is None:
            return
        deadlines = self.c.s.coordinator._deadlines
        owned: dict[Any, str] = {}
        for member_id, member in group.members.items():
            assert member.member_id == member_id
            assert not member.assigned.keys() & member.pending_revocation.keys()
            for partition in member.owns():
                assert partition not in owned, partition
                owned[partition] = member_id
            assert deadlines.get(session_deadline("g", member_id)) is not None
            revocation = deadlines.get(revocation_deadline("g", member_id))
            assert (revocation is not None) == bool(member.pending_revocation)
        assert owned == group.owners
        assert group.static_member_ids == {
            m.instance_id: m.member_id for m in group.members.values() if m.instance_id is not None
        }
        targets = [partition for target in group.targets.values() for partition in target]
        assert len(targets) == len(set(targets))
        for consumer in self.c.members.values():
            known = group.members.get(consumer.member_id)
            if known is not None and consumer.epoch > 0:
                assert consumer.owned <= set(known.owns()), (consumer, known)

    def check_log(self) -> None:
        """What a restart finds is what is there."""
        for key, value in self.c.s.log[self.records_followed :]:
            self.follower.replay(key, value)
        self.records_followed = len(self.c.s.log)
        here = self.c.s.coordinator._consumers.get("g")
        there = self.follower._consumers.get("g")
        if here is None or there is None:
            assert here is there
            return
        for name in ("epoch", "metadata_hash", "assignment_epoch", "members", "targets", "owners"):
            assert getattr(here, name) == getattr(there, name), name
        assert here.regexes == there.regexes
        assert here.static_member_ids == there.static_member_ids


@settings(max_examples=150, deadline=None)
@given(configs, st.lists(actions, min_size=10, max_size=50))
def test_no_partition_ever_has_two_owners(
    config: GroupConfig, steps: list[tuple[Any, ...]]
) -> None:
    world = World(config)
    for step in [("beat", "a", True), ("beat", "b", True), ("beat", "x", True), *steps]:
        world.do(step)


@settings(max_examples=100, deadline=None)
@given(configs, st.lists(actions, min_size=10, max_size=40))
def test_everything_is_read_once_all_behave(
    config: GroupConfig, steps: list[tuple[Any, ...]]
) -> None:
    world = World(config)
    for step in [("beat", "a", True), ("beat", "b", True), *steps]:
        world.do(step)
    world.c.s.wait(0.1)
    for _ in range(40):
        for name in world.c.members:
            world.do(("beat", name, True))
        world.c.s.wait(3)
    c = world.c
    group = c.group()
    wanted: set[str] = set()
    for member in c.members.values():
        wanted |= set(member.topics or ())
        if member.regex == "t.*":
            wanted |= {name for name in c.topics.names() if name.startswith("t")}
        elif member.regex == "u":
            wanted.add("u")
    assert set(group.members) == {member.member_id for member in c.members.values()}
    if wanted:
        assert group.state is ConsumerGroupState.STABLE
    assert set(c.owners()) == c.topics.partitions(*wanted)
