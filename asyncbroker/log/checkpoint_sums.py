"""Checksums of the checkpoints of a data directory, which have none of their own, and copies.

Kafka's checkpoints are text, and a bit that flips in a digit leaves another number: a promise that
nobody made, or a beginning of a log beyond all its records. So beside them lies

    .asyncbroker_checksums    the version (1); a line with the numbers of sums and of copies; a line
                              of each file with its name and the CRC-32Cs that it may have, in
                              hexadecimal; of each copy a line with its name and size in bytes; the
                              copies, one after the other; the CRC-32C of all that. (Version 0 has
                              the lines of sums only.)

The sum of what a checkpoint will be is written before the checkpoint is, beside that of what it is:
a crash in between leaves one that fits either way. So is the copy, which says what is true then
already, and takes the place of a checkpoint whose sum is wrong. Apache Kafka does not know of all
this; it writes a `replication-offset-checkpoint`, though, and when that has changed, it has had the
directory meanwhile, and sums and copies say nothing.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from typing import Final, NamedTuple

from asyncbroker.log.checkpoints import CorruptCheckpoint, TopicPartition, decode_offsets
from asyncbroker.log.files import Files
from asyncbroker.protocol.checksums import crc32c

logger = logging.getLogger(__name__)

CHECKSUMS: Final = ".asyncbroker_checksums"
KAFKAS: Final = "replication-offset-checkpoint"
_WITHOUT_COPIES: Final = "0"
_VERSION: Final = "1"


class Sums(NamedTuple):
    """What the file says: by name the sums that a checkpoint may have, and its copy."""

    crcs: dict[str, list[int]]
    copies: dict[str, bytes]


class CheckpointSums:
    """The sums of one directory's checkpoints. One thread at a time."""

    def __init__(self, files: Files, directory: str, names: Mapping[str, int]) -> None:
        """Reads them; `names` are the directory's files."""
        self._files = files
        self._directory = directory
        self._path = f"{directory}/{CHECKSUMS}"
        kafkas = self._sum_of(KAFKAS) if KAFKAS in names else 0
        # What each file may be, as far as anybody knows.
        self._sums = Sums({}, {})
        if CHECKSUMS in names:
            try:
                self._sums = decode_sums(files.read_whole(self._path))
            except CorruptCheckpoint as damage:
                logger.warning("%s: %s; the checkpoints are taken as they are", self._path, damage)
        if self._sums.crcs.get(KAFKAS, [kafkas]) != [kafkas]:
            logger.warning("%s: Apache Kafka has had this directory", directory)
            self._sums = Sums({}, {})
        self._sums.crcs[KAFKAS] = [kafkas]

    def decode(self, name: str, data: bytes) -> dict[TopicPartition, int]:
        """What a checkpoint says, if its sum is right. Raises CorruptCheckpoint."""
        found = crc32c(data)
        expected = self._sums.crcs.get(name)
        if expected is not None and found not in expected:
            raise CorruptCheckpoint("its checksum does not match")
        self._sums.crcs[name] = [found]
        offsets = decode_offsets(data)
        self._sums.copies[name] = data
        return offsets

    def decode_copy(self, name: str) -> dict[TopicPartition, int] | None:
        """What the copy of a checkpoint says, for one that is damaged; None if there is none."""
        copy = self._sums.copies.get(name)
        return None if copy is None else decode_offsets(copy)

    def write(self, name: str, data: bytes) -> None:
        """Replaces a checkpoint durably, its sum, and its copy."""
        crcs = self._sums.crcs
        after = crc32c(data)
        before = crcs.get(name, [])
        crcs[name] = [*before, after]
        self._sums.copies[name] = data
        try:
            self._files.write_atomically(self._path, encode_sums(self._sums))
            self._files.write_atomically(f"{self._directory}/{name}", data)
        except OSError:
            # On a full disk this goes on for long: it is no sum more each time.
            with contextlib.suppress(OSError):
                if before and self._sum_of(name) in before:
                    crcs[name] = before
            raise
        crcs[name] = [after]

    def _sum_of(self, name: str) -> int:
        return crc32c(self._files.read_whole(f"{self._directory}/{name}"))


def encode_sums(sums: Sums) -> bytes:
    """The file's bytes."""
    crcs, copies = sums
    lines = [
        _VERSION,
        f"{len(crcs)} {len(copies)}",
        *(" ".join([name, *(f"{crc:08x}" for crc in each)]) for name, each in crcs.items()),
        *(f"{name} {len(copy)}" for name, copy in copies.items()),
        "",
    ]
    body = b"".join(["\n".join(lines).encode(), *copies.values()])
    return body + f"{crc32c(body):08x}\n".encode()


def decode_sums(data: bytes) -> Sums:
    """What the file says, in this version or the one before. Raises CorruptCheckpoint."""
    body, crc = data[:-9], data[-9:]
    try:
        if int(crc, 16) != crc32c(body):
            raise CorruptCheckpoint("its own checksum does not match")
        version, _, rest = body.partition(b"\n")
        if version == _WITHOUT_COPIES.encode():
            return Sums(_decode_crcs(rest.splitlines()), {})
        if version != _VERSION.encode():
            raise CorruptCheckpoint(f"version {version.decode()}")
        counts, _, rest = rest.partition(b"\n")
        crc_count, copy_count = map(int, counts.split(b" "))
        *lines, joined = rest.split(b"\n", crc_count + copy_count)
        copies: dict[str, bytes] = {}
        for line in lines[crc_count:]:
            name, size = line.decode().split(" ")
            copies[name], joined = joined[: int(size)], joined[int(size) :]
        crcs = _decode_crcs(lines[:crc_count])
    except ValueError as error:
        raise CorruptCheckpoint(str(error)) from error
    return Sums(crcs, copies)


def _decode_crcs(lines: list[bytes]) -> dict[str, list[int]]:
    rows = (line.decode().split(" ") for line in lines)
    return {name: [int(crc, 16) for crc in crcs] for name, *crcs in rows}
