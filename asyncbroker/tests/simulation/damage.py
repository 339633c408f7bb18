"""Damage: a bit of what is promised flips on the disk while no broker is running.

Promised is what the recovery point, as it was last written, says to be durable. A batch that lies
below it is chosen and one of its bits is changed, whichever it is. From then on its offsets may be
answered with CORRUPT_MESSAGE, and nothing else may be different. A partition has a few of them at
most: where many are near one another, what lies between them is given up (`log/batch_scan.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from contextlib import suppress
from random import Random
from typing import NamedTuple

from asyncbroker.broker import MEMORY_DIRECTORY
from asyncbroker.log.checkpoints import RECOVERY_POINTS
from asyncbroker.log.tests.crash_disk import Contents
from asyncbroker.log.tests.crash_files import CrashFiles
from asyncbroker.protocol.batches import (
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    read_header,
    verify_crc,
)
from asyncbroker.protocol.compression import CorruptBatch


class Damage(NamedTuple):
    """What was damaged: the offsets from `first` up to `end` of a partition."""

    topic: str
    partition: int
    first: int
    end: int


class _Stored(NamedTuple):
    damage: Damage
    contents: Contents
    position: int
    size: int


def flip_bit(
    files: CrashFiles, topics: Set[str], is_full: Callable[[str, int], bool], random: Random
) -> Damage | None:
    """Damages a batch of one of the topics, if there is one that is promised, in a partition that
    has not as many as it may have."""
    stored = [
        each
        for each in _promised(files, topics)
        if not is_full(each.damage.topic, each.damage.partition)
    ]
    if not stored:
        return None
    chosen = random.choice(stored)
    position = chosen.position + random.randrange(chosen.size)
    chosen.contents.flip(position, 1 << random.randrange(8))
    return chosen.damage


def _promised(files: CrashFiles, topics: Set[str]) -> Iterator[_Stored]:
    for line in _lines(files, f"{MEMORY_DIRECTORY}/{RECOVERY_POINTS}")[2:]:
        topic, number, point = line.split()
        if topic in topics:
            yield from _batches_below(files, topic, int(number), int(point))


def _batches_below(files: CrashFiles, topic: str, index: int, point: int) -> Iterator[_Stored]:
    """Those that are good: a batch loses one bit, since the header of a damaged one does not tell
    whose bytes are damaged next."""
    directory = f"{MEMORY_DIRECTORY}/{topic}-{index}"
    for path in sorted(files.contents()):
        if not path.startswith(f"{directory}/") or not path.endswith(".log"):
            continue
        contents = files.contents_of(path)
        data = memoryview(bytes(contents.data))
        position = 0
        while position < len(data):
            header = _good_header(data[position:])
            if header is None:
                position += 1
                continue
            if header.next_offset > point:
                break
            damage = Damage(topic, index, header.base_offset, header.next_offset)
            yield _Stored(damage, contents, position, header.size)
            position += header.size


def _good_header(data: memoryview) -> BatchHeader | None:
    """The header of the batch at the beginning, if its CRC is right."""
    if len(data) <= MAGIC_AT or data[MAGIC_AT] != MAGIC:
        return None
    with suppress(CorruptBatch):
        header = read_header(data)
        if verify_crc(data, header):
            return header
    return None


def _lines(files: CrashFiles, path: str) -> list[str]:
    return files.contents().get(path, b"").decode().splitlines()
