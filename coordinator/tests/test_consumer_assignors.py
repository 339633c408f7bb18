"""The assignors: every partition to one of its readers, evenly, and as it was if it can be."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from asyncbroker.coordinator.consumer.assignors import (
    Reader,
    assign_range,
    assign_uniform,
)
from asyncbroker.coordinator.consumer.topics import TopicPartition

T, U = b"t" * 16, b"u" * 16


def reader(
    name: str, *topics: bytes, had: tuple[TopicPartition, ...] = (), instance: str | None = None
) -> Reader:
    return Reader(name, instance, frozenset(topics), frozenset(had))


def test_range_gives_consecutive_partitions_to_members_in_order() -> None:
    targets = assign_range([reader("b", T), reader("a", T)], {T: 5})
    assert targets["a"] == {(T, 0), (T, 1), (T, 2)}
    assert targets["b"] == {(T, 3), (T, 4)}


def test_range_puts_static_members_first_by_their_instances() -> None:
    targets = assign_range([reader("a", T), reader("z", T, instance="i")], {T: 2})
    assert targets == {"z": {(T, 0)}, "a": {(T, 1)}}


def test_range_gives_the_same_partitions_of_several_topics() -> None:
    targets = assign_range([reader("a", T, U), reader("b", T, U)], {T: 2, U: 2})
    assert targets["a"] == {(T, 0), (U, 0)}


def test_uniform_moves_no_more_than_it_must() -> None:
    first = assign_uniform([reader("a", T)], {T: 4})
    both = assign_uniform([reader("a", T, had=tuple(first["a"])), reader("b", T)], {T: 4})
    assert both["a"] < first["a"]
    assert len(both["b"]) == 2
    alone = assign_uniform([reader("b", T, had=tuple(both["b"]))], {T: 4})
    assert alone["b"] > both["b"]


def test_uniform_keeps_the_odd_one_where_it_was() -> None:
    had = ((T, 0), (T, 1))
    targets = assign_uniform([reader("a", T), reader("b", T, had=had)], {T: 3})
    assert targets == {"a": {(T, 2)}, "b": {(T, 0), (T, 1)}}


def test_uniform_levels_members_that_read_different_topics() -> None:
    had = tuple((T, index) for index in range(4))
    targets = assign_uniform([reader("a", T, had=had), reader("b", T, U)], {T: 4, U: 1})
    assert {name: len(target) for name, target in targets.items()} == {"a": 3, "b": 2}


subscriptions = st.sets(st.sampled_from([T, U]))


@given(
    st.lists(subscriptions, min_size=1, max_size=6),
    st.integers(0, 9),
    st.integers(0, 9),
)
def test_every_partition_goes_to_one_reader(
    wishes: list[set[bytes]], t_count: int, u_count: int
) -> None:
    counts = {T: t_count, U: u_count}
    wanted = {topic: count for topic, count in counts.items() if any(topic in w for w in wishes)}
    everything = {(topic, index) for topic, count in wanted.items() for index in range(count)}
    stale = [*sorted(everything), (T, 99), (b"x" * 16, 0)]
    readers = [
        reader(f"m{number}", *wish, had=tuple(stale[number :: len(wishes)]))
        for number, wish in enumerate(wishes)
    ]
    for assign in (assign_range, assign_uniform):
        targets = assign(readers, wanted)
        assert set(targets) == {r.member_id for r in readers}
        given_away = [partition for target in targets.values() for partition in target]
        assert len(given_away) == len(set(given_away))
        assert set(given_away) == everything
        for r in readers:
            assert all(topic in r.topic_ids for topic, _ in targets[r.member_id])
    uniform = assign_uniform(readers, wanted)
    sizes = [len(target) for target in uniform.values()]
    if len({r.topic_ids for r in readers}) == 1:
        assert max(sizes) - min(sizes) <= 1
    again = [reader(r.member_id, *r.topic_ids, had=tuple(uniform[r.member_id])) for r in readers]
    assert assign_uniform(again, wanted) == uniform
