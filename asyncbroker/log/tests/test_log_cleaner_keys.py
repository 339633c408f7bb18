"""The map of keys: exact, and bounded in memory."""

from __future__ import annotations

import tracemalloc
from array import array
from random import Random

import pytest

from asyncbroker.log.cleaner_keys import KeyOffsets


def test_the_last_offset_of_each_key_counts_whatever_the_key() -> None:
    random = Random(3)
    keys = KeyOffsets(1 << 20, 0)
    expected: dict[bytes, int] = {}
    pool = [random.randbytes(random.choice([0, 1, 16, 40, 41, 48, 49, 500])) for _ in range(200)]
    for base_offset in range(0, 4000, 4):
        batch = [random.choice([*pool, None]) for _ in range(4)]
        assert keys.add(batch, range(4), base_offset)
        expected.update((key, base_offset + at) for at, key in enumerate(batch) if key is not None)
    assert keys.latest([*expected, None, b"unknown"]) == [*expected.values(), None, None]
    assert len(keys) == len(expected)


def test_no_key_is_taken_for_the_digest_of_another() -> None:
    keys = KeyOffsets(1 << 20, 0)
    long = bytes(100)
    keys.add([long], [0], 0)
    (stand_in,) = keys._offsets
    assert keys.latest([stand_in]) == [None]


@pytest.mark.parametrize("key_bytes", [4, 16, 40, 300])
@pytest.mark.parametrize("per_batch", [1, 500])
def test_the_memory_stays_in_its_bound(key_bytes: int, per_batch: int) -> None:
    bytes_max = 2 << 20
    tracemalloc.start()
    try:
        keys = KeyOffsets(bytes_max, 0)
        offset = 1 << 40
        is_room = True
        while is_room:
            batch = [b"%0*d" % (key_bytes, offset + at) for at in range(per_batch)]
            is_room = keys.add(batch, range(per_batch), offset)
            offset += per_batch
        del batch
        keys.end_offset = offset
        first = 1 << 40
        assert keys.survivors(first, first + 9) == array("q", range(first, first + 10))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert bytes_max / 4 < peak < bytes_max + 500_000
    assert len(keys) > bytes_max / 250
    # A key that is in it already needs no room.
    assert keys.add([b"%0*d" % (key_bytes, 1 << 40)], [0], offset)


def test_what_stays_of_a_mapped_batch_is_what_is_in_the_map() -> None:
    keys = KeyOffsets(1 << 20, 10)
    keys.add([b"a", b"b", None, b"c"], range(4), 10)
    keys.add([b"b", b"d"], range(2), 14)
    keys.add([b"a"], [0], 16)
    assert keys.note_tombstones(16)
    keys.end_offset = 17
    assert keys.survivors(10, 13) == array("q", [13])
    assert keys.survivors(14, 15) == array("q", [14, 15])
    # The map alone cannot tell: it begins later, ends earlier, or there are tombstones.
    assert keys.survivors(9, 13) is None
    assert keys.survivors(15, 17) is None
    assert keys.survivors(16, 16) is None


def test_tombstones_for_which_there_is_no_room_are_told() -> None:
    keys = KeyOffsets(1000, 0)
    noted = [keys.note_tombstones(offset) for offset in range(100)]
    assert noted[0]
    assert not noted[-1]
    assert keys.note_tombstones(0)
