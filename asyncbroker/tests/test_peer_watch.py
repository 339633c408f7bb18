"""The deadlines of a connection, and the budget of bytes in flight: both without a socket."""

from __future__ import annotations

from dataclasses import replace

import pytest

from asyncbroker.budget import ByteBudget
from asyncbroker.metrics import Metrics
from asyncbroker.peer_watch import ConnectionLimits, PeerWatch, Sight, TooSlow

LIMITS = ConnectionLimits(
    idle_seconds_max=600,
    unfinished_seconds_max=60,
    unfinished_bytes_per_second_min=1000,
    slow_reader_seconds_max=30,
    leaving_seconds_max=10,
)
QUIET = Sight(
    request_count=5, has_request=False, has_left=False, unsent=None, unfinished_bytes=None
)
START = 1000.0


def verdict_at(sight: Sight) -> tuple[float | None, TooSlow | None]:
    """After how many seconds of the same sight the connection goes, and why."""
    watch = PeerWatch(LIMITS, START)
    watch.look(replace(sight, unsent=None, unfinished_bytes=None, has_left=False), START)
    for seconds in range(1, 2000):
        verdict = watch.look(sight, START + seconds)
        if verdict is not None:
            return seconds, verdict
    return None, None


@pytest.mark.parametrize(
    ("sight", "seconds", "reason"),
    [
        (QUIET, 600, TooSlow.IDLE),
        (replace(QUIET, has_request=True), None, None),
        (replace(QUIET, unfinished_bytes=0), 60, TooSlow.UNFINISHED),
        (replace(QUIET, unfinished_bytes=100_000), 160, TooSlow.UNFINISHED),
        (replace(QUIET, has_request=True, has_left=True), 10, TooSlow.LEFT),
    ],
)
def test_what_does_not_move_ends_a_connection(
    sight: Sight, seconds: float | None, reason: TooSlow | None
) -> None:
    assert verdict_at(sight) == (seconds, reason)


def test_a_peer_that_takes_nothing_is_given_up_after_the_moment_it_stopped() -> None:
    # The first sight with unsent bytes is progress; from then on nothing moves.
    assert verdict_at(replace(QUIET, unsent=(100, 0))) == (31, TooSlow.SLOW_READER)


def test_a_peer_that_takes_nothing_does_not_hold_up_a_stop() -> None:
    watch = PeerWatch(LIMITS, START)
    watch.look(replace(QUIET, unsent=(100, 0)), START)
    assert watch.look(replace(QUIET, unsent=(100, 0)), START + 4) is None
    watch.hurry()
    assert watch.look(replace(QUIET, unsent=(90, 0)), START + 5) is None
    assert watch.look(replace(QUIET, unsent=(90, 0)), START + 7) is None
    assert watch.look(replace(QUIET, unsent=(90, 0)), START + 8) is TooSlow.SLOW_READER


def test_a_peer_that_takes_a_little_each_time_stays() -> None:
    watch = PeerWatch(LIMITS, START)
    for second in range(500):
        sight = replace(QUIET, has_request=True, unsent=(10_000 - second, 0))
        assert watch.look(sight, START + second) is None


def test_whole_requests_in_between_give_the_next_frame_its_own_time() -> None:
    watch = PeerWatch(LIMITS, START)
    for second in range(500):
        sight = replace(QUIET, request_count=second // 50, unfinished_bytes=10)
        assert watch.look(sight, START + second) is None


class Holder:
    """Remembers that it was told to go on."""

    def __init__(self) -> None:
        self.resumed = 0

    def resume_within_budget(self) -> None:
        self.resumed += 1


def test_the_budget_lets_one_go_on_and_the_others_wait_in_order() -> None:
    budget = ByteBudget(100, Metrics())
    first, second, third = Holder(), Holder(), Holder()
    assert budget.change(first, 0, 90)
    # The limit is passed: somebody has to be able to finish.
    assert budget.change(second, 0, 50)
    assert not budget.change(third, 0, 10)
    assert not budget.change(first, 90, 95)
    assert budget.held_bytes == 155
    # The favoured gives back, which makes room for the next one only.
    assert budget.change(second, 50, 0)
    assert (third.resumed, first.resumed) == (1, 0)
    assert budget.change(third, 10, 0)
    assert first.resumed == 1
    assert budget.held_bytes == 95


def test_who_leaves_the_budget_gives_everything_back() -> None:
    metrics = Metrics()
    budget = ByteBudget(100, metrics)
    first, second, third = Holder(), Holder(), Holder()
    budget.change(first, 0, 150)
    assert not budget.change(second, 0, 10)
    assert not budget.change(third, 0, 10)
    budget.leave(second, 10)
    budget.leave(first, 150)
    assert (first.resumed, second.resumed, third.resumed) == (0, 0, 1)
    assert metrics.bytes_in_flight == 10
