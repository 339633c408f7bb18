"""Two answers to one request, field by field: where a replay differs from its recording.

What two brokers may well answer differently is left out unless `is_strict`: who and where the
brokers are, times, epochs of leaders, texts of errors, which versions are served. What the `IdMap`
knows is held against it. Rows of lists are matched by their names and partitions. Of a fetch only
the errors are compared here, since records may come in other portions; the records themselves are
collected (`FetchedRecords`) and compared at the end.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Final

from asyncbroker.protocol.records import CorruptBatch, batches, records_of
from asyncbroker.tracing.describe import error_name
from asyncbroker.tracing.id_map import IdMap
from asyncbroker.tracing.plain import plain

MISSING: Final = "(nothing)"
RECORDS_MAX: Final = 1_000_000

IGNORED: Final = frozenset(
    {
        "api_keys",
        "authorized_operations",
        "broker_id",
        "brokers",
        "client_host",
        "cluster_authorized_operations",
        "cluster_id",
        "committed_leader_epoch",
        "configs",
        "controller_id",
        "current_leader",
        "eligible_leader_replicas",
        "error_message",
        "finalized_features",
        "finalized_features_epoch",
        "high_watermark",
        "host",
        "isr_nodes",
        "last_known_elr",
        "last_stable_offset",
        "leader_epoch",
        "leader_id",
        "log_append_time_ms",
        "log_start_offset",
        "node_endpoints",
        "node_id",
        "offline_replicas",
        "port",
        "preferred_read_replica",
        "rack",
        "replica_nodes",
        "supported_features",
        "throttle_time_ms",
        "timestamp",
        "topic_authorized_operations",
        "zk_migration_ready",
    }
)
"""Fields that differ between brokers that are both right."""

_MAPPED: Final = frozenset(
    {"generation_id", "member_epoch", "topic_id", "session_id", "producer_id"}
)
_MEMBERS: Final = frozenset({"member_id", "leader"})
_OFFSETS: Final = frozenset({"base_offset", "offset", "committed_offset"})
_NAMES: Final = ("name", "topic", "group_id", "key", "member_id", "topic_id")
_INDEXES: Final = ("index", "partition_index", "partition")


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """One field that is not the same."""

    path: str
    recorded: Any
    replayed: Any


def differences(
    recorded: Any, replayed: Any, ids: IdMap, *, is_strict: bool = False
) -> Iterator[Difference]:
    """All differences of two decoded answers."""
    if type(recorded).__name__ == "FetchResponse":
        yield from _fetch_differences(recorded, replayed, ids)
    else:
        yield from _Comparison(ids, is_strict).of("", recorded, replayed, "", -1)


class _Comparison:
    def __init__(self, ids: IdMap, is_strict: bool) -> None:
        self._ids = ids
        self._is_strict = is_strict

    def of(
        self, path: str, recorded: Any, replayed: Any, topic: str, index: int
    ) -> Iterator[Difference]:
        if dataclasses.is_dataclass(recorded) and type(recorded) is type(replayed):
            topic = next(
                (n for n in (_text(recorded, "name"), _text(recorded, "topic")) if n), topic
            )
            index = next((getattr(recorded, n) for n in _INDEXES if hasattr(recorded, n)), index)
            for field in dataclasses.fields(recorded):
                old, new = getattr(recorded, field.name), getattr(replayed, field.name)
                place = f"{path}.{field.name}" if path else field.name
                if not self._is_left_out(field.name):
                    old = self._mapped(field.name, old, new, topic, index)
                    yield from self.of(place, old, new, topic, index)
        elif isinstance(recorded, list) and isinstance(replayed, list):
            yield from self._of_lists(path, recorded, replayed, topic, index)
        elif recorded != replayed:
            is_error = path.endswith("error_code")
            yield Difference(
                path,
                error_name(recorded) if is_error else plain(recorded),
                error_name(replayed) if is_error else plain(replayed),
            )

    def _is_left_out(self, name: str) -> bool:
        return (
            name in _MAPPED or name == "producer_epoch" or (not self._is_strict and name in IGNORED)
        )

    def _mapped(self, name: str, value: Any, now: Any, topic: str, index: int) -> Any:
        if name in _MEMBERS:
            return self._ids.members.get(value, value)
        # The earliest offset is the same for a topic that had records before.
        if name in _OFFSETS and isinstance(value, int) and value != now:
            return self._ids.offset(topic, index, value)
        return value

    def _of_lists(
        self, path: str, recorded: list[Any], replayed: list[Any], topic: str, index: int
    ) -> Iterator[Difference]:
        old = {self._key(item, place, is_old=True): item for place, item in enumerate(recorded)}
        new = {self._key(item, place, is_old=False): item for place, item in enumerate(replayed)}
        for key in [*old, *(key for key in new if key not in old)]:
            place = f"{path}[{key}]"
            if key in old and key in new:
                yield from self.of(place, old[key], new[key], topic, index)
            else:
                found = plain(old.get(key, MISSING)), plain(new.get(key, MISSING))
                yield Difference(place, *found)

    def _key(self, item: Any, place: int, *, is_old: bool) -> str:
        if not dataclasses.is_dataclass(item):
            return str(place)
        for name in _NAMES:
            value = getattr(item, name, None)
            if value:
                if is_old and name == "member_id":
                    value = self._ids.members.get(value, value)
                if is_old and name == "topic_id":
                    value = self._ids.topic_ids.get(value, value)
                return value.hex() if isinstance(value, bytes) else str(value)
        index = next((getattr(item, name) for name in _INDEXES if hasattr(item, name)), place)
        return str(index)


def _text(item: Any, name: str) -> str:
    value = getattr(item, name, None)
    return value if isinstance(value, str) else ""


def _fetch_differences(recorded: Any, replayed: Any, ids: IdMap) -> Iterator[Difference]:
    if recorded.error_code != replayed.error_code:
        yield Difference(
            "error_code", error_name(recorded.error_code), error_name(replayed.error_code)
        )
    now = {
        (topic.topic or topic.topic_id, row.partition_index): row.error_code
        for topic in replayed.responses
        for row in topic.partitions
    }
    for topic in recorded.responses:
        name = topic.topic or ids.topic_ids.get(topic.topic_id, topic.topic_id)
        for row in topic.partitions:
            code = now.get((name, row.partition_index), row.error_code)
            if code != row.error_code:
                path = f"responses[{topic.topic or topic.topic_id.hex()}][{row.partition_index}]"
                yield Difference(f"{path}.error_code", error_name(row.error_code), error_name(code))


class FetchedRecords:
    """What fetches brought, recorded and replayed, by partition and (recorded) offset."""

    def __init__(self, ids: IdMap) -> None:
        self._ids = ids
        self._recorded: dict[tuple[str, int, int], bytes] = {}
        self._replayed: dict[tuple[str, int, int], bytes] = {}

    def add(self, recorded: Any, replayed: Any) -> None:
        """Two answers to a fetch."""
        names = self._ids.topic_names
        now_names = {new: names[old] for old, new in self._ids.topic_ids.items() if old in names}
        for topic, index, offset, digest in _fetched(recorded, names):
            if len(self._recorded) < RECORDS_MAX:
                self._recorded[topic, index, self._ids.offset(topic, index, offset)] = digest
        for topic, index, offset, digest in _fetched(replayed, now_names):
            if len(self._replayed) < RECORDS_MAX:
                self._replayed[topic, index, offset] = digest

    def differences(self) -> Iterator[Difference]:
        """Records that came in the recording, and not or differently in the replay."""
        for (topic, index, offset), digest in sorted(self._recorded.items()):
            found = self._replayed.get((topic, index, offset))
            if found != digest:
                state = MISSING if found is None else "another record"
                yield Difference(f"record {topic}-{index}@{offset}", "a record", state)


def _fetched(response: Any, names: dict[bytes, str]) -> Iterator[tuple[str, int, int, bytes]]:
    for topic in response.responses:
        name = topic.topic or names.get(topic.topic_id) or topic.topic_id.hex()
        for row in topic.partitions:
            try:
                for header, batch in batches(row.records or b""):
                    for record in records_of(batch, header):
                        content = repr((record.key, record.value, record.headers)).encode()
                        digest = blake2b(content, digest_size=16).digest()
                        yield name, row.partition_index, record.offset, digest
            except CorruptBatch:
                continue
