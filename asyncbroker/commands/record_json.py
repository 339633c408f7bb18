"""Records as JSON: what `consume --format json` prints and `produce --json` reads.

    {"topic": "flights", "partition": 0, "offset": 12, "timestamp": 1356998400000,
     "key": "N14228", "value": "...", "headers": [["source", "csv"]]}

Bytes that are UTF-8 become strings, others `{"base64": "..."}`; null stays null.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from typing import Any

from asyncbroker.client.cluster import TopicPartition
from asyncbroker.protocol.records import Record


@dataclass(frozen=True, slots=True)
class RecordToProduce:
    """What a line of JSON asks to be written."""

    value: bytes | None
    key: bytes | None = None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)
    timestamp_ms: int | None = None
    partition: int | None = None


def record_to_json(partition: TopicPartition, record: Record) -> str:
    """One line of JSON."""
    document = {
        "topic": partition.topic,
        "partition": partition.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": encoded(record.key),
        "value": encoded(record.value),
        "headers": [[name, encoded(content)] for name, content in record.headers],
    }
    return json.dumps(document, ensure_ascii=False)


def record_from_json(line: bytes) -> RecordToProduce:
    """Reads one line; topic and offset are passed over, everything but the value may be missing.
    Raises ValueError."""
    document = json.loads(line)
    if not isinstance(document, dict):
        raise ValueError("a record is a JSON object")
    if "value" not in document:
        raise ValueError('a record has a "value", which may be null')
    return RecordToProduce(
        value=_decoded(document["value"], "value"),
        key=_decoded(document.get("key"), "key"),
        headers=_headers(document.get("headers")),
        timestamp_ms=_integer(document.get("timestamp"), "timestamp"),
        partition=_integer(document.get("partition"), "partition"),
    )


def _headers(value: Any) -> list[tuple[str, bytes | None]]:
    pairs = list(value.items()) if isinstance(value, dict) else value or []
    if not isinstance(pairs, list) or not all(
        isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in pairs
    ):
        raise ValueError('"headers" are pairs of a name and a value')
    return [(str(name), _decoded(content, "headers")) for name, content in pairs]


def encoded(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}


def _decoded(value: Any, name: str) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and isinstance(value.get("base64"), str):
        return b64decode(value["base64"], validate=True)
    raise ValueError(f'"{name}" is a string, null or {{"base64": "..."}}')


def _integer(value: Any, name: str) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise ValueError(f'"{name}" is a whole number')
