"""What a request and its response are about: topics, partitions, groups, records, errors.

Found by field names, which are Kafka's and mean the same in every API; so nothing here lists the
APIs. Messages are decoded ones, of any version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final

from asyncbroker.protocol.batches import BATCH_HEADER_BYTES, read_header
from asyncbroker.protocol.compression import CorruptBatch
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.tracing.api_names import api_name
from asyncbroker.tracing.exchange import NO_PARTITION, Exchange, PartitionPart
from asyncbroker.tracing.frames import Head
from asyncbroker.tracing.plain import plain

PARTS_MAX: Final = 1000
NAMES_MAX: Final = 100_000
BATCHES_COUNTED_MAX: Final = 1000

_TOPICS: Final = ("topics", "topic_data", "topic_names", "responses", "resources", "results")
_TOPIC_NAME: Final = ("name", "topic", "resource_name")
_PARTITIONS: Final = ("partitions", "partition_data", "partition_indexes", "partition_responses")
_PARTITION_INDEX: Final = ("index", "partition", "partition_index")
_GROUPS: Final = ("groups", "group_ids", "groups_names", "coordinator_keys")
_OFFSET: Final = ("fetch_offset", "committed_offset", "offset", "timestamp")
_ANSWERED_OFFSET: Final = (
    "base_offset",
    "committed_offset",
    "offset",
    "high_watermark",
    "low_watermark",
    "end_offset",
)
_TOPIC_RESOURCE: Final = 2

TopicName = Callable[[bytes], "str | None"]
"""The name of the topic with an id, if somebody knows it."""


def parts_of(request: Any, response: Any, topic_name: TopicName) -> tuple[PartitionPart, ...]:
    """The partitions of both, each once, with what either says about it; at most `PARTS_MAX`."""
    parts: dict[tuple[str, int], PartitionPart] = {}
    for name, index, item in _partitions(request, topic_name):
        if len(parts) == PARTS_MAX:
            break
        size, count = records_in(getattr(item, "records", None))
        parts[name, index] = PartitionPart(name, index, _offset(item, _OFFSET), None, size, count)
    for name, index, item in _partitions(response, topic_name):
        part = parts.get((name, index))
        if part is None:
            if len(parts) == PARTS_MAX:
                continue
            part = PartitionPart(name, index)
        size, count = records_in(getattr(item, "records", None))
        code = getattr(item, "error_code", 0)
        parts[name, index] = replace(
            part,
            answered_offset=_offset(item, _ANSWERED_OFFSET),
            record_bytes=part.record_bytes or size,
            records=count if part.records is None else part.records,
            error=error_name(code) if code else "",
        )
    return tuple(parts.values())


def topic_ids(response: Any) -> Iterator[tuple[str, bytes]]:
    """The topics that a response tells both name and id of."""
    for topic in getattr(response, "topics", None) or ():
        name, topic_id = getattr(topic, "name", None), getattr(topic, "topic_id", None)
        if name and topic_id and any(topic_id):
            yield name, topic_id


def learn_names(names: dict[bytes, str], response: Any) -> None:
    """Takes note of the names of topics, which newer requests leave out; of a bounded number."""
    for name, topic_id in topic_ids(response):
        if len(names) >= NAMES_MAX:
            names.clear()
        names[topic_id] = name


def groups_of(message: Any) -> Iterator[str]:
    """The groups that a request names."""
    for name in ("group_id", "key"):
        if isinstance(group_id := getattr(message, name, None), str) and group_id:
            yield group_id
    for name in _GROUPS:
        for group in getattr(message, name, None) or ():
            group_id = group if isinstance(group, str) else getattr(group, "group_id", None)
            if isinstance(group_id, str):
                yield group_id


def session_of(request: Any) -> str:
    """The fetch session that a request goes on with, and its epoch there."""
    session_id = getattr(request, "session_id", 0)
    epoch = getattr(request, "session_epoch", -1)
    return f"session {session_id}#{epoch}" if session_id and epoch > 0 else ""


def error_names(response: Any) -> tuple[str, ...]:
    """The names of all errors in a response, however deep; each once."""
    return tuple(dict.fromkeys(_errors_in(response)))


def _errors_in(response: Any) -> Iterator[str]:
    if not is_dataclass(response):
        return
    for item in fields(response):
        value = getattr(response, item.name, None)
        if item.name == "error_code":
            if value:
                yield error_name(value)
        elif isinstance(value, list):
            for inner in value:
                yield from _errors_in(inner)


def error_name(code: int) -> str:
    """An error's name in Kafka; the number of one that we do not know."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def records_in(value: Any) -> tuple[int, int | None]:
    """The size of a RECORDS field, and how many records its batches have; None for the second
    where that cannot be told without reading a disk."""
    if value is None:
        return 0, None
    if isinstance(value, (bytes, bytearray, memoryview)):
        return len(value), _count(
            len(value), lambda position: value[position:][:BATCH_HEADER_BYTES]
        )
    file, start = value.file, value.position
    return value.size, _count(
        value.size, lambda position: file.pread_nowait(BATCH_HEADER_BYTES, start + position)
    )


