"""Damaged batches for the compiled extension, which is built with sanitizers for it.

The parent builds `_records*.c` into a folder of its own, and runs this file again as a child in
which the sanitizers are loaded before Python: a read or write outside a buffer ends the child with
a report. The bytes that the extension sees lie in allocations of exactly their size.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import random
import struct
import subprocess
import sys
import sysconfig
import tempfile
import time
from contextlib import suppress
from dataclasses import astuple
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from asyncbroker.protocol.batches import batches as batches_in
from asyncbroker.protocol.batches import check_batch, stamp_crc
from asyncbroker.protocol.record_columns import record_columns, with_records
from asyncbroker.protocol.record_facts import check_records_portably
from asyncbroker.protocol.records import (
    BATCH_HEADER_BYTES,
    BatchHeader,
    CorruptBatch,
    Record,
    TimestampType,
    build_batch,
    read_header,
    records_of,
)

SOURCES: Final = sorted(Path(__file__).resolve().parent.parent.glob("_records*.c"))
SANITIZERS: Final = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
FLAGS: Final = ("-O1", "-g", "-std=c11", "-fPIC", "-shared", "-DPy_LIMITED_API=0x030B0000")
ROW: Final = struct.Struct("@10q")
ALL_COLUMNS: Final = (True,) * 6
EVERYTHING: Final = (0, (1 << 63) - 1)
# Where no column can begin.
FIRST_ROWS: Final = (-1, -(1 << 63), 1 << 40, (1 << 63) - 1)
# One in so many outcomes is compared with what Python reads, which takes longer than all the rest.
COMPARED: Final = 20


def build(folder: Path) -> Path:
    """The extension with sanitizers in it."""
    built = folder / "_records.abi3.so"
    include = f"-I{sysconfig.get_path('include')}"
    sources = map(str, SOURCES)
    subprocess.run(["cc", *FLAGS, *SANITIZERS, include, *sources, "-o", str(built)], check=True)
    return built


def library(name: str) -> str:
    """Where the compiler has a library of its own; just the name when it has none."""
    found = subprocess.run(
        ["cc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
    )
    return found.stdout.strip()


def is_possible() -> bool:
    """Whether there is a compiler with sanitizers here."""
    try:
        return "/" in library("libasan.so") and "/" in library("libubsan.so")
    except (OSError, subprocess.CalledProcessError):
        return False


def load(path: Path) -> ModuleType:
    loader = ExtensionFileLoader("_records", str(path))
    spec = spec_from_loader("_records", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


# ---- the child


def exactly(data: bytes | bytearray) -> Any:
    """The bytes in an allocation of just their size."""
    return (ctypes.c_ubyte * len(data)).from_buffer_copy(data)


def sample(chance: random.Random) -> bytes:
    def piece() -> bytes | None:
        size = chance.choice((None, 0, 1, 5, 63, 64, 200))
        return None if size is None else chance.randbytes(size)

    return bytes(
        build_batch(
            [
                Record(
                    0,
                    chance.choice((0, 1, 1_700_000_000_000, -1, 1 << 40)),
                    piece(),
                    piece(),
                    [("h" * chance.randrange(3), piece()) for _ in range(chance.randrange(4))],
                )
                for _ in range(chance.randrange(1, 12))
            ],
            base_offset=chance.choice((0, 7, 1 << 40)),
        )
    )


def damaged(batch: bytes, chance: random.Random) -> bytearray:
    """With some bytes changed, cut out or put in, most of them among the records."""
    data = bytearray(batch)
    for _ in range(chance.choice((1, 1, 2, 5))):
        at = chance.randrange(BATCH_HEADER_BYTES if chance.random() < 0.9 else 0, len(data))
        kind = chance.randrange(8)
        if kind == 0:
            del data[at : at + chance.randrange(1, 9)]
        elif kind == 1:
            data[at:at] = chance.randbytes(chance.randrange(1, 9))
        elif kind == 2:
            data[at : at + 1] = b"\xff" * chance.randrange(1, 11)
        else:
            data[at] = chance.choice((0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF, chance.randrange(256)))
        if len(data) <= BATCH_HEADER_BYTES:
            break
    if chance.random() < 0.9:
        struct.pack_into(">i", data, 8, len(data) - 12)
    return data


def python_reads(batch: bytearray, row: tuple[int, ...]) -> list[int] | None:
    """The offsets of the records, or nothing when it refuses them."""
    try:
        offsets = [record.offset for record in records_of(batch[: row[1]])]
    except Exception:
        return None
    return offsets if all(offset < EVERYTHING[1] for offset in offsets) else None


def python_checks(batch: bytearray, row: tuple[int, ...]) -> tuple[object, ...] | None:
    """The facts about the records, or nothing when it refuses them."""
    header = read_header(batch)
    try:
        return tuple(check_records_portably(batch[BATCH_HEADER_BYTES : row[1]], header))
    except CorruptBatch:
        return None


def python_header(batch: bytearray) -> tuple[object, ...]:
    """The fields of a header of which nothing is wrong; KafkaError or CorruptBatch if something
    is."""
    header = check_batch(batch)
    facts = check_records_portably(batch[BATCH_HEADER_BYTES:], header)
    assert facts.has_all_offsets
    assert facts.max_timestamp == header.max_timestamp
    return astuple(header)


def attack_batches(extension: ModuleType, count: int, chance: random.Random) -> int:
    """Returns how many batches could be read all the same."""
    read_count = 0
    for number in range(count):
        if number % 50 == 0:
            whole = sample(chance)
        batch = damaged(whole, chance)
        if chance.random() < 0.2 and len(batch) > BATCH_HEADER_BYTES:
            stamp_crc(batch)
        plain = extension.check_plain(exactly(batch))
        if plain is not None:
            assert plain == python_header(batch), batch.hex()
        read_as_it_lies(extension, whole, batch, chance)
        rows, _, _ = extension.scan(exactly(batch), chance.random() < 0.5)
        for row in ROW.iter_unpack(rows):
            if row[4] & 7:
                continue
            payload = exactly(batch[row[0] + BATCH_HEADER_BYTES : row[0] + row[1]])
            try:
                columns = extension.decode([payload], ROW.pack(*row), *EVERYTHING, *ALL_COLUMNS)
            except ValueError:
                columns = None
            read_count += columns is not None
            try:
                facts = extension.check(payload, row[8], row[3], row[5])
            except ValueError:
                facts = None
            if number % COMPARED == 0 and row[0] == 0:
                assert facts == python_checks(batch, row), batch.hex()
            if number % COMPARED == 0 and row[0] == 0:
                offsets = None
                if columns is not None:
                    offsets = list(memoryview(columns[1]).cast("q"))[: columns[0]]
                assert offsets == python_reads(batch, row), batch.hex()
    return read_count


def read_as_it_lies(
    extension: ModuleType, whole: bytes, batch: bytearray, chance: random.Random
) -> None:
    """Two batches that are damaged, or of which the second is: what is read of them `decode` reads,
    and nothing of one that it refuses."""
    both = chance.choice((batch, whole)) + batch
    data = exactly(both)
    position, columns = extension.read(
        data, 0, *EVERYTHING, *chance.choice(((0, 0), (9, 500))), False, *[True] * 5
    )
    assert 0 <= position <= len(data)
    if position == 0:
        return
    count, offsets, *_ = columns
    assert count <= len(offsets) // 8
    rows = list(ROW.iter_unpack(extension.scan(exactly(both[:position]), False)[0]))
    rows = [row for row in rows if row[8] and row[2] < EVERYTHING[1]]
    payloads = [exactly(both[row[0] + BATCH_HEADER_BYTES : row[0] + row[1]]) for row in rows]
    packed = b"".join(ROW.pack(*row) for row in rows)
    alone = extension.decode(payloads, packed, *EVERYTHING, *[True] * 5, False)
    assert count == alone[0], batch.hex()
    assert bytes(offsets[: 8 * count]) == bytes(alone[1][: 8 * count]), batch.hex()


def attack_columns(extension: ModuleType, count: int, chance: random.Random) -> None:
    """Columns whose offsets and bitmaps say anything, as no Arrow does."""

    def numbers(size: int, kind: str) -> Any:
        some = [chance.choice((0, 1, 2, 3, 9, 40, -1, 1 << 30)) for _ in range(size)]
        if chance.random() < 0.7:
            some = sorted(abs(number) % 41 for number in some)
        return exactly(struct.pack(f"@{size}{kind}", *some))

    def rows_of(rows: int) -> tuple[int, Any, Any]:
        bits = None if chance.random() < 0.3 else exactly(chance.randbytes(chance.choice((1, 2))))
        first = chance.choice(FIRST_ROWS if chance.random() < 0.05 else (0, 0, 1))
        return first, bits, numbers(rows + 1, "i")

    def column(rows: int) -> tuple[int, Any, Any, Any]:
        return *rows_of(rows), exactly(bytes(40))

    for _ in range(count):
        rows = chance.randrange(1, 9)
        headers = None
        if chance.random() < 0.5:
            headers = (*rows_of(rows), column(rows), column(rows))
        with suppress(ValueError):
            extension.partition(column(rows), chance.choice((rows, 9, -1)), chance.choice((7, 0)))
        try:
            extension.encode(
                numbers(chance.randrange(4), "q"),
                numbers(rows, "q"),
                column(rows),
                column(rows),
                headers,
                chance.choice((0, 100, 1 << 40, (1 << 63) - 1)),
            )
        except (ValueError, IndexError):
            continue


def plain_batches(chance: random.Random) -> list[bytearray]:
    """Some that follow one another in a log, most of them as compaction likes them."""
    offset = 0
    found = []
    for _ in range(chance.randrange(1, 5)):
        records = []
        base_offset = offset
        for _ in range(chance.choice((1, 1, 3, 9))):
            key = None if chance.random() < 0.02 else chance.randbytes(chance.choice((0, 1, 30)))
            value = None if chance.random() < 0.02 else chance.randbytes(chance.choice((0, 9, 99)))
            headers: list[tuple[str, bytes | None]] = [("h", None)] * chance.choice((0, 0, 0, 2))
            records.append(Record(offset, chance.choice((5, 9, 1 << 40)), key, value, headers))
            offset += chance.choice((1, 1, 1, 7))
        times = chance.choice((TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME))
        found.append(
            build_batch(records, base_offset=base_offset, keeps_offsets=True, timestamp_type=times)
        )
    return found


def python_keeps(batch: bytes, kept: list[int]) -> bytes:
    header = read_header(batch)
    survivors = [each for each in kept if header.base_offset <= each <= header.last_offset]
    if len(survivors) in (0, header.record_count):
        return batch if survivors else b""
    payload = batch[BATCH_HEADER_BYTES:]
    deltas, _, _, ends = record_columns(payload, header)
    indexes = [deltas.index(offset - header.base_offset) for offset in survivors]
    return bytes(with_records(header, payload, ends, indexes, None))


def attack_runs(extension: ModuleType, count: int, chance: random.Random) -> None:
    """Runs of batches as compaction takes them, with damage under a CRC that is right."""
    for number in range(count):
        whole = plain_batches(chance)
        if chance.random() < 0.7:
            at = chance.randrange(len(whole))
            whole[at] = damaged(bytes(whole[at]), chance)
            if len(whole[at]) > BATCH_HEADER_BYTES:
                stamp_crc(whole[at])
        data = b"".join(whole)
        sizes = (0, 60, 100, len(data))
        payload = None
        if chance.random() < 0.1:
            # As of a compressed batch, which comes with its records beside it.
            beside = chance.choice((chance.randbytes(40), whole[0][BATCH_HEADER_BYTES:]))
            payload = exactly(beside)
        offsets = sorted(chance.randrange(40) for _ in range(chance.randrange(30)))
        kept = sorted(set(offsets))
        if chance.random() < 0.1:
            kept = [chance.choice((0, 5, -1, 1 << 62, -(1 << 63))) for _ in range(4)]
        stops = [chance.randrange(40)] * (chance.random() < 0.3)
        run = (
            exactly(data),
            payload,
            chance.choice(sizes),
            chance.choice((0, 0, 0, 9, -5)),
            chance.choice((30, 1 << 40, (1 << 63) - 1, -1)),
            chance.choice((2, 1 << 20)),
        )
        entered: dict[bytes, int] = {}
        end, _, _ = extension.enter_keys(entered, run, 40, chance.choice((0, 5, 1 << 40)))
        assert end or not entered
        asked, _, latest = extension.ask_keys(entered, run, 40)
        assert asked >= end
        columns = [exactly(struct.pack(f"@{len(each)}q", *each)) for each in (kept, stops)]
        end, _, batches, places, _, _ = extension.keep(run, *columns)
        ascends = all(map(int.__lt__, kept, kept[1:]))
        if number % COMPARED == 0 and payload is None and ascends:
            expected = b""
            for header, batch in batches_in(data[:end]):
                assert not any(header.base_offset <= each <= header.last_offset for each in stops)
                expected += python_keeps(bytes(batch), kept)
            assert batches == expected, data.hex()
            begins = [place for place, _, _ in struct.iter_unpack("@3q", places)]
            assert begins == [at for at, _ in positions_of(batches)]
            del latest


def positions_of(data: bytes) -> list[tuple[int, BatchHeader]]:
    found = []
    at = 0
    for header, _ in batches_in(data):
        found.append((at, header))
        at += header.size
    return found


def attack(path: Path, count: int, seed: int) -> None:
    extension = load(path)
    chance = random.Random(seed)
    began = time.monotonic()
    read_count = attack_batches(extension, count, chance)
    attack_columns(extension, count // 10, chance)
    attack_runs(extension, count // 4, chance)
    for size in range(3100):
        data = chance.randbytes(size)
        assert extension.crc32c(exactly(data)) == extension.crc32c_by_table(exactly(data))
    print(
        f"{count:,} damaged batches (seed {seed}), {read_count:,} of them still to be read, and "
        f"{count // 10:,} sets of columns and {count // 4:,} runs in "
        f"{time.monotonic() - began:.0f} s: nothing was read or written outside its buffer"
    )


# ---- the parent


def run(count: int, seed: int) -> int:
    """Builds and attacks; the exit code of the child."""
    with tempfile.TemporaryDirectory() as folder:
        built = build(Path(folder))
        environment = {
            **os.environ,
            "LD_PRELOAD": f"{library('libasan.so')} {library('libubsan.so')}",
            "ASAN_OPTIONS": "detect_leaks=0",
            # Python's own allocator would hide where allocations end.
            "PYTHONMALLOC": "malloc",
        }
        command = [sys.executable, "-m", "asyncbroker.protocol.tests.native_fuzzer"]
        numbers = ["--batches", str(count), "--seed", str(seed)]
        child = subprocess.run([*command, *numbers, "--built", str(built)], env=environment)
    return child.returncode


def main() -> int:
    parser = argparse.ArgumentParser(description="Attacks the compiled extension.")
    parser.add_argument("--batches", type=int, default=2_000_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--built", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.built is not None:
        attack(arguments.built, arguments.batches, arguments.seed)
        return 0
    return run(arguments.batches, arguments.seed)


if __name__ == "__main__":
    sys.exit(main())
