"""At start: brings together the topics of the metadata store and the directories on the disk.

The store decides what exists; the directories hold the data. They differ after a crash in the
middle of a creation or a deletion, and when somebody has moved directories in or out by hand:

- a topic of the store without some directories: they are made when its logs are opened
- a directory of a topic that was deleted: removed, as the deletion meant to
- a directory of an unknown topic: adopted, since that is how data moves in from Kafka; it keeps
  the id in its `partition.metadata`; not if it has neither an id nor a segment, whatever it is
- an id that differs in a few bits only from that of the topic of this name is damaged, and counts
  as that one: putting the directory aside would make an empty partition of a full one
- a directory whose name is a topic's and whose id is not, or the reverse; or that has lost its id
  and whose name was that of a topic just deleted; or whose number no partition may have: a stray.
  It is renamed and kept, because nothing says that it was ever meant to go

Pure: takes what was found, and says what is to be done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from asyncbroker.log.checkpoints import is_damaged_id
from asyncbroker.log.log_directory import FoundPartition
from asyncbroker.metadata_store import Change, ForgetTopic, PutTopic, StoredState, StoredTopic


@dataclass(slots=True)
class Plan:
    """What a start has to do before topics are opened."""

    # All topics that exist, those adopted included.
    topics: list[StoredTopic] = field(default_factory=list)
    to_delete: list[FoundPartition] = field(default_factory=list)
    strays: list[FoundPartition] = field(default_factory=list)

    # What the store must know before the topics are used.
    changes: list[Change] = field(default_factory=list)

    # What it must be told once `to_delete` is gone.
    after_deletion: list[Change] = field(default_factory=list)

    # One line each for people.
    notes: list[str] = field(default_factory=list)


def reconcile(
    state: StoredState,
    found: Iterable[FoundPartition],
    *,
    new_id: Callable[[], bytes],
    configs_of: Callable[[str], dict[str, str]],
    partitions_max: int,
) -> Plan:
    """The plan for a store and the directories of partitions that were found. `new_id` makes ids of
    topics, `configs_of` has the settings of an adopted topic by its name. A directory numbered
    `partitions_max` or higher (somebody's backup-20261128) would make a topic of too many."""
    plan = Plan(after_deletion=[ForgetTopic(topic_id) for topic_id in state.deleted_topics])
    ids_by_name = {topic.name: topic_id for topic_id, topic in state.topics.items()}
    deleted_names = {topic.name for topic in state.deleted_topics.values()}
    known_ids = _ids_by_name(state)
    unknown: dict[str, list[FoundPartition]] = {}
    index_max: dict[bytes, int] = {}
    for partition in found:
        topic_id = _true_id(partition.topic_id, known_ids.get(partition.topic, ()))
        owner = ids_by_name.get(partition.topic)
        if topic_id in state.deleted_topics:
            plan.to_delete.append(partition)
        elif partition.partition >= partitions_max:
            plan.strays.append(partition)
            plan.notes.append(
                f"directory {partition.topic}-{partition.partition} has the number of a partition "
                "that no topic may have: it is renamed"
            )
        elif owner is None and topic_id is None and partition.topic in deleted_names:
            # Its id is not synced when it is written, and a crash can have taken it.
            plan.strays.append(partition)
            plan.notes.append(
                f"directory {partition.topic}-{partition.partition} has no topic id, and a topic "
                "of this name was deleted: it is renamed, and its records are not served"
            )
        elif owner is None and not partition.has_log:
            plan.notes.append(
                f"directory {partition.topic}-{partition.partition} has nothing of a partition in "
                "it: it is left alone"
            )
        elif owner is None:
            unknown.setdefault(partition.topic, []).append(partition)
        elif topic_id in (None, owner):
            index_max[owner] = max(index_max.get(owner, 0), partition.partition)
        else:
            plan.strays.append(partition)
            plan.notes.append(
                f"directory {partition.topic}-{partition.partition} belongs to another topic of "
                "this name: it is renamed, and its records are not served"
            )
    for topic_id, topic in state.topics.items():
        plan.topics.append(_grown(plan, topic, index_max.get(topic_id, 0) + 1))
    for name, partitions in unknown.items():
        _adopt(plan, name, partitions, new_id, configs_of(name))
    return plan


def _ids_by_name(state: StoredState) -> dict[str, list[bytes]]:
    """The ids of all topics of a name, those that are deleted included."""
    ids: dict[str, list[bytes]] = {}
    for topic_id, topic in (*state.topics.items(), *state.deleted_topics.items()):
        ids.setdefault(topic.name, []).append(topic_id)
    return ids


def _true_id(found: bytes | None, known: Iterable[bytes]) -> bytes | None:
    """The id that was written where one was found that may be damaged."""
    if found is None:
        return None
    return next((topic_id for topic_id in known if is_damaged_id(found, topic_id)), found)


def _grown(plan: Plan, topic: StoredTopic, partition_count: int) -> StoredTopic:
    """The topic, with more partitions if there are directories of more."""
    if partition_count <= topic.partition_count:
        return topic
    grown = StoredTopic(topic.name, topic.topic_id, partition_count, topic.configs)
    plan.changes.append(PutTopic(grown))
    plan.notes.append(f"topic {topic.name} has directories of {partition_count} partitions")
    return grown


def _adopt(
    plan: Plan,
    name: str,
    partitions: list[FoundPartition],
    new_id: Callable[[], bytes],
    configs: dict[str, str],
) -> None:
    """Makes a topic of directories that nobody knows."""
    ids = {partition.topic_id for partition in partitions if partition.topic_id is not None}
    if len(ids) > 1:
        plan.strays += partitions
        plan.notes.append(
            f"directories of an unknown topic {name} have different topic ids: they are renamed, "
            "and their records are not served"
        )
        return
    if any(topic.topic_id in ids for topic in plan.topics):
        plan.strays += partitions
        plan.notes.append(
            f"directories of an unknown topic {name} are copies of another topic's, with its id: "
            "they are renamed, and their records are not served"
        )
        return
    topic_id = ids.pop() if ids else new_id()
    partition_count = max(partition.partition for partition in partitions) + 1
    adopted = StoredTopic(name, topic_id, partition_count, configs)
    plan.topics.append(adopted)
    plan.changes.append(PutTopic(adopted))
    plan.notes.append(f"adopted topic {name} with {partition_count} partitions from the disk")
