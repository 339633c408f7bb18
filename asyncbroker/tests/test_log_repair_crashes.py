"""`asyncbroker log repair` is killed, or loses its power, before each of its changes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final

import pytest
from click.testing import CliRunner

from asyncbroker.__main__ import cli
from asyncbroker.log.config import LogConfig
from asyncbroker.log.files import Files, RealFiles
from asyncbroker.log.log_directory import LogDirectory
from asyncbroker.log.partition_log import PartitionLog
from asyncbroker.log.repair import carry_out, plan
from asyncbroker.log.tests.crash_disk import sampled, synced_only
from asyncbroker.log.tests.crash_files import CrashFiles, Died
from asyncbroker.log.tests.log_harness import append, append_each, from_producer
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.records import batches, records_of, verify_crc
from asyncbroker.tests.long import IS_LONG

# Three batches a segment: 0, 3, 6 and 9.
CONFIG: Final = LogConfig(segment_bytes=300, index_interval_bytes=50)
COUNT: Final = 11
DAMAGED: Final = frozenset({4, 7})
SAMPLES: Final = 4 if IS_LONG else 1
# Every change is one of its beginnings; without time for that, some of them.
STEP: Final = 1 if IS_LONG else 4


def opened(files: Files, path: str) -> tuple[LogDirectory, PartitionLog]:
    directory = LogDirectory.open(files, path, cluster_id="c", node_id=1)
    log = directory.open_partition(
        "flights", 0, topic_id=bytes(16), config=CONFIG, leader_epoch=0, now_ms=0
    )
    return directory, log


@pytest.fixture
def data(tmp_path: Path) -> tuple[Path, list[bytes]]:
    """Two batches, two indexes and a snapshot are damaged, and the end is torn; what there was."""
    path = tmp_path / "data"
    directory, log = opened(RealFiles(), str(path))
    values = append_each(log, COUNT - 1)
    append(log, from_producer(0, b"x" * 20))
    directory.close()
    for name, position in (
        (f"{3:020d}.log", 150),
        (f"{6:020d}.log", 150),
        (f"{0:020d}.index", 8),
        (f"{9:020d}.timeindex", 3),
        (f"{11:020d}.snapshot", 9),
    ):
        file = path / "flights-0" / name
        content = bytearray(file.read_bytes())
        content[position] ^= 0x55
        file.write_bytes(content)
    with (path / "flights-0" / f"{9:020d}.log").open("ab") as newest:
        newest.write(bytes(range(100)))
    return path, [*values, b"x" * 20]


def in_memory(path: Path) -> CrashFiles:
    """The same files, all of them durable."""
    files = CrashFiles()
    for folder, _, names in os.walk(path):
        files.make_directory(folder)
        for name in names:
            files.write_atomically(f"{folder}/{name}", Path(folder, name).read_bytes())
    for above in (path, *path.parents):
        files.sync_directory(str(above))
    return files


def on_disk(files: CrashFiles, path: Path) -> None:
    for name in RealFiles().list_files(str(path / "flights-0")):
        (path / "flights-0" / name).unlink()
    for name, content in files.contents().items():
        Path("/", name).write_bytes(content)


def states(files: CrashFiles, chance: Random) -> Iterator[CrashFiles]:
    yield files.killed()
    for choose in (synced_only, *(sampled(chance) for _ in range(SAMPLES))):
        yield files.crashed(choose)


def served(log: PartitionLog) -> tuple[dict[int, bytes | None], set[int]]:
    """What a reader gets, by offset, and which offsets it is refused."""
    found: dict[int, bytes | None] = {}
    refused = set()
    offset = 0
    while offset < log.end_offset:
        try:
            located = log.locate(offset, 1 << 20, end_offset=log.end_offset)
            assert located is not None
            for header, content in batches(located.read()):
                if not verify_crc(content, header):
                    # Nobody has looked at it yet; who sends it does.
                    refused.add(header.base_offset)
                    offset = header.next_offset
                    continue
                found.update((each.offset, each.value) for each in records_of(content, header))
                offset = header.next_offset
        except KafkaError as error:
            if error.code is not ErrorCode.CORRUPT_MESSAGE:
                raise
            refused.add(offset)
            offset += 1
    return found, refused


def check(files: Files, path: str, values: list[bytes]) -> None:
    """Nothing is missing but what is damaged, and nothing is what it was not."""
    directory, log = opened(files, path)
    found, refused = served(log)
    assert refused <= DAMAGED
    assert found == {at: value for at, value in enumerate(values) if at not in DAMAGED}
    assert log.end_offset == COUNT
    assert append(log, from_producer(0, b"x" * 20)).is_duplicate
    assert append(log).base_offset == COUNT
    directory.close()


def test_a_repair_may_end_anywhere_and_be_done_again(data: tuple[Path, list[bytes]]) -> None:
    path, values = data
    whole = in_memory(path)
    repairs = plan(str(path / "flights-0"))
    assert len(repairs) == 5
    chance = Random(1)
    number = 0
    is_done = False
    while not is_done:
        files = whole.killed()
        files.die_in = number
        files.dying_part = 0.5
        try:
            carry_out(files, repairs)
            is_done = True
        except Died:
            number += STEP
        for state in states(files, chance):
            on_disk(state, path)
            check(state, str(path), values)
            repaired = CliRunner().invoke(cli, ["log", "repair", str(path), "--yes"])
            assert repaired.exit_code == 0, repaired.output
            checked = CliRunner().invoke(cli, ["log", "check", str(path)])
            assert checked.output == "no damage\n"
            check(RealFiles(), str(path), values)
    assert number > 20
