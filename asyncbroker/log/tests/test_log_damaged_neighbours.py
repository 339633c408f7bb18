"""Several damaged batches near one another in random logs: the others tell which of them lies."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

import pytest

from asyncbroker.log.batch_scan import BatchScan, GoodBatch
from asyncbroker.log.damage import DamagedRange
from asyncbroker.log.files import File
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.tests.log_harness import batch
from asyncbroker.protocol.records import read_header, stamp

SEEDS = 60
COUNT = 14
# So many batches lie between the first one and the last one that are damaged, at most.
NEAR = 4


class CountingFile:
    """Counts what is read of a file."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.path = file.path
        self.read_bytes = 0

    def pread(self, size: int, position: int) -> bytes:
        data = self._file.pread(size, position)
        self.read_bytes += len(data)
        return data


Damage = Callable[[bytearray, int, int, random.Random], None]


def flip(data: bytearray, at: int, chance: random.Random, bits: int = 8) -> None:
    data[at] ^= 1 << chance.randrange(bits)


OFFSETS: dict[str, Damage] = {
    "offset": lambda data, at, size, chance: flip(data, at + 7, chance),
    "near offset": lambda data, at, size, chance: flip(data, at + 7, chance, 3),
    "far offset": lambda data, at, size, chance: flip(data, at + chance.randrange(4, 7), chance),
}
OTHERS: dict[str, Damage] = {
    "payload": lambda data, at, size, chance: flip(data, at + size - 2, chance),
    "CRC": lambda data, at, size, chance: flip(data, at + 18, chance),
    "magic": lambda data, at, size, chance: flip(data, at + 16, chance),
    "length": lambda data, at, size, chance: flip(data, at + 11, chance),
    "huge length": lambda data, at, size, chance: flip(data, at + 8, chance, 7),
    "offset delta": lambda data, at, size, chance: flip(data, at + 26, chance, 4),
    "zeros": lambda data, at, size, chance: data.__setitem__(slice(at, at + size), bytes(size)),
}


class Outcome(NamedTuple):
    """Batches by their number: at another offset than their own, or refused without a reason."""

    moved: list[int]
    refused: list[int]


def holding(data: bytearray) -> File:
    """A file with these bytes."""
    file = MemoryFiles().open("log", create=True)
    file.pwrite(data, 0)
    return file


def stamped(offset: int, *values: bytes) -> bytearray:
    """A batch at an offset."""
    written = batch(*values)
    stamp(written, offset, 0)
    return written


def scanned(seed: int, damages: dict[str, Damage], count: int, *, is_newest: bool) -> Outcome:
    """What a scan makes of a log without gaps of which `count` batches are damaged."""
    chance = random.Random(seed)
    data = bytearray()
    places: list[tuple[int, int]] = []
    offset = 0
    for _ in range(COUNT):
        values = [b"x" * chance.randrange(5, 40) for _ in range(chance.randrange(1, 4))]
        written = stamped(offset, *values)
        places.append((len(data), offset))
        offset = read_header(written).next_offset
        data += written
    sizes = [read_header(data, at).size for at, _ in places]
    first = chance.randrange(1, COUNT - NEAR - 1)
    damaged = chance.sample(range(first, first + NEAR + 1), count)
    for number in damaged:
        damage = damages[chance.choice(list(damages))]
        damage(data, places[number][0], sizes[number], chance)
    file = holding(data)
    scan = BatchScan(
        file, 0, len(data), end_offset=None if is_newest else offset, promised_offset=offset
    )
    found = {
        each.position: each.header.base_offset
        for each in scan.run(0, 0)
        if isinstance(each, GoodBatch)
    }
    # What an attacker has put there would be at a position of its own.
    assert set(found) <= {at for at, _ in places}
    return Outcome(
        [number for number, (at, own) in enumerate(places) if found.get(at, own) != own],
        [
            number
            for number, (at, _) in enumerate(places)
            if at not in found and number not in damaged
        ],
    )


