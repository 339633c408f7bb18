"""The simulation finds bugs: in each test the broker is broken in one place, and some seed of the
first few sees it. The broken places are those in which brokers have lost data before.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import pytest

from asyncbroker import fetch_sessions
from asyncbroker.commits import Commits
from asyncbroker.coordinator import coordinator, offset_requests
from asyncbroker.coordinator.group import Group
from asyncbroker.coordinator.offsets import Offsets
from asyncbroker.handlers.produce_single import SingleWait
from asyncbroker.log import checking, damage_search
from asyncbroker.log.durability import Durability
from asyncbroker.log.log_directory import LogDirectory
from asyncbroker.log.partition_log import PartitionLog
from asyncbroker.log.producers import ProducerState
from asyncbroker.log.recovery import Recovery
from asyncbroker.tests.simulation.disk import DiskSpeed, SimulatedFiles, SimulatedStore
from asyncbroker.tests.simulation.simulate import Run, simulate

SEEDS_MAX: Final = 100


def found_in(*names: str, change: Callable[[Run], object] | None = None) -> int:
    """The first seed with one of these anomalies; fails without one."""
    for seed in range(1, 1 + SEEDS_MAX):
        problems = simulate(seed, change=change).problems
        if any(name in problem for problem in problems for name in names):
            return seed
    pytest.fail(f"{SEEDS_MAX} seeds have not noticed")


def test_an_ack_before_the_fsync_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Commits, "durable", lambda *_: None)
    found_in("lost-write", "lost-commit", "stale-commit")


def test_a_produce_answered_before_the_fsync_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Commits, "call_when_durable", lambda *_: False)
    found_in("lost-write")


def test_a_round_that_is_answered_when_it_begins_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    appended = SingleWait.appended

    def early(self: SingleWait, *where: int) -> None:
        appended(self, *where)
        self.durable(None)

    monkeypatch.setattr(SingleWait, "appended", early)
    found_in("lost-write")


def test_a_directory_that_is_not_synced_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatedFiles, "sync_directory", lambda *_: None)
    found_in("lost-write", "lost-commit")


def test_what_is_written_during_an_fsync_is_not_durable_by_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = Durability.sync

    def sync(self: Durability, end_offset: int, segments: Any) -> None:
        original(self, end_offset, segments)
        # The end of now, and not that of the beginning.
        self.flushed_end_offset = self._end_of_log()  # type: ignore[attr-defined]

    opened = PartitionLog.__init__

    def init(self: PartitionLog, *arguments: Any, **named: Any) -> None:
        opened(self, *arguments, **named)
        ends[id(self._durability)] = self

    ends: dict[int, PartitionLog] = {}
    monkeypatch.setattr(
        Durability, "_end_of_log", lambda self: ends[id(self)].end_offset, raising=False
    )
    monkeypatch.setattr(PartitionLog, "__init__", init)
    monkeypatch.setattr(Durability, "sync", sync)
    found_in("lost-write", "lost-commit", "stale-commit", change=slow_disk_and_power_cuts)


def slow_disk_and_power_cuts(run: Run) -> None:
    """So that much is written during an fsync, and then lost."""
    run.machine.disk.speed = DiskSpeed(0.02, 0.1)
    run.nemesis.do_only(["power loss", "power loss in a call"])


def test_resends_that_are_not_known_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProducerState, "check", lambda *_, **__: None)
    found_in("duplicate")


def test_producers_that_a_restart_forgets_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Recovery.run

    def run(self: Recovery, **options: Any) -> Any:
        recovered = original(self, **options)
        recovered.producers = ProducerState(recovered.end_offset)
        return recovered

    monkeypatch.setattr(Recovery, "run", run)
    found_in("duplicate", "OUT_OF_ORDER")


def test_a_stale_committed_offset_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Offsets.put
    previous: dict[Any, Any] = {}

    def put(self: Offsets, group: str, topic: str, partition: int, *more: Any, **named: Any) -> Any:
        before = self.get(group, topic, partition)
        result = original(self, group, topic, partition, *more, **named)
        if before is not None:
            previous[id(self), group, topic, partition] = before
        return result

    get = offset_requests._fetched

    def fetched(*arguments: Any, **named: Any) -> Any:
        answer = get(*arguments, **named)
        if answer.committed_offset > 0 and previous:
            answer.committed_offset = next(iter(previous.values())).offset
        return answer

    monkeypatch.setattr(Offsets, "put", put)
    monkeypatch.setattr(offset_requests, "_fetched", fetched)
    found_in("stale-commit")


def test_members_of_the_past_that_are_heard_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def check_nothing(*_: Any) -> None:
        return None

    monkeypatch.setattr(offset_requests, "check_commit", check_nothing)
    monkeypatch.setattr(coordinator, "check_commit", check_nothing, raising=False)
    found_in("zombie-commit")


def test_a_log_start_that_a_restart_forgets_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogDirectory, "record_log_starts", lambda *_: None)
    found_in("deleted-but-visible")


def test_news_that_a_fetch_session_keeps_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only offsets that move are told, and not records that are left over from the last answer."""
    monkeypatch.setattr(fetch_sessions, "_has_records", lambda _: False)
    found_in("stuck in : reader")


def test_damage_that_is_served_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "checked", lambda _, located, __: located)
    found_in("a damaged batch", change=flipped_bits)


def test_damage_that_takes_its_neighbours_away_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies behind a damaged batch is taken for damaged as well."""
    original = damage_search.find_damage

    def to_the_end(segment: Any, part: Any, segments: Any, end: Any, **named: Any) -> Any:
        for stretch in original(segment, part, segments, end, **named):
            yield stretch._replace(end=segment.size, next_offset=end[0])

    monkeypatch.setattr(checking, "find_damage", to_the_end)
    found_in("CORRUPT_MESSAGE", change=flipped_bits)


def flipped_bits(run: Run) -> None:
    """So that there is damage in most runs."""
    run.nemesis.do_only(["flipped bit", "stop"])


def test_a_deletion_that_is_not_stored_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Success is answered though the metadata store could not take it."""

    def apply(self: SimulatedStore, changes: Any) -> None:
        with suppress(OSError):
            original(self, changes)

    original = SimulatedStore.apply
    monkeypatch.setattr(SimulatedStore, "apply", apply)
    found_in("is there again", change=lambda run: run.nemesis.do_only(["failed commit", "kill"]))


def test_a_group_that_is_stuck_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Group, "check_member", lambda *_: (_ for _ in ()).throw(RuntimeError))
    found_in("internal errors", "stuck")
