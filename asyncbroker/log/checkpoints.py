"""The small files of a data directory and of a partition, as Apache Kafka writes them.

    recovery-point-offset-checkpoint    up to where each partition is durable
    log-start-offset-checkpoint         where each partition begins, if not with its first segment
    cleaner-offset-checkpoint           up to where each partition is compacted
    leader-epoch-checkpoint             in each partition: epochs and their first offsets
    partition.metadata                  in each partition: the topic id
    meta.properties                     whose directory it is
    .kafka_cleanshutdown                there only after a clean stop, until the next start

Checkpoints are text: a version (0), the number of entries, the entries, one a line. They carry no
checksum, so whatever does not fit is refused as a whole (CorruptCheckpoint). Here is only what
stands in the files; when they are written, and what their loss means, is the owner's.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from typing import Final

from asyncbroker.log.leader_epochs import EpochStart

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"

_VERSION: Final = "0"
# Two characters of an id's text.
_DAMAGED_BITS_MAX: Final = 12

TopicPartition = tuple[str, int]


class CorruptCheckpoint(Exception):
    """A small file that does not read as what it should be."""


def encode_offsets(offsets: dict[TopicPartition, int]) -> bytes:
    """Lines `topic partition offset`."""
    return _encode_lines(
        [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    )


def decode_offsets(data: bytes) -> dict[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    for line in _decode_lines(data):
        try:
            topic, partition, offset = line.split(" ")
            offsets[topic, int(partition)] = _natural(offset)
        except ValueError as error:
            raise CorruptCheckpoint(f"the line {line!r}") from error
    return offsets


def encode_epochs(entries: list[EpochStart]) -> bytes:
    """Lines `epoch startOffset`."""
    return _encode_lines([f"{epoch} {offset}" for epoch, offset in entries])


def decode_epochs(data: bytes) -> list[EpochStart]:
    """The epochs and their first offsets; both must ascend."""
    entries: list[EpochStart] = []
    for line in _decode_lines(data):
        try:
            epoch, offset = (_natural(number) for number in line.split(" "))
        except ValueError as error:
            raise CorruptCheckpoint(f"the line {line!r}") from error
        if entries and (epoch <= entries[-1][0] or offset <= entries[-1][1]):
            raise CorruptCheckpoint(f"epoch {epoch} at {offset} after {entries[-1]}")
        entries.append(EpochStart(epoch, offset))
    return entries


def encode_partition_metadata(topic_id: bytes) -> bytes:
    return f"version: {_VERSION}\ntopic_id: {encode_uuid(topic_id)}".encode()


def decode_partition_metadata(data: bytes) -> bytes:
    """The topic id."""
    fields = dict(line.split(": ", 1) for line in _text(data).splitlines() if ": " in line)
    if fields.get("version") != _VERSION or "topic_id" not in fields:
        raise CorruptCheckpoint(f"partition metadata {fields}")
    return decode_uuid(fields["topic_id"])


def is_damaged_id(found: bytes, expected: bytes) -> bool:
    """Whether a topic id is the expected one with a byte or two damaged. The file has no checksum,
    but ids are random: any two differ in some 64 of their 128 bits."""
    difference = int.from_bytes(found, "big") ^ int.from_bytes(expected, "big")
    return 0 < difference.bit_count() <= _DAMAGED_BITS_MAX


def encode_properties(properties: dict[str, str]) -> bytes:
    """A Java properties file, for keys and values that need no escapes."""
    return "".join(f"{key}={value}\n" for key, value in properties.items()).encode()


def decode_properties(data: bytes) -> dict[str, str]:
    lines = (line.strip() for line in _text(data).splitlines())
    pairs = (line.partition("=") for line in lines if line and line[0] not in "#!")
    return {key.strip(): value.strip().replace("\\", "") for key, _, value in pairs}


def encode_clean_shutdown() -> bytes:
    return json.dumps({"version": 0, "brokerEpoch": -1}, separators=(",", ":")).encode()


def encode_uuid(uuid: bytes) -> str:
    """Kafka's text of 16 bytes: 22 characters of URL-safe base64, without padding."""
    return urlsafe_b64encode(uuid).decode().rstrip("=")


def decode_uuid(text: str) -> bytes:
    try:
        uuid = urlsafe_b64decode(text + "==")
    except (Base64Error, ValueError) as error:
        raise CorruptCheckpoint(f"the uuid {text!r}") from error
    if len(uuid) != 16:
        raise CorruptCheckpoint(f"the uuid {text!r}")
    return uuid


def _encode_lines(lines: list[str]) -> bytes:
    return "\n".join([_VERSION, str(len(lines)), *lines, ""]).encode()


def _decode_lines(data: bytes) -> list[str]:
    lines = _text(data).splitlines()
    if len(lines) < 2 or lines[0] != _VERSION or lines[1] != str(len(lines) - 2):
        raise CorruptCheckpoint(f"it begins {lines[:2]} and has {len(lines)} lines")
    return lines[2:]


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CorruptCheckpoint(str(error)) from error


def _natural(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError(text)
    return number