@pytest.mark.parametrize("count", [1, 2, 3])
def test_offsets_that_lie_are_told_by_the_others(count: int) -> None:
    for seed in range(SEEDS):
        assert scanned(seed, OFFSETS, count, is_newest=True) == ([], []), seed


def test_where_gaps_are_possible_two_that_lie_are_told_as_well() -> None:
    for seed in range(SEEDS):
        assert scanned(seed, OFFSETS, 2, is_newest=False) == ([], []), seed


@pytest.mark.parametrize("is_newest", [True, False])
def test_one_that_is_damaged_in_any_way_takes_no_other_with_it(is_newest: bool) -> None:
    for seed in range(SEEDS):
        outcome = scanned(seed, {**OFFSETS, **OTHERS}, 1, is_newest=is_newest)
        assert outcome == ([], []), seed


def test_between_one_that_is_all_damaged_and_one_of_a_wrong_length_none_is_refused() -> None:
    for seed in range(SEEDS):
        chance = random.Random(seed)
        data = bytearray()
        places = []
        for offset in range(6):
            places.append(len(data))
            data += stamped(offset, b"x" * chance.randrange(5, 40))
        for number, damages in ((1, ("payload", "length")), (3, ("length",))):
            at, end = places[number : number + 2]
            for name in damages:
                OTHERS[name](data, at, end - at, chance)
        file = holding(data)
        scan = BatchScan(file, 0, len(data), promised_offset=6)
        good = [each.position for each in scan.run(0, 0) if isinstance(each, GoodBatch)]
        assert good == [places[number] for number in (0, 2, 4, 5)], seed


def test_of_two_that_are_damaged_in_any_way_none_is_served_at_another_offset() -> None:
    for seed in range(SEEDS):
        assert scanned(seed, {**OFFSETS, **OTHERS}, 2, is_newest=True).moved == [], seed


def test_damage_to_anything_but_offsets_moves_nothing() -> None:
    for seed in range(SEEDS):
        assert scanned(seed, OTHERS, 4, is_newest=False).moved == [], seed


def test_a_log_with_gaps_is_read_once() -> None:
    """The two batches behind each gap are asked about it, also across the chunks of a scan."""
    data = bytearray()
    offset = 0
    while len(data) < 5 << 20:
        data += stamped(offset, bytes(100_000))
        offset += 2
    file = holding(data)
    counting = CountingFile(file)
    scan = BatchScan(counting, 0, len(data), end_offset=offset)
    assert all(isinstance(found, GoodBatch) for found in scan.run(0, 0))
    assert counting.read_bytes < 1.2 * len(data)


