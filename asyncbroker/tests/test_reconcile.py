"""What a start makes of a metadata store and directories that do not agree."""

from __future__ import annotations

from hashlib import sha256

import pytest

from asyncbroker.log.checkpoints import decode_uuid, encode_uuid
from asyncbroker.log.log_directory import FoundPartition
from asyncbroker.log.tests.crash_files import CrashFiles
from asyncbroker.metadata_store import ForgetTopic, PutTopic, StoredState, StoredTopic
from asyncbroker.reconcile import Plan, reconcile
from asyncbroker.tests.crash_machine import Machine
from asyncbroker.tests.crash_scenarios import TOPIC, filled

NEW_ID = bytes(range(16))
CONFIGS = {"__consumer_offsets": {"cleanup.policy": "compact"}}


def id_of(name: str) -> bytes:
    """Ids are random, and so far from each other."""
    return sha256(name.encode()).digest()[:16]


def stored(name: str, partition_count: int, id_name: str = "") -> StoredTopic:
    return StoredTopic(name, id_of(id_name or name), partition_count, {"retention.ms": "1"})


def state_of(*topics: StoredTopic, deleted: tuple[StoredTopic, ...] = ()) -> StoredState:
    return StoredState(
        topics={topic.topic_id: topic for topic in topics},
        deleted_topics={topic.topic_id: topic for topic in deleted},
    )


def plan_for(state: StoredState, *found: tuple[str, int, str | None]) -> Plan:
    return plan_of(
        state,
        *(
            FoundPartition(topic, index, None if id_name is None else id_of(id_name))
            for topic, index, id_name in found
        ),
    )


def plan_of(state: StoredState, *partitions: FoundPartition) -> Plan:
    return reconcile(
        state,
        partitions,
        new_id=lambda: NEW_ID,
        configs_of=lambda name: CONFIGS.get(name, {}),
        partitions_max=100,
    )


def test_a_directory_with_nothing_of_a_partition_in_it_is_left_alone() -> None:
    """Somebody's backup-2026 would make a topic of 2027 partitions."""
    plan = plan_of(state_of(), FoundPartition("backup", 26, None, has_log=False))
    assert len(plan.notes) == 1
    assert plan == Plan(notes=plan.notes)
    # One of a topic that is known was being made when there was a crash.
    topic = stored("t", 1)
    assert plan_of(state_of(topic), FoundPartition("t", 0, None, has_log=False)).topics == [topic]


def test_an_agreeing_directory_needs_nothing() -> None:
    topic = stored("t", 2)
    plan = plan_for(state_of(topic), ("t", 0, "t"), ("t", 1, "t"))
    assert plan == Plan(topics=[topic])


def test_a_topic_without_directories_is_opened_as_it_is() -> None:
    topic = stored("t", 3)
    assert plan_for(state_of(topic), ("t", 1, "t")) == Plan(topics=[topic])


def test_directories_of_a_deleted_topic_are_removed_and_then_forgotten() -> None:
    old, new = stored("t", 1, "old"), stored("t", 1, "new")
    plan = plan_for(state_of(new, deleted=(old,)), ("t", 0, "old"))
    assert plan.topics == [new]
    assert plan.to_delete == [FoundPartition("t", 0, old.topic_id)]
    assert plan.after_deletion == [ForgetTopic(old.topic_id)]
    assert plan.strays == []


def test_a_directory_without_an_id_does_not_bring_a_deleted_topic_back() -> None:
    plan = plan_for(state_of(deleted=(stored("t", 1),)), ("t", 0, None))
    assert plan.topics == []
    assert plan.to_delete == []
    assert plan.strays == [FoundPartition("t", 0, None)]
    assert "a topic of this name was deleted" in plan.notes[0]


def test_a_deleted_topic_without_directories_is_forgotten() -> None:
    plan = plan_for(state_of(deleted=(stored("t", 1),)))
    assert plan.to_delete == []
    assert plan.after_deletion == [ForgetTopic(id_of("t"))]


def test_directories_of_an_unknown_topic_are_adopted_with_their_id() -> None:
    plan = plan_for(state_of(), ("moved", 0, "moved"), ("moved", 2, "moved"))
    adopted = StoredTopic("moved", id_of("moved"), 3, {})
    assert plan.topics == [adopted]
    assert plan.changes == [PutTopic(adopted)]
    assert plan.notes == ["adopted topic moved with 3 partitions from the disk"]


