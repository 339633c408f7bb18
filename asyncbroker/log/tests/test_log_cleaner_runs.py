"""Compaction in runs, by the compiled extension, and batch by batch: they leave the same bytes."""

from __future__ import annotations

from dataclasses import astuple, replace
from itertools import accumulate
from random import Random
from typing import Any

import pytest

from asyncbroker.log import cleaner_runs
from asyncbroker.log.errors import CorruptLog
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.partition_log import PartitionLog
from asyncbroker.log.tests.cleaner_harness import COMPACTED, DAY_MS, clean, marker, put, roll
from asyncbroker.log.tests.log_harness import DIRECTORY, NOW_MS, append, copied, flip, open_log
from asyncbroker.protocol.records import Compression, Record, batches, build_batch

if cleaner_runs.EXTENSION is None:
    pytest.skip("the extension is not there, or not wanted", allow_module_level=True)


def random_log(files: MemoryFiles, random: Random) -> PartitionLog:
    """Small segments or large ones; times of records, or of their append."""
    config = replace(
        COMPACTED,
        segment_bytes=random.choice((10_000, 30_000, 200_000)),
        is_log_append_time=random.random() < 0.2,
    )
    return open_log(files, config=config)


def add_batches(log: PartitionLog, random: Random, producer_id: int) -> None:
    """Most of them plain, of few keys or of many; now and then one that is not."""
    codecs = random.choice(((Compression.NONE,), (Compression.NONE, *Compression)))
    keys = random.choice((5, 60, 1000))
    for number in range(40):
        records = [
            Record(
                0,
                NOW_MS - random.choice((0, 1, 500, 100_000, 1 << 40)),
                random_key(random, keys),
                None if random.random() < 0.02 else random.randbytes(random.choice((0, 9, 200))),
                [("header", random.choice((None, b"x" * 70)))] * random.choice((0, 0, 2)),
            )
            for _ in range(random.choice((1, 1, 3, 20)))
        ]
        fields: dict[str, Any] = {}
        if random.random() < 0.1:
            sender = producer_id + 1 + number
            fields = {"producer_id": sender, "producer_epoch": 0, "base_sequence": 0}
        append(
            log, build_batch(records, compression=random.choice(codecs), **fields), now_ms=NOW_MS
        )
    put(
        log,
        (b"%d" % random.randrange(keys), b"v"),
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    marker(log, producer_id, commit=random.random() < 0.5)


def random_key(random: Random, keys: int) -> bytes | None:
    if random.random() < 0.01:
        return None
    return b"%d" % random.randrange(keys) + b"-" * random.choice((0, 0, 0, 0, 0, 60))


def all_files(files: MemoryFiles) -> dict[str, bytes]:
    found = {}
    for name, size in files.list_files(DIRECTORY).items():
        file = files.open(f"{DIRECTORY}/{name}")
        found[name] = bytes(file.pread(size, 0))
        file.close()
    return found


def rounds_of(seed: int) -> list[Any]:
    """What is left of a log in three rounds of appending and cleaning, to the last byte."""
    random = Random(seed)
    files = MemoryFiles()
    log = random_log(files, random)
    found: list[Any] = []
    cleaned_offset = None
    for number in range(3):
        add_batches(log, random, 1000 * (number + 1))
        roll(log)
        cleaning = clean(
            log,
            now_ms=NOW_MS + number * DAY_MS,
            cleaned_offset=cleaned_offset,
            key_bytes_max=random.choice((6000, 1 << 20, 1 << 20)),
        )
        cleaned_offset = cleaning.end_offset
        stats = cleaning.stats
        found += [astuple(stats), cleaned_offset, cleaning.next_horizon_ms, all_files(files)]
    return found


@pytest.mark.parametrize("seed", range(30))
def test_runs_leave_what_single_batches_leave(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaner_runs, "RUN_BYTES", Random(seed).choice((1, 300, 4000, 128 << 10)))
    in_runs = rounds_of(seed)
    monkeypatch.setattr(cleaner_runs, "EXTENSION", None)
    assert in_runs == rounds_of(seed)


@pytest.mark.parametrize("seed", range(40))
def test_damage_ends_a_cleaning_at_its_batch_either_way(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    files = MemoryFiles()
    log = random_log(files, random)
    add_batches(log, random, 1)
    roll(log)
    segment = random.choice(log.segments[:-1])
    begins = positions(files, segment.log_path)
    number = random.randrange(len(begins) - 1)
    begin, end = begins[number : number + 2]
    at = random.choice((begin + 7, random.randrange(begin, end)))
    log.close()
    flip(files, segment.log_path, at)
    said: list[Any] = []
    for extension in (cleaner_runs.EXTENSION, None):
        monkeypatch.setattr(cleaner_runs, "EXTENSION", extension)
        damaged = copied(files)
        log = open_log(damaged, config=log.config)
        before = all_files(damaged)
        try:
            clean(log)
        except CorruptLog as damage:
            said.append((damage.position, str(damage)))
            assert all_files(damaged) == before
        else:
            said.append(all_files(damaged))
            # No CRC covers the offset and the leader epoch.
            assert at - begin in range(16)
    assert said[0] == said[1]


def positions(files: MemoryFiles, path: str) -> list[int]:
    """Where the batches of a segment begin, and where the last one ends."""
    sizes = [header.size for header, _ in batches(files.read_whole(path))]
    return list(accumulate(sizes, initial=0))


def test_a_chunk_may_end_anywhere_in_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = rounds_of(1)
    for chunk_bytes in (61, 62, 100, 1000):
        monkeypatch.setattr(cleaner_runs, "_CHUNK_BYTES", chunk_bytes)
        assert rounds_of(1) == expected


def test_a_call_that_keeps_the_interpreter_ends_after_some_thousand_records() -> None:
    assert cleaner_runs.EXTENSION is not None
    batches = [build_batch([Record(0, 0, b"%d" % at, b"")], base_offset=at) for at in range(9000)]
    data = b"".join(batches)
    run = cleaner_runs.Run(data, None, len(data), 0, 1 << 40, 1 << 20)
    offsets: dict[bytes, int] = {}
    taken, _ = cleaner_runs.enter(offsets, run, 40, 1 << 40)
    assert len(offsets) == taken.next_offset == 4096
    assert taken.end == sum(map(len, batches[:4096]))
    assert cleaner_runs.ask(offsets, run, 40)[0] == taken
