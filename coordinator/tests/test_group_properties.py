"""What holds whatever clients do: random requests, silences, broken connections and restarts.

The clients here do not behave. They join and sync when it makes no sense, name members they are
not, and vanish. After every step the group has to make sense all the same; and when those that are
left start to behave, the group has to become stable.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from asyncbroker.coordinator.config import GroupConfig
from asyncbroker.coordinator.coordinator import GroupCoordinator
from asyncbroker.coordinator.deadlines import join_deadline, session_deadline, sync_deadline
from asyncbroker.coordinator.effects import Append, Note
from asyncbroker.coordinator.group import Group, GroupState
from asyncbroker.coordinator.tests.fake_topics import FakeTopics
from asyncbroker.coordinator.tests.group_scenario import Scenario, Token
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.join_group import JoinGroupResponse
from asyncbroker.protocol.messages.sync_group import SyncGroupResponse

DYNAMIC = ("a", "b", "c")
STATIC = ("x", "y")
NAMES = DYNAMIC + STATIC

names = st.sampled_from(NAMES)
versions = st.sampled_from([0, 3, 4, 8, 9])
actions = st.one_of(
    st.tuples(st.just("behave")),
    st.tuples(st.just("behave")),
    st.tuples(st.just("settle")),
    st.tuples(st.just("join"), names, versions, st.sampled_from([("t",), ("t", "u")])),
    st.tuples(st.just("join_anew"), names, versions, st.just(("t",))),
    st.tuples(st.just("sync"), names),
    st.tuples(st.just("heartbeat"), names),
    st.tuples(st.just("leave"), names, st.booleans()),
    st.tuples(st.just("commit"), names),
    st.tuples(st.just("lose"), names),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 1.0, 3.0, 9.0, 20.0, 61.0])),
    st.tuples(st.just("restart")),
)
# Without clients nothing happens, so there are some to begin with.
BEGINNING: list[tuple[Any, ...]] = [
    ("join", name, version, ("t",)) for name, version in (("a", 9), ("b", 3), ("x", 9))
]

configs = st.builds(
    GroupConfig,
    initial_rebalance_delay_ms=st.sampled_from([0, 3_000]),
    member_count_max=st.sampled_from([2, 100]),
)


@dataclass
class World:
    """A scenario, and what has been seen in it so far."""

    s: Scenario
    generation: int = 0
    # By client: the generation it last synced in, and the request.
    syncs: dict[str, tuple[int, Token]] = field(default_factory=dict)

    def group(self) -> Group | None:
        return self.s.coordinator._groups.get("g")

    def member_ids(self) -> set[str]:
        group = self.group()
        return set(group.members) if group is not None else set()

    def do(self, action: tuple[Any, ...]) -> None:
        """One step, and everything that has to hold after it."""
        before = self.member_ids()
        self.s.effects.clear()
        kind, *arguments = action
        getattr(self, f"do_{kind}")(*arguments)
        if kind == "restart":
            group = self.group()
            self.generation = group.generation_id if group is not None else 0
        else:
            self.check_removals(before)
        self.check_generations()
        self.check_replies()
        self.check_group()
        self.check_log()

    # ---- steps

    def do_join(self, name: str, version: int, topics: tuple[str, ...]) -> None:
        instance = f"i{name}" if name in STATIC and version >= 5 else None
        self.s.join(
            name, version=version, topics=topics, instance=instance, protocols=("range", "own")
        )

    def do_join_anew(self, name: str, version: int, topics: tuple[str, ...]) -> None:
        self.s.client(name, member_id="", generation=-1)
        self.do_join(name, version, topics)

    def do_sync(self, name: str) -> None:
        if name in self.s.clients:
            self.s.sync(name, {who: who.encode() for who in self.s.clients})

    def do_heartbeat(self, name: str) -> None:
        if name in self.s.clients:
            self.s.heartbeat(name)

    def do_leave(self, name: str, by_instance: bool) -> None:
        if name in self.s.clients:
            self.s.leave(name, by_instance=by_instance)

    def do_commit(self, name: str) -> None:
        self.s.commit(name, {("t", 0): len(self.s.tokens)})

    def do_lose(self, name: str) -> None:
        for token in self.waiting():
            if token.client == name:
                self.s.lose_connection(token)
                return

    def do_wait(self, seconds: float) -> None:
        self.s.wait(seconds)

    def do_restart(self) -> None:
        self.s.restart()

    def do_behave(self) -> None:
        self.behave(tuple(self.s.clients))

    def do_settle(self) -> None:
        """Long enough for those that are there to become a stable group, as a rule."""
        for _ in range(8):
            self.behave(tuple(self.s.clients))
            self.s.wait(3)

    def waiting(self) -> list[Token]:
        return [
            token
            for token in self.s.tokens
            if self.s.is_waiting(token) and token not in self.s.forgotten
        ]

    def notes(self) -> str:
        return " ".join(effect.text for effect in self.s.effects if isinstance(effect, Note))

    # ---- what has to hold

    def check_removals(self, before: set[str]) -> None:
        """No member is lost without a reason that a person can read."""
        for member_id in before - self.member_ids():
            assert f"member {member_id} is" in self.notes(), (member_id, self.notes())

    def check_generations(self) -> None:
        """The generation goes up by one with each rebalance, and never otherwise."""
        for effect in self.s.effects:
            if isinstance(effect, Note) and effect.text.startswith("generation "):
                number = int(effect.text.split()[1])
                if "is stable" in effect.text:
                    assert number == self.generation
                else:
                    assert number == self.generation + 1
                    self.generation = number
        group = self.group()
        if group is None:
            self.generation = 0
        else:
            assert group.generation_id == self.generation

    def check_replies(self) -> None:
        """Members of a generation hear the same of it; assignments are stored before they are
        seen."""
        is_stored = True
        heard: dict[int, set[tuple[str | None, str]]] = {}
        for effect in self.s.effects:
            if isinstance(effect, Append):
                is_stored = True
            elif isinstance(effect, Note):
                is_stored = is_stored and "is stable" not in effect.text
            elif isinstance(effect.response, SyncGroupResponse):
                assert is_stored or effect.response.error_code
            elif isinstance(effect.response, JoinGroupResponse) and not effect.response.error_code:
                response = effect.response
                assert not response.members or response.leader == response.member_id
                # Clients without KIP-814 are told an old id of a static leader.
                if response.leader in self.member_ids():
                    generation = heard.setdefault(response.generation_id, set())
                    generation.add((response.protocol_name, response.leader))
        assert all(len(facts) == 1 for facts in heard.values())

    def check_group(self) -> None:
        """The parts of the group fit together, and something will happen to every one of them."""
        group = self.group()
        if group is None:
            return
        deadlines = self.s.coordinator._deadlines
        members = group.members
        assert not group.pending_member_ids & set(members)
        assert group.pending_sync_ids <= set(members)
        assert group.static_member_ids == {
            m.group_instance_id: m.member_id for m in members.values() if m.is_static
        }
        assert (group.leader_id in members) if members else group.leader_id is None
        for member_id, member in members.items():
            assert member.member_id == member_id
            deadline = deadlines.get(session_deadline("g", member_id))
            assert deadline is not None or not member.may_expire()
            assert not (member.join_token is not None and member.sync_token is not None)
            assert member.join_token is None or member.has_joined
        for member_id in group.pending_member_ids:
            assert deadlines.get(session_deadline("g", member_id)) is not None
        state = group.state.value
        assert (deadlines.get(join_deadline("g")) is not None) == (state == "PreparingRebalance")
        assert state == "CompletingRebalance" or all(m.sync_token is None for m in members.values())
        assert state == "PreparingRebalance" or not any(m.has_joined for m in members.values())
        if state == "Empty":
            assert not members
        assert (deadlines.get(sync_deadline("g")) is not None) == bool(group.pending_sync_ids)
        if state in ("CompletingRebalance", "Stable"):
            assert all(group.protocol_name in m.protocols for m in members.values())
        assert {m.join_token or m.sync_token for m in members.values()} - {None} == set(
            self.waiting()
        )

    def check_log(self) -> None:
        """A group that is stable, or empty, is in the log as it is in memory."""
        group = self.group()
        if group is None or group.state.value not in ("Stable", "Empty"):
            return
        loaded = GroupCoordinator(self.s.config, FakeTopics())
        for key, value in self.s.log:
            loaded.replay(key, value)
        stored = loaded._groups.get("g")
        if stored is None:
            assert group.generation_id == 0
            assert not group.members
            return
        assert stored.generation_id == group.generation_id
        assert stored.state is group.state
        assert stored.leader_id == group.leader_id
        assert {m.member_id: m.assignment for m in stored.members.values()} == {
            m.member_id: m.assignment for m in group.members.values()
        }

    # ---- clients that behave

    def behave(self, names: tuple[str, ...]) -> None:
        """Each client does what its last answer asks for: join, sync, then heartbeats."""
        for name in names:
            client = self.s.clients[name]
            if any(token.client == name for token in self.waiting()):
                continue
            if client.generation < 0:
                self.s.join(name)
                continue
            generation, synced = self.syncs.get(name, (-1, None))
            if generation != client.generation or synced in self.s.forgotten:
                parts = {who: who.encode() for who in self.s.clients}
                synced = self.s.sync(name, parts)
                self.syncs[name] = (client.generation, synced)
            assert synced is not None
            error = self.s.error(synced)
            if error is ErrorCode.NONE:
                error = self.s.heartbeat(name)
            if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                self.s.client(name, member_id="", generation=-1)
            elif error not in (None, ErrorCode.NONE):
                self.s.client(name, generation=-1)


@settings(max_examples=150, deadline=None)
@given(configs, st.lists(actions, min_size=10, max_size=60))
def test_the_group_makes_sense_whatever_clients_do(
    config: GroupConfig, steps: list[tuple[Any, ...]]
) -> None:
    world = World(Scenario(config))
    for step in BEGINNING + steps:
        world.do(step)


@settings(max_examples=75, deadline=None)
@given(st.lists(actions, min_size=10, max_size=40))
def test_the_group_becomes_stable_when_its_clients_behave(steps: list[tuple[Any, ...]]) -> None:
    world = World(Scenario(GroupConfig(initial_rebalance_delay_ms=0)))
    for step in BEGINNING + steps:
        world.do(step)
    alive = tuple(name for name in NAMES if name in world.s.clients)
    for name in alive:
        if world.s.clients[name].version < 5:
            world.s.client(name, instance=None)
    for _ in range(60):
        world.behave(alive)
        world.s.wait(2)
    group = world.group()
    assert group is not None
    assert group.state is GroupState.STABLE
    assert set(group.members) == {world.s.clients[name].member_id for name in alive}
    assert world.waiting() == []


@settings(max_examples=75, deadline=None)
@given(configs, st.lists(actions, min_size=10, max_size=60))
def test_every_request_is_answered_in_the_end(
    config: GroupConfig, steps: list[tuple[Any, ...]]
) -> None:
    world = World(Scenario(config))
    for step in BEGINNING + steps:
        world.do(step)
    world.s.wait(3_600)
    assert world.waiting() == []
    assert world.s.state() in ("Empty", "Dead")