def test_directories_without_an_id_are_adopted_with_a_new_one() -> None:
    plan = plan_for(state_of(), ("moved", 0, None))
    assert plan.topics == [StoredTopic("moved", NEW_ID, 1, {})]


def test_a_directory_without_an_id_belongs_to_the_topic_of_its_name() -> None:
    topic = stored("t", 1)
    assert plan_for(state_of(topic), ("t", 0, None)) == Plan(topics=[topic])


def test_a_directory_of_another_topic_of_the_same_name_is_a_stray() -> None:
    topic = stored("t", 1)
    plan = plan_for(state_of(topic), ("t", 0, "other"))
    assert plan.topics == [topic]
    assert plan.strays == [FoundPartition("t", 0, id_of("other"))]
    assert plan.to_delete == []
    assert "renamed" in plan.notes[0]


@pytest.mark.parametrize("at", range(22))
def test_a_damaged_id_is_not_that_of_another_topic(at: int) -> None:
    """A character of its text is another one, which is a byte of the file."""
    live, deleted = stored("t", 1, "live"), stored("t", 1, "deleted")
    state = state_of(live, deleted=(deleted,))
    for topic in (live, deleted):
        text = encode_uuid(topic.topic_id)
        damaged = decode_uuid(f"{text[:at]}{'A' if text[at] != 'A' else '_'}{text[at + 1 :]}")
        plan = plan_of(state, FoundPartition("t", 0, damaged))
        assert plan.topics == [live]
        assert plan.strays == []
        assert len(plan.to_delete) == (topic is deleted)


def test_unknown_directories_that_disagree_on_their_id_are_strays() -> None:
    plan = plan_for(state_of(), ("m", 0, "one"), ("m", 1, "two"))
    assert plan.topics == []
    assert len(plan.strays) == 2


def test_a_copy_under_another_name_does_not_take_the_id_of_its_topic() -> None:
    topic = stored("t", 1)
    plan = plan_for(state_of(topic), ("t", 0, "t"), ("copy", 0, "t"), ("m", 0, "m"), ("n", 0, "m"))
    assert [(kept.name, kept.topic_id) for kept in plan.topics] == [
        ("t", id_of("t")),
        ("m", id_of("m")),
    ]
    assert plan.strays == [
        FoundPartition("copy", 0, id_of("t")),
        FoundPartition("n", 0, id_of("m")),
    ]


def test_a_directory_that_only_looks_like_a_partition_makes_no_topic() -> None:
    topic = stored("t", 1)
    plan = plan_for(state_of(topic), ("t", 0, "t"), ("t", 100, "t"), ("backup", 20261128, None))
    assert plan.topics == [topic]
    assert [stray.partition for stray in plan.strays] == [100, 20261128]


def test_directories_of_more_partitions_make_the_topic_grow() -> None:
    plan = plan_for(state_of(stored("t", 1)), ("t", 0, "t"), ("t", 3, "t"))
    grown = stored("t", 4)
    assert plan.topics == [grown]
    assert plan.changes == [PutTopic(grown)]


def test_adopted_offsets_get_the_settings_that_groups_need() -> None:
    plan = plan_for(state_of(), ("__consumer_offsets", 49, "offsets"))
    (adopted,) = plan.topics
    assert (adopted.partition_count, adopted.configs) == (50, {"cleanup.policy": "compact"})


@pytest.mark.parametrize("bit", range(8))
def test_no_flipped_bit_of_a_topic_id_empties_a_partition(bit: int) -> None:
    first = Machine()
    first.live(filled, keeps_points=False)
    path = f"memory/{TOPIC}-0/partition.metadata"
    size = len(first.files.read_whole(path))
    for at in range(size):
        machine = first.point("").killed()
        flip_bit(machine.files, path, at, bit)
        machine.live(keeps_points=False, stops=False)
        assert not [
            name for name in machine.files.list_directories("memory") if name.endswith("-stray")
        ]


def flip_bit(files: CrashFiles, path: str, at: int, bit: int) -> None:
    byte = files.read_whole(path)[at]
    files.open(path).pwrite(bytes([byte ^ 1 << bit]), at)
