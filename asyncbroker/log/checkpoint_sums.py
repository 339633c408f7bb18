"""Checksums of the checkpoints of a data directory, which have none of their own.

Kafka's checkpoints are text, and a bit that flips in a digit leaves another number: a promise that
nobody made, or a beginning of a log beyond all its records. So beside them lies

    .asyncbroker_checksums    the version (0), a line of each file with its name and the CRC-32Cs
                              that it may have, in hexadecimal, and the CRC-32C of all that

The sum of what a checkpoint will be is written before the checkpoint is, beside that of what it is:
a crash in between leaves one that fits either way. Apache Kafka does not know of the sums; it
writes a `replication-offset-checkpoint`, though, and when that has changed, it has had the
directory meanwhile, and the sums say nothing.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from typing import Final

from asyncbroker.log.checkpoints import CorruptCheckpoint, TopicPartition, decode_offsets
from asyncbroker.log.files import Files
from asyncbroker.protocol.checksums import crc32c

logger = logging.getLogger(__name__)

CHECKSUMS: Final = ".asyncbroker_checksums"
KAFKAS: Final = "replication-offset-checkpoint"
_VERSION: Final = "0"


class CheckpointSums:
    """The sums of one directory's checkpoints. One thread at a time."""

    def __init__(self, files: Files, directory: str, names: Mapping[str, int]) -> None:
        """Reads them; `names` are the directory's files."""
        self._files = files
        self._directory = directory
        self._path = f"{directory}/{CHECKSUMS}"
        kafkas = self._sum_of(KAFKAS) if KAFKAS in names else 0
        # What each file may be, as far as anybody knows.
        self._sums: dict[str, list[int]] = {}
        if CHECKSUMS in names:
            try:
                self._sums = decode_sums(files.read_whole(self._path))
            except CorruptCheckpoint as damage:
                logger.warning("%s: %s; the checkpoints are taken as they are", self._path, damage)
        if self._sums.get(KAFKAS, [kafkas]) != [kafkas]:
            logger.warning("%s: Apache Kafka has had this directory", directory)
            self._sums = {}
        self._sums[KAFKAS] = [kafkas]

    def decode(self, name: str, data: bytes) -> dict[TopicPartition, int]:
        """What a checkpoint says, if its sum is right. Raises CorruptCheckpoint."""
        found = crc32c(data)
        expected = self._sums.get(name)
        if expected is not None and found not in expected:
            raise CorruptCheckpoint("its checksum does not match")
        self._sums[name] = [found]
        return decode_offsets(data)

    def write(self, name: str, data: bytes) -> None:
        """Replaces a checkpoint durably, and its sum."""
        after = crc32c(data)
        before = self._sums.get(name, [])
        self._sums[name] = [*before, after]
        try:
            self._files.write_atomically(self._path, encode_sums(self._sums))
            self._files.write_atomically(f"{self._directory}/{name}", data)
        except OSError:
            # On a full disk this goes on for long: it is no sum more each time.
            with contextlib.suppress(OSError):
                if before and self._sum_of(name) in before:
                    self._sums[name] = before
            raise
        self._sums[name] = [after]

    def _sum_of(self, name: str) -> int:
        return crc32c(self._files.read_whole(f"{self._directory}/{name}"))


def encode_sums(sums: Mapping[str, list[int]]) -> bytes:
    """The file's bytes."""
    lines = [" ".join([name, *(f"{crc:08x}" for crc in crcs)]) for name, crcs in sums.items()]
    body = "\n".join([_VERSION, *lines, ""]).encode()
    return body + f"{crc32c(body):08x}\n".encode()


def decode_sums(data: bytes) -> dict[str, list[int]]:
    """The sums by name. Raises CorruptCheckpoint."""
    body, crc = data[:-9], data[-9:]
    try:
        if int(crc, 16) != crc32c(body):
            raise CorruptCheckpoint("its own checksum does not match")
        version, *lines = body.decode().splitlines()
        if version != _VERSION:
            raise CorruptCheckpoint(f"version {version}")
        rows = (line.split(" ") for line in lines)
        return {name: [int(crc, 16) for crc in crcs] for name, *crcs in rows}
    except ValueError as error:
        raise CorruptCheckpoint(str(error)) from error
