"""Deadlines against a plain dictionary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from asyncbroker.coordinator.deadlines import (
    RETENTION,
    DeadlineKey,
    Deadlines,
    join_deadline,
    session_deadline,
    sync_deadline,
)

KEYS = [
    RETENTION,
    join_deadline("g"),
    sync_deadline("g"),
    session_deadline("g", "a"),
    session_deadline("g", "b"),
]


def drain(deadlines: Deadlines, now: float) -> list[DeadlineKey]:
    due = []
    while (key := deadlines.pop_due(now)) is not None:
        due.append(key)
    return due


def test_due_deadlines_come_out_in_order_and_once() -> None:
    deadlines = Deadlines()
    first, second, third = KEYS[:3]
    deadlines.set(second, 2.0)
    deadlines.set(first, 1.0)
    deadlines.set(third, 3.0)
    assert drain(deadlines, 0.5) == []
    assert drain(deadlines, 2.0) == [first, second]
    assert drain(deadlines, 2.0) == []
    assert deadlines.next_deadline() == 3.0


def test_deadlines_at_the_same_time_come_out_in_the_order_of_setting() -> None:
    deadlines = Deadlines()
    for key in reversed(KEYS):
        deadlines.set(key, 1.0)
    assert drain(deadlines, 1.0) == list(reversed(KEYS))


def test_a_deadline_that_moves_later_and_later_keeps_one_entry() -> None:
    deadlines = Deadlines()
    for beat in range(10_000):
        deadlines.set(KEYS[3], float(beat))
    assert len(deadlines._heap) == 1
    assert drain(deadlines, 9_998.0) == []
    assert drain(deadlines, 9_999.0) == [KEYS[3]]


def test_a_cancelled_deadline_is_never_due() -> None:
    deadlines = Deadlines()
    deadlines.set(KEYS[1], 1.0)
    deadlines.cancel(KEYS[1])
    deadlines.cancel(KEYS[2])
    assert deadlines.next_deadline() is None
    assert drain(deadlines, 9.0) == []


def test_a_deadline_that_was_moved_is_due_at_its_new_place() -> None:
    deadlines = Deadlines()
    deadlines.set(KEYS[0], 1.0)
    deadlines.set(KEYS[1], 0.0)
    deadlines.set(KEYS[1], 2.0)
    assert drain(deadlines, 2.0) == [KEYS[0], KEYS[1]]


steps = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.sampled_from(KEYS), st.integers(0, 20)),
        st.tuples(st.just("cancel"), st.sampled_from(KEYS), st.just(0)),
        st.tuples(st.just("drain"), st.just(RETENTION), st.integers(0, 20)),
        st.tuples(st.just("look"), st.just(RETENTION), st.just(0)),
    ),
    max_size=50,
)


@given(steps)
def test_deadlines_behave_like_a_dictionary_of_times(
    steps: list[tuple[str, DeadlineKey, int]],
) -> None:
    deadlines = Deadlines()
    model: dict[DeadlineKey, float] = {}
    for step, key, number in steps:
        if step == "set":
            deadlines.set(key, float(number))
            model[key] = float(number)
        elif step == "cancel":
            deadlines.cancel(key)
            model.pop(key, None)
        elif step == "drain":
            due = drain(deadlines, float(number))
            expected = {key for key, when in model.items() if when <= number}
            assert set(due) == expected
            assert len(due) == len(expected)
            assert [model[key] for key in due] == sorted(model[key] for key in due)
            for key in due:
                del model[key]
        else:
            upcoming = deadlines.next_deadline()
            assert (upcoming is None) == (not model)
            assert upcoming is None or upcoming <= min(model.values())
        for key in KEYS:
            assert deadlines.get(key) == model.get(key)
