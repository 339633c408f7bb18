"""When a commit round is held back, by itself; what it does to rounds is in `test_commits.py`."""

from __future__ import annotations

import pytest

from asyncbroker.clock import ManualClock
from asyncbroker.round_hold import ROUNDS_BETWEEN_MAX, RoundHold

SLOW = 0.004


class Fixture:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.begun = 0
        self.hold = RoundHold(self.clock, self._begin)

    def _begin(self) -> None:
        self.begun += 1

    def is_held_in_vain(self) -> bool:
        """After a slow round that has answered two, of whom nobody comes back."""
        self.hold.round_ended(2, SLOW)
        was_on = self.hold.is_on
        self.clock.advance(SLOW)
        assert not self.hold.is_on
        return was_on


@pytest.fixture
def made() -> Fixture:
    return Fixture()


def test_most_of_those_who_were_answered_end_it(made: Fixture) -> None:
    made.hold.round_ended(32, SLOW)
    assert [made.hold.came() for _ in range(30)] == [False] * 29 + [True]
    assert not made.hold.is_on
    made.clock.advance(1)
    assert made.begun == 0


def test_of_a_few_all_have_to_come(made: Fixture) -> None:
    made.hold.round_ended(3, SLOW)
    assert [made.hold.came() for _ in range(3)] == [False, False, True]


def test_it_lasts_for_half_a_round(made: Fixture) -> None:
    made.hold.round_ended(2, SLOW)
    made.hold.came()
    made.clock.advance(SLOW / 2 - 0.0001)
    assert made.hold.is_on
    made.clock.advance(0.0002)
    assert not made.hold.is_on
    assert made.begun == 1


def test_it_lasts_no_longer_than_ten_milliseconds(made: Fixture) -> None:
    made.hold.round_ended(2, 0.4)
    made.clock.advance(0.011)
    assert not made.hold.is_on
    assert made.begun == 1


@pytest.mark.parametrize(("answered", "seconds"), [(1, SLOW), (0, SLOW), (100, 0.001), (100, 0.6)])
def test_one_at_a_time_and_where_it_promises_nothing_nobody_is_held_back(
    made: Fixture, answered: int, seconds: float
) -> None:
    made.hold.round_ended(answered, seconds)
    assert not made.hold.is_on


def test_in_vain_it_is_tried_ever_more_seldom(made: Fixture) -> None:
    held = [made.is_held_in_vain() for _ in range(1000)]
    at = [number for number, was_on in enumerate(held) if was_on]
    assert at[:5] == [0, 2, 6, 14, 30]
    assert at[-1] - at[-2] == ROUNDS_BETWEEN_MAX + 1


def test_it_is_tried_at_once_again_when_it_was_worth_it(made: Fixture) -> None:
    while not made.is_held_in_vain() or made.begun < 4:
        continue
    for _ in range(ROUNDS_BETWEEN_MAX):
        made.hold.round_ended(2, SLOW)
        if made.hold.is_on:
            break
    assert [made.hold.came(), made.hold.came()] == [False, True]
    made.hold.round_ended(2, SLOW)
    assert made.hold.is_on


def test_whoever_ends_it_is_not_called(made: Fixture) -> None:
    made.hold.round_ended(2, SLOW)
    made.hold.end()
    made.clock.advance(1)
    assert made.begun == 0
    assert not made.hold.is_on
