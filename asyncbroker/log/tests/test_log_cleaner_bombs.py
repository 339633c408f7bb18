"""Batches of a few kilobytes that hold very many records: compacted in steps, in little room."""

from __future__ import annotations

import random
import threading
import time
import tracemalloc
from itertools import pairwise
from typing import Any

import pytest

from asyncbroker.log import cleaner, cleaner_filter, cleaner_runs
from asyncbroker.log.cleaner import Cleaning, Replacement
from asyncbroker.log.cleaner_keys import KeyOffsets
from asyncbroker.log.cleaner_plan import plan_cleaning
from asyncbroker.log.config import LogConfig
from asyncbroker.log.partition_log import PartitionLog
from asyncbroker.log.tests.cleaner_harness import COMPACTED, DAY_MS, batches_of, clean, put, roll
from asyncbroker.log.tests.log_harness import NOW_MS, append, open_log
from asyncbroker.protocol.records import Compression, Record, build_batch

COUNT = 20_000
RECORD_BYTES_MAX = 16


def bomb(count: int, keys: int) -> bytearray:
    """Records of a few bytes each."""
    records = (Record(0, NOW_MS, b"%d" % (index % keys), b"v") for index in range(count))
    return build_batch(records, compression=Compression.ZSTD)


def log_with_bombs(*key_counts: int) -> PartitionLog:
    """A log of bombs, all of which can be compacted."""
    log = open_log(config=LogConfig(is_compacted=True))
    for keys in key_counts:
        append(log, bomb(COUNT, keys))
    roll(log)
    return log


def steps_of(log: PartitionLog, key_bytes_max: int = 64 << 20) -> list[int]:
    """Compacts a log; what each step went through, in bytes."""
    cleaning = Cleaning(
        log, plan_cleaning(log, None, log.end_offset, NOW_MS), NOW_MS, key_bytes_max
    )
    found: list[int] = []
    for step in cleaning.steps():
        if isinstance(step, Replacement):
            step.is_shown = log.replace_segments(step.replaced, step.cleaned)
        else:
            found.append(step)
    return found


def test_a_bomb_is_gone_through_in_small_steps() -> None:
    log = log_with_bombs(COUNT, 1000)
    steps = steps_of(log)
    small = [size for size in steps if size <= cleaner_filter.RECORDS_AT_ONCE * RECORD_BYTES_MAX]
    # Both to be mapped, then the first to be looked at; of the second one nothing is left out.
    assert len(small) >= 3 * (COUNT // cleaner_filter.RECORDS_AT_ONCE)


def test_a_bomb_takes_little_more_room_than_its_bytes() -> None:
    log = log_with_bombs(1000)
    tracemalloc.start()
    try:
        steps_of(log, 1 << 20)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 8 * COUNT * RECORD_BYTES_MAX


def test_the_interpreter_is_given_away_again_and_again_meanwhile() -> None:
    log = log_with_bombs(*[COUNT] * 5, 1000)
    done: list[int] = []
    thread = threading.Thread(target=lambda: done.extend(steps_of(log)))
    began = time.monotonic()
    thread.start()
    ticks = 0
    while thread.is_alive():
        thread.join(0.001)
        ticks += 1
    assert done
    assert ticks > 20 * (time.monotonic() - began)


@pytest.mark.parametrize("keys_max", [3, 40, 400])
def test_small_steps_leave_what_one_leaves(keys_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tombstones, records without keys, a map with too little room, in two cleanings."""

    def left(undivided_max: int, key_bytes_max: int) -> list[Any]:
        for module in (cleaner, cleaner_runs):
            monkeypatch.setattr(module, "RECORDS_UNDIVIDED_MAX", undivided_max)
        for module in (cleaner, cleaner_filter):
            monkeypatch.setattr(module, "RECORDS_AT_ONCE", 3)
        chance = random.Random(keys_max)
        log = open_log(config=COMPACTED)
        for _ in range(30):
            pairs: list[tuple[bytes | None, bytes | None]] = [
                (b"%d" % chance.randrange(keys_max), chance.choice((b"v", b"w" * 9, None)))
                for _ in range(chance.randrange(1, 20))
            ]
            times = chance.randrange(1000)
            put(log, *pairs, time_ms=NOW_MS - times)
        roll(log)
        found: list[Any] = []
        for now_ms in (NOW_MS, NOW_MS + 2 * DAY_MS):
            cleaning = clean(log, now_ms=now_ms, key_bytes_max=key_bytes_max)
            stats = (cleaning.stats.record_count, cleaning.stats.kept_record_count)
            found += [batches_of(log), stats, cleaning.next_horizon_ms, cleaning.end_offset]
        return found

    for key_bytes_max in (5000, 1 << 20):
        assert left(2, key_bytes_max) == left(1 << 30, key_bytes_max)


def test_the_offsets_that_survive_are_in_order() -> None:
    chance = random.Random(1)
    keys = KeyOffsets(64 << 20, 1000)
    base_offset = 1000
    for _ in range(30):
        names: list[bytes | None] = [b"%d" % chance.randrange(9000) for _ in range(1000)]
        assert keys.add(names, range(len(names)), base_offset)
        base_offset += chance.choice((1000, 5000))
        keys.end_offset = base_offset
    survivors = keys.survivors(1000, base_offset - 1)
    assert survivors is not None
    assert len(survivors) == len(keys)
    assert all(one < other for one, other in pairwise(survivors))
