"""Writes kafka.jsonl: messages, and the bytes that Kafka's own Java classes encode them to.

    CLASSPATH=<jars of kafka_2.13> python protocol/tests/golden/write_golden.py

For every API the first and the last version and those on both sides of the flexible one, each as a
message in which every field has a value that occurs nowhere else, and as one of defaults. Run it
when an API gains versions; the test that reads the file needs no Java.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from asyncbroker.protocol.api import APIS, Api
from asyncbroker.protocol.schema import Array, Nested, Primitive, WireType, table_of
from asyncbroker.protocol.tests.message_json import to_json

FOLDER = Path(__file__).parent

# Kafka 4 no longer has these.
DROPPED = {("CreateTopics", 0), ("CreateTopics", 1), ("DeleteTopics", 0), ("DescribeConfigs", 0)}


def main() -> None:
    messages = [
        {"message": api.name + kind, "version": version, "fields": to_json(message, version)}
        for api in APIS
        for version in versions(api)
        for kind, message_class in (("Request", api.request), ("Response", api.response))
        for message in (filled(message_class, version, count(1)), message_class())
    ]
    lines = [f"{m['message']} {m['version']} {json.dumps(m['fields'])}\n" for m in messages]
    java = ["java", str(FOLDER / "KafkaBytes.java")]
    encoded = subprocess.run(java, input="".join(lines), capture_output=True, text=True, check=True)
    with (FOLDER / "kafka.jsonl").open("w") as golden:
        for message, data in zip(messages, encoded.stdout.splitlines(), strict=True):
            golden.write(json.dumps({**message, "bytes": data}) + "\n")


def versions(api: Api) -> list[int]:
    first, last = api.versions.first, api.versions.last
    while (api.name, first) in DROPPED:
        first += 1
    chosen = {first, api.flexible_from - 1, api.flexible_from, last}
    return sorted(version for version in chosen if first <= version <= last)


def filled(message_class: type, version: int, numbers: Iterator[int]) -> Any:
    """A message in which every field of the version has a value of its own."""
    return message_class(
        **{
            name: _filled(name, field.type, version, numbers)
            for name, field in table_of(message_class).items()
            if version in field.versions
        }
    )


def _filled(name: str, wire_type: WireType, version: int, numbers: Iterator[int]) -> Any:
    if isinstance(wire_type, Array):
        return [_filled(name, wire_type.item, version, numbers) for _ in range(2)]
    if isinstance(wire_type, Nested):
        return filled(wire_type.message, version, numbers)
    return _value(name, wire_type, next(numbers))


def _value(name: str, primitive: Primitive, number: int) -> Any:
    if primitive.name == "bool":
        return True
    if primitive.name == "float64":
        return number + 0.5
    if primitive.name == "string":
        return f"{name}-{number}"
    if primitive.name == "uuid":
        return number.to_bytes(16, "big")
    if primitive.name in ("bytes", "records"):
        return f"{name}-{number}".encode()
    return number


if __name__ == "__main__":
    main()