@pytest.mark.parametrize("is_newest", [True, False])
def test_a_damaged_batch_tells_of_the_next_one_whether_its_offset_lies(is_newest: bool) -> None:
    for bit in range(1, 64):
        data = stamped(0, b"a", b"b", b"c")
        lying = len(data)
        data += stamped(3, b"d")
        good = len(data)
        data += stamped(4, b"e", b"f")
        flip(data, lying - 1, random.Random(bit))
        data[lying + 7 - bit // 8] ^= 1 << bit % 8
        file = holding(data)
        scan = BatchScan(file, 0, len(data), end_offset=None if is_newest else 6, promised_offset=6)
        found = [each.position for each in scan.run(0, 0) if isinstance(each, GoodBatch)]
        assert found == [good], bit


def with_lie(
    bit: int, counts: tuple[int, ...], bad: tuple[int, ...], lying: int
) -> tuple[bytearray, list[int]]:
    """A log of batches with so many records each, of which some have a wrong CRC, and one says an
    offset that has this bit changed; and where each of them begins, and the last of them ends."""
    data = bytearray()
    places = []
    offset = 0
    for count in counts:
        places.append(len(data))
        data += stamped(offset, *(b"%d" % each for each in range(count)))
        offset += count
    places.append(len(data))
    for number in bad:
        flip(data, places[number + 1] - 1, random.Random(bit))
    data[places[lying] + 7 - bit // 8] ^= 1 << bit % 8
    return data, places


@pytest.mark.parametrize("is_newest", [True, False])
def test_between_damage_and_known_damage_no_offset_is_beyond_what_is_known(is_newest: bool) -> None:
    """Simulation seed 586992."""
    for bit in range(64):
        data, places = with_lie(bit, (1, 1, 1, 1, 1), (1, 3), 2)
        known = DamagedRange(0, places[3], places[4], 3, 4)
        file = holding(data)
        scan = BatchScan(
            file,
            0,
            len(data),
            end_offset=None if is_newest else 1 << 40,
            promised_offset=5,
            holes={places[3]: known},
        )
        found = list(scan.run(0, 0))
        good = [each for each in found if isinstance(each, GoodBatch)]
        gaps = [each for each in found if not isinstance(each, GoodBatch)]
        assert [each.position for each in good] == [0, places[4]], bit
        assert [gap.range_in(0, 5)[3:] for gap in gaps] == [(1, 3), (3, 4)], bit


@pytest.mark.parametrize("is_newest", [True, False])
def test_a_batch_that_damage_before_it_confirms_is_true_though_one_behind_lies(
    is_newest: bool,
) -> None:
    """Simulation seed 609082. The third batch is good: the second one says its offset as well."""
    for bit in range(64):
        data, places = with_lie(bit, (3, 3, 1, 1, 1, 1), (1, 4), 3)
        file = holding(data)
        scan = BatchScan(
            file,
            0,
            len(data),
            end_offset=None if is_newest else 10,
            promised_offset=10,
            holes={places[5]: DamagedRange(0, places[5], places[6], 9, 10)},
        )
        good = {each.position for each in scan.run(0, 0) if isinstance(each, GoodBatch)}
        assert good == {0, places[2]}, bit


@pytest.mark.parametrize("is_newest", [True, False])
def test_a_lie_between_damage_takes_no_batch_with_it_that_the_damage_confirms(
    is_newest: bool,
) -> None:
    """Simulation seed 606993. The last batch is good: the one before it says its offset as well."""
    for bit in range(64):
        data, places = with_lie(bit, (3, 2, 1, 3, 2), (0, 1, 3), 2)
        file = holding(data)
        end_offset = None if is_newest else 1 << 40
        scan = BatchScan(file, 0, len(data), end_offset=end_offset, promised_offset=11)
        good = [each.position for each in scan.run(0, 0) if isinstance(each, GoodBatch)]
        assert good == [places[4]], bit


@pytest.mark.parametrize("is_newest", [True, False])
def test_of_two_damaged_stretches_the_known_one_bounds_what_lies_before_the_other(
    is_newest: bool,
) -> None:
    """What follows a batch that says nothing true of its offsets, has to be below what is known."""
    for bit in range(3, 64):
        data, places = with_lie(bit, (1, 2, 1, 1, 1, 1), (3,), 2)
        data[places[1] + 23] = data[places[1] + 57] = 0x40
        file = holding(data)
        scan = BatchScan(
            file,
            0,
            len(data),
            end_offset=None if is_newest else 1 << 40,
            promised_offset=7,
            holes={places[4]: DamagedRange(0, places[4], places[5], 5, 6)},
        )
        good = [each.position for each in scan.run(0, 0) if isinstance(each, GoodBatch)]
        assert good == [0, places[5]], bit


def test_nothing_is_served_at_an_offset_behind_the_end_of_the_log() -> None:
    for bit in range(2, 64):
        data, places = with_lie(bit, (1, 1, 1), (), 2)
        data[places[1] : places[2]] = bytes(places[2] - places[1])
        file = holding(data)
        scan = BatchScan(file, 0, len(data), promised_offset=3, offset_limit=3)
        good = [each.position for each in scan.run(0, 0) if isinstance(each, GoodBatch)]
        assert good == [0], bit
