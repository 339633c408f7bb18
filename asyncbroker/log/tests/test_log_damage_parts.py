"""What the search for damage is made of: the scan of a segment, its file, what is trusted."""

from __future__ import annotations

from asyncbroker.log.batch_scan import BatchScan, GoodBatch
from asyncbroker.log.damage import DamagedRange, decode_ranges, encode_ranges
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.tests.log_harness import (
    batch,
)
from asyncbroker.log.trusted import Trusted
from asyncbroker.protocol.records import stamp


def test_the_file_of_damaged_ranges() -> None:
    ranges = [DamagedRange(0, 10, 20, 1, 2), DamagedRange(30, 0, 99, 30, 45)]
    data = encode_ranges(ranges)
    assert data.splitlines()[:4] == [b"0", b"2", b"0 10 20 1 2", b"30 0 99 30 45"]
    assert decode_ranges(data) == ranges


def test_the_scan_of_a_compacted_segment_takes_gaps_for_gaps_and_collisions_for_damage() -> None:
    batch_list = [batch(b"x") for _ in range(4)]
    for base_offset, data in zip((0, 5, 6, 9), batch_list, strict=True):
        stamp(data, base_offset, 0)
    size = len(batch_list[0])

    def scanned(*bases: int) -> list[tuple[int, int | None]]:
        files = MemoryFiles()
        copies = [bytearray(data) for data in batch_list]
        for base_offset, data in zip(bases, copies, strict=True):
            stamp(data, base_offset, 0)
        file = files.open("log", create=True)
        file.pwrite(b"".join(copies), 0)
        return [
            (found.header.base_offset, 0)
            if isinstance(found, GoodBatch)
            else (-found.position // size, found.next_offset)
            for found in BatchScan(file, 0, 4 * size, end_offset=12).run(0, 0)
        ]

    assert scanned(0, 5, 6, 9) == [(0, 0), (5, 0), (6, 0), (9, 0)]
    # The second says 7, but the third begins where the second would end without its gap.
    assert scanned(0, 7, 2, 9) == [(0, 0), (-1, 2), (2, 0), (9, 0)]
    assert scanned(0, 5, 3, 9) == [(0, 0), (5, 0), (-2, 9), (9, 0)]
    assert scanned(0, 5, 6, 12) == [(0, 0), (5, 0), (6, 0), (-3, 12)]


def test_what_is_trusted_is_what_was_written_or_checked() -> None:
    trusted = Trusted(100)
    assert trusted.covers(100, 5000)
    assert not trusted.covers(99, 120)
    trusted.add(10, 20)
    trusted.add(30, 40)
    assert trusted.covers(12, 20)
    assert not trusted.covers(12, 31)
    trusted.add(20, 30)
    assert trusted.covers(10, 40)
    trusted.add(40, 100)
    assert trusted.covers(10, 9999)
    for at in range(1000):
        trusted.add(-10 * at, -10 * at + 1)
    assert trusted.covers(10, 9999)
    assert len(trusted._ranges) <= 64