def _count(size: int, read: Callable[[int], Any]) -> int | None:
    """The records of the batches in `size` bytes; None when there is too much to look at."""
    position = count = 0
    for _ in range(BATCHES_COUNTED_MAX):
        if size - position < BATCH_HEADER_BYTES:
            return count
        head = read(position)
        if head is None:
            return None
        try:
            header = read_header(head)
        except CorruptBatch:
            return None
        position += header.size
        if position > size:
            # The last one of a fetch may be cut off.
            return count
        count += header.record_count
    return None


def _partitions(message: Any, topic_name: TopicName) -> Iterator[tuple[str, int, Any]]:
    """Topic, partition and the item that says something about it."""
    holders = [message, *(row for row in getattr(message, "groups", ()) if is_dataclass(row))]
    for holder in holders:
        for name in _TOPICS:
            for topic in getattr(holder, name, None) or ():
                yield from _partitions_of_topic(topic, topic_name)


def _partitions_of_topic(topic: Any, topic_name: TopicName) -> Iterator[tuple[str, int, Any]]:
    if isinstance(topic, str):
        yield topic, NO_PARTITION, None
        return
    if getattr(topic, "resource_type", _TOPIC_RESOURCE) != _TOPIC_RESOURCE:
        return
    name = _first_of(topic, _TOPIC_NAME)
    if not name:
        topic_id = getattr(topic, "topic_id", None)
        if topic_id is None:
            return
        name = topic_name(topic_id) or f"topic id {topic_id.hex()}"
    partitions = _first_of(topic, _PARTITIONS)
    if not isinstance(partitions, (list, tuple)) or not partitions:
        yield str(name), NO_PARTITION, topic
        return
    for partition in partitions:
        if isinstance(partition, int):
            yield str(name), partition, None
        else:
            index = _first_of(partition, _PARTITION_INDEX)
            yield str(name), NO_PARTITION if index is None else index, partition


def _first_of(item: Any, names: Iterable[str]) -> Any:
    """The first of these attributes that there is; None without one."""
    return next((getattr(item, name) for name in names if hasattr(item, name)), None)


def _offset(item: Any, names: Iterable[str]) -> int | None:
    value = _first_of(item, names)
    return value if isinstance(value, int) else None


def summarise(
    head: Head,
    request: Any,
    response: Any,
    topic_name: TopicName,
    *,
    at: float,
    milliseconds: float,
    connection: int,
    peer: str,
    request_bytes: int,
    response_bytes: int | None,
    faults: Sequence[str] = (),
    problem: str = "",
    is_full: bool = False,
) -> Exchange:
    """The exchange of a request and its response; either may be None where it was not decoded."""
    return Exchange(
        at=at,
        connection=connection,
        peer=peer,
        api=api_name(head.api_key) if head.api_key >= 0 else "?",
        version=head.version,
        correlation_id=head.correlation_id,
        client_id=head.client_id,
        request_bytes=request_bytes,
        response_bytes=response_bytes,
        milliseconds=milliseconds,
        parts=parts_of(request, response, topic_name),
        groups=tuple(dict.fromkeys(groups_of(request))),
        session=session_of(request),
        errors=error_names(response),
        faults=tuple(faults),
        problem=problem or ("not decoded" if request is None else ""),
        request=plain(request) if is_full else None,
        response=plain(response) if is_full else None,
    )
