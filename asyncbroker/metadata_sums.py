"""The sum of all that a metadata store holds, kept beside it: SQLite has no checksums of its own,
and a bit that flips in a number or a name would make another number or name of it.

Each topic, deletion, resource, credential and value is a part, with the CRC-32C of what it says.
Their sum follows from the one before and from the parts that change. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from asyncbroker.metadata_store import (
    Change,
    DeleteScramCredential,
    DeleteTopic,
    ForgetTopic,
    PutScramCredential,
    PutTopic,
    SetBrokerConfigs,
    SetGroupConfigs,
    SetValue,
    StoredState,
)
from asyncbroker.protocol.checksums import crc32c

_MODULUS: Final = 1 << 64

# What a part is about, and what it says; None: there is none any more.
Part = tuple[tuple[object, ...], object]


class MetadataSums:
    """The parts of one store, each by what it is about."""

    def __init__(self, state: StoredState) -> None:
        self._crcs: dict[tuple[object, ...], int] = {}
        self._total = 0
        self.take(_changes_to(state))

    @property
    def total(self) -> str:
        """The sum."""
        return f"{self._total:016x}"

    def after(self, changes: Iterable[Change]) -> str:
        """What the sum will be."""
        return f"{self._after(changes)[0]:016x}"

    def take(self, changes: Iterable[Change]) -> None:
        """Takes over changes that were made."""
        self._total, crcs = self._after(changes)
        for about, crc in crcs.items():
            if crc:
                self._crcs[about] = crc
            else:
                self._crcs.pop(about, None)

    def _after(self, changes: Iterable[Change]) -> tuple[int, dict[tuple[object, ...], int]]:
        total, crcs = self._total, dict[tuple[object, ...], int]()
        for change in changes:
            if isinstance(change, ForgetTopic):
                deleted = ("deleted", change.topic_id)
                if not crcs.get(deleted, self._crcs.get(deleted, 0)):
                    continue  # it is none of those
            for about, says in _parts_of(change):
                crc = 0 if says is None else crc32c(repr((about, says)).encode())
                total += crc - crcs.get(about, self._crcs.get(about, 0))
                crcs[about] = crc
        return total % _MODULUS, crcs


def _parts_of(change: Change) -> list[Part]:
    match change:
        case PutTopic(topic):
            what = (topic.name, topic.partition_count, sorted(topic.configs.items()))
            return [(("topic", topic.topic_id), what)]
        case DeleteTopic(topic_id):
            return [(("deleted", topic_id), True)]
        case ForgetTopic(topic_id):
            return [(("topic", topic_id), None), (("deleted", topic_id), None)]
        case SetBrokerConfigs(resource, configs):
            return [(("configs", resource), sorted(configs.items()) or None)]
        case SetGroupConfigs(group_id, configs):
            return [(("group", group_id), sorted(configs.items()) or None)]
        case PutScramCredential(user, mechanism, key):
            keys = (key.salt, key.stored_key, key.server_key, key.iterations)
            return [(("user", user, mechanism), keys)]
        case DeleteScramCredential(user, mechanism):
            return [(("user", user, mechanism), None)]
        case SetValue(name, value):
            return [(("value", name), value)]


def _changes_to(state: StoredState) -> list[Change]:
    """What makes this state of none."""
    topics = [*state.topics.values(), *state.deleted_topics.values()]
    return [
        *map(PutTopic, topics),
        *map(DeleteTopic, state.deleted_topics),
        *(SetBrokerConfigs(*each) for each in state.broker_configs.items()),
        *(SetGroupConfigs(*each) for each in state.group_configs.items()),
        *(PutScramCredential(*about, key) for about, key in state.scram_credentials.items()),
        *(SetValue(*each) for each in state.values.items()),
    ]
