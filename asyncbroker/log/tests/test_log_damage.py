"""Damage inside what was promised: that range is refused, all else is kept and read, for good."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator

import pytest

from asyncbroker.log import checking
from asyncbroker.log.checkpoints import LEADER_EPOCHS
from asyncbroker.log.config import LogConfig
from asyncbroker.log.damage import DAMAGED_RANGES, DamagedRange, decode_ranges
from asyncbroker.log.file_range import FileRange
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.partition_log import PartitionLog
from asyncbroker.log.tests.log_harness import (
    DIRECTORY,
    NOW_MS,
    append,
    append_each,
    batch,
    crashed,
    flip,
    from_producer,
    names,
    open_log,
    overwrite,
    read_all,
    reopened,
    truncate,
    with_config,
)
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.records import batches, records_of, stamp

# Three batches a segment, with an index entry for the second and the third.
CONFIG = with_config(segment_bytes=300, index_interval_bytes=50)
BATCH_BYTES = len(batch(b"x" * 20))
COUNT = 11
"""Batches of one record: segments 0, 3, 6 and the newest one, 9."""

Damage = Callable[[MemoryFiles, str, int], None]


def written() -> MemoryFiles:
    files = MemoryFiles()
    log = open_log(files, config=CONFIG)
    append_each(log, COUNT)
    log.close()
    return files


def path_of(offset: int) -> str:
    return f"{DIRECTORY}/{offset // 3 * 3:020d}.log"


def position_of(offset: int) -> int:
    return offset % 3 * BATCH_BYTES


def opened(
    files: MemoryFiles, *, is_clean: bool = False, recovery_point: int = COUNT
) -> PartitionLog:
    return open_log(files, config=CONFIG, is_clean=is_clean, recovery_point=recovery_point)


def looked_at(log: PartitionLog, offset: int, bytes_max: int) -> FileRange | None:
    """What one Fetch of this offset gets; None if that is nothing, and the next one gets it."""
    located = log.locate(offset, bytes_max, end_offset=log.end_offset)
    assert located is not None
    return checking.checked(log, located, offset)


def batches_at(log: PartitionLog, offset: int, bytes_max: int) -> bytes | None:
    """What a Fetch of this offset gets; None for CORRUPT_MESSAGE."""
    try:
        checked = looked_at(log, offset, bytes_max) or looked_at(log, offset, bytes_max)
    except KafkaError as error:
        if error.code is not ErrorCode.CORRUPT_MESSAGE:
            raise
        return None
    assert checked is not None
    return checked.read()


def refused(log: PartitionLog, offset: int) -> bool:
    return batches_at(log, offset, 1) is None


def offsets(log: PartitionLog) -> Iterator[int]:
    """What a consumer gets that steps over what it is refused."""
    offset = log.log_start_offset
    while offset < log.end_offset:
        found = batches_at(log, offset, 400)
        if found is None:
            offset += 1
            continue
        for header, data in batches(found):
            yield from (record.offset for record in records_of(data, header))
            offset = header.next_offset


DAMAGES: dict[str, Damage] = {
    "payload": lambda files, path, at: flip(files, path, at + BATCH_BYTES - 3),
    "CRC": lambda files, path, at: flip(files, path, at + 18),
    "magic": lambda files, path, at: flip(files, path, at + 16),
    "length": lambda files, path, at: flip(files, path, at + 11),
    "huge length": lambda files, path, at: overwrite(files, path, at + 8, b"\x7f"),
    "negative length": lambda files, path, at: flip(files, path, at + 8),
    "offset": lambda files, path, at: overwrite(files, path, at + 6, b"\x01"),
    "far offset": lambda files, path, at: overwrite(files, path, at, b"\x01"),
    "offset delta": lambda files, path, at: overwrite(files, path, at + 26, b"\x01"),
    "zeros": lambda files, path, at: overwrite(files, path, at, bytes(BATCH_BYTES)),
    "zeroed end": lambda files, path, at: overwrite(files, path, at + 40, bytes(BATCH_BYTES - 40)),
}


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("is_clean", [True, False])
def test_a_bit_flip_in_the_log_is_a_hole_of_that_batch_for_good(how: str, is_clean: bool) -> None:
    """Any batch of any segment, older and newest, first and last; found at start or by a reader."""
    for offset in range(COUNT):
        files = written()
        DAMAGES[how](files, path_of(offset), position_of(offset))
        log = opened(files, is_clean=is_clean)
        rest = [other for other in range(COUNT) if other != offset]
        assert list(offsets(log)) == rest
        assert refused(log, offset)
        assert log.end_offset == COUNT
        # New records go behind, and the next starts of all kinds remember.
        assert append(log).base_offset == COUNT
        for again in (crashed, reopened):
            log = again(log, files, recovery_point=COUNT + 1)
            assert refused(log, offset)
            assert list(offsets(log)) == [*rest, COUNT]
        assert DAMAGED_RANGES in names(files)
        assert not [name for name in names(files) if "quarantined" in name]


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("is_clean", [True, False])
def test_damage_and_a_lost_epoch_checkpoint_are_still_a_hole_of_one_batch(
    how: str, is_clean: bool
) -> None:
    """The epochs are read from the headers, one of which makes no sense, and is not known to."""
    for offset in (0, 4, 8):
        files = written()
        files.remove(f"{DIRECTORY}/{LEADER_EPOCHS}")
        DAMAGES[how](files, path_of(offset), position_of(offset))
        log = opened(files, is_clean=is_clean)
        assert list(offsets(log)) == [other for other in range(COUNT) if other != offset]
        assert log.epochs.latest == 1


def test_an_index_in_memory_that_points_into_damage_leads_past_it() -> None:
    """A reader of the first record of a batch comes by the entry of the batch before."""
    files = MemoryFiles()
    config = with_config(index_interval_bytes=1)
    log = open_log(files, config=config)
    one, two = batch(b"x" * 20), batch(b"x" * 20, b"y" * 20)
    for each in (one, one, two, one, two):
        append(log, bytearray(each))
    log.close()
    path = f"{DIRECTORY}/{0:020d}.log"
    log = open_log(files, config=config, is_clean=True, recovery_point=7)
    for position in (len(one), 2 * len(one) + len(two)):
        DAMAGES["payload"](files, path, position)
    for damaged in (1, 4):
        assert refused(log, damaged)
        # The first time the index is made anew, and from then on it is in memory.
        assert not refused(log, damaged + 1)
    assert list(offsets(log)) == [0, 2, 3, 5, 6]


@pytest.mark.parametrize("how", ["payload", "CRC"])
def test_who_stumbles_into_the_middle_of_damage_is_refused_as_well(how: str) -> None:
    """The range was found before it was known that the damage begins further ahead."""
    files = written()
    for offset in (4, 5):
        DAMAGES[how](files, path_of(offset), position_of(offset))
    log = opened(files, is_clean=True)
    assert refused(log, 5)
    assert refused(log, 4)
    assert list(offsets(log)) == [0, 1, 2, 3, *range(6, COUNT)]


def test_a_header_that_claims_later_offsets_does_not_damage_them() -> None:
    """Who looks for one of these is led to that batch, as long as nobody knows better."""
    config = with_config(segment_bytes=300)  # and no index entries, which would lead past it
    for how in ("offset", "offset delta"):
        for wanted in (4, 5):
            files = MemoryFiles()
            log = open_log(files, config=config)
            append_each(log, COUNT)
            log.close()
            DAMAGES[how](files, path_of(3), position_of(3))
            log = open_log(files, config=config)
            assert not refused(log, wanted)
            assert refused(log, 3)
            assert list(offsets(log)) == [0, 1, 2, *range(4, COUNT)]


@pytest.mark.parametrize("last", ["length", "huge length", "magic", "offset delta"])
@pytest.mark.parametrize(
    "first",
    [
        ["payload", "CRC"],
        ["payload", "payload", "CRC"],
        ["payload", "offset"],
        ["payload", "far offset"],
        ["offset", "payload"],
        ["offset delta", "payload"],
        ["offset delta", "offset"],
        ["length"],
        ["huge length"],
        ["magic"],
    ],
    ids=", ".join,
)
@pytest.mark.parametrize("is_clean", [True, False])
def test_damaged_batches_near_one_another_leave_what_is_between_them(
    first: list[str], last: str, is_clean: bool
) -> None:
    """The damaged header of the last keeps what lies between from leading to a good end."""
    config = LogConfig()
    files = MemoryFiles()
    log = open_log(files, config=config)
    append_each(log, 12)
    log.close()
    damages = {**dict(enumerate(first, 2)), 8: last}
    for offset, how in damages.items():
        DAMAGES[how](files, path_of(0), offset * BATCH_BYTES)
    log = open_log(files, config=config, is_clean=is_clean, recovery_point=12)
    assert list(offsets(log)) == [offset for offset in range(12) if offset not in damages]
    assert log.end_offset == 12


def test_what_lies_before_and_behind_damage_is_read_without_it() -> None:
    files = written()
    flip(files, path_of(4), position_of(4) + 70)
    log = opened(files)
    assert refused(log, 4)
    before = log.locate(3, 1 << 20, end_offset=COUNT)
    behind = log.locate(5, 1 << 20, end_offset=COUNT)
    assert before is not None
    assert behind is not None
    assert (before.position, before.size) == (0, BATCH_BYTES)
    assert (behind.position, behind.size) == (2 * BATCH_BYTES, BATCH_BYTES)


def test_a_start_does_not_read_again_what_is_known_to_be_damaged() -> None:
    files = written()
    overwrite(files, path_of(10), position_of(10), bytes(BATCH_BYTES))
    log = opened(files)
    log.close()
    before = files.list_files(DIRECTORY)
    written_paths: list[str] = []

    def note(operation: str, path: str) -> None:
        if operation == "write_atomically":
            written_paths.append(path)

    files.on_call = note
    log = opened(files, is_clean=True)
    assert log.end_offset == COUNT
    assert refused(log, 10)
    assert not written_paths
    assert files.list_files(DIRECTORY) == before


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("kept_bytes", [0, 7, BATCH_BYTES, BATCH_BYTES + 7])
def test_a_promised_end_that_is_gone_is_refused_and_not_given_again(
    kept_bytes: int, is_clean: bool
) -> None:
    files = written()
    truncate(files, path_of(9), kept_bytes)
    log = opened(files, is_clean=is_clean)
    kept = 9 + kept_bytes // BATCH_BYTES
    for _ in range(2):
        assert list(offsets(log)) == list(range(kept))
        assert [refused(log, offset) for offset in range(kept, COUNT)] == [True] * (COUNT - kept)
        log = crashed(log, files, recovery_point=COUNT)
    assert append(log).base_offset == COUNT
    assert len(files.read_whole(path_of(9))) == kept_bytes
    log = reopened(log, files)
    assert list(offsets(log)) == [*range(kept), COUNT]


def test_a_torn_tail_behind_damage_is_cut_or_kept_but_never_served() -> None:
    """Nine batches were promised; the tenth came after, and the crash tore the eleventh."""
    files = written()
    overwrite(files, path_of(9), position_of(10) + 5, bytes(BATCH_BYTES - 5))
    flip(files, path_of(4), position_of(4) + 70)
    overwrite(files, path_of(7), position_of(7), bytes(20))
    log = opened(files, recovery_point=9)
    assert log.end_offset == 10
    assert list(offsets(log)) == [0, 1, 2, 3, 5, 6, 8, 9]
    log = opened(files, recovery_point=9)
    assert list(offsets(log)) == [0, 1, 2, 3, 5, 6, 8, 9]


def test_a_header_that_lies_about_its_last_offset_does_not_cut_promised_batches() -> None:
    """It leads beyond the promise, where what follows looks like a torn tail."""
    config = LogConfig(index_interval_bytes=50)
    files = MemoryFiles()
    log = open_log(files, config=config)
    append_each(log, 6)
    log.close(clean=False)
    overwrite(files, f"{DIRECTORY}/{0:020d}.log", 3 * BATCH_BYTES + 25, b"\x01")
    log = open_log(files, config=config, is_clean=False, recovery_point=5)
    assert log.end_offset == 6
    assert list(offsets(log)) == [0, 1, 2, 4, 5]


def test_a_batch_inside_a_record_is_not_taken_for_what_follows() -> None:
    inner = batch(b"inside")
    stamp(inner, 2, 0)
    values = [b"x" * 20, bytes(inner) * 3, b"y" * 20, b"z" * 20]
    files = MemoryFiles()
    log = open_log(files, config=LogConfig())
    for value in values:
        append(log, batch(value))
    log.close()
    overwrite(files, f"{DIRECTORY}/{0:020d}.log", BATCH_BYTES, bytes(30))
    log = open_log(files, config=LogConfig(), is_clean=False, recovery_point=4)
    assert list(offsets(log)) == [0, 2, 3]
    assert refused(log, 1)


def test_damage_that_is_found_while_the_log_is_used_needs_no_restart() -> None:
    files = written()
    log = opened(files, is_clean=True)
    assert list(offsets(log)) == list(range(COUNT))
    log = reopened(log, files)
    flip(files, path_of(4), position_of(4) + 70)
    assert list(offsets(log)) == [0, 1, 2, 3, *range(5, COUNT)]
    flip(files, path_of(10), position_of(10) + 70)
    append(log)
    assert list(offsets(log)) == [0, 1, 2, 3, 5, 6, 7, 8, 9, 11]
    assert [
        hole[3:] for hole in decode_ranges(files.read_whole(f"{DIRECTORY}/{DAMAGED_RANGES}"))
    ] == [
        (4, 5),
        (10, 11),
    ]


def test_damage_is_found_under_a_full_disk_and_recorded_when_there_is_room() -> None:
    files = written()
    log = opened(files, is_clean=True)
    flip(files, path_of(4), position_of(4) + 70)

    def full(operation: str, path: str) -> None:
        if operation == "write_atomically":
            raise OSError(errno.ENOSPC, "No space left on device", path)

    files.on_call = full
    assert refused(log, 4)
    assert DAMAGED_RANGES not in names(files)
    files.on_call = None
    append(log)
    log.close()
    assert DAMAGED_RANGES in names(files)


def test_a_damaged_list_of_damage_costs_a_reading_of_the_log() -> None:
    for damage in (
        lambda data: data[:-12],
        lambda data: b"",
        lambda data: data.replace(b"4", b"1"),
    ):
        files = written()
        flip(files, path_of(4), position_of(4) + 70)
        log = opened(files, is_clean=True)
        assert refused(log, 4)
        log.close()
        path = f"{DIRECTORY}/{DAMAGED_RANGES}"
        files.write_whole(path, damage(files.read_whole(path)))
        log = opened(files, is_clean=True)
        assert log.damaged.ranges == (DamagedRange(3, BATCH_BYTES, 2 * BATCH_BYTES, 4, 5),)
        assert list(offsets(log)) == [0, 1, 2, 3, *range(5, COUNT)]


def test_damage_that_is_deleted_is_forgotten() -> None:
    files = written()
    flip(files, path_of(1), position_of(1) + 70)
    log = opened(files, is_clean=True)
    assert refused(log, 1)
    log.delete_segments(log.advance_log_start(4))
    assert DAMAGED_RANGES not in names(files)
    assert read_all(log)[0][0] == 4


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("is_known", [True, False])
def test_a_wrong_length_that_leads_over_indexed_batches_hides_none_of_them(
    is_known: bool, is_clean: bool
) -> None:
    """Whoever looks for one that has no index entry comes from the beginning; also where what is
    damaged was deleted, and is still in the file."""
    config = with_config(segment_bytes=10_000, index_interval_bytes=2 * BATCH_BYTES)
    files = MemoryFiles()
    log = open_log(files, config=config)
    append_each(log, 30)
    log.close()
    overwrite(files, path_of(0), 10, b"\x04")
    log = open_log(files, config=config, recovery_point=30)
    if is_known:
        assert refused(log, 0)
    assert log.advance_log_start(1) == []
    log.close(clean=is_clean)
    log = open_log(files, config=config, is_clean=is_clean, recovery_point=30, log_start_offset=1)
    assert len(log.damaged.ranges) == is_known
    assert list(offsets(log)) == [*range(1, 30)]


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_damaged_epoch_of_a_producer_does_not_shut_it_out(is_clean: bool) -> None:
    """Below the recovery point headers are read on the way, and nobody looks at their CRCs."""
    files = MemoryFiles()
    log = open_log(files, config=CONFIG)
    for sequence in range(6):
        append(log, from_producer(sequence, b"x" * 20))
    log.close(clean=is_clean)
    for name in names(files):
        if name.endswith((".snapshot", ".producers")):
            files.remove(f"{DIRECTORY}/{name}")
    overwrite(files, path_of(5), position_of(5) + 51, b"\x40")
    log = opened(files, is_clean=is_clean, recovery_point=6)
    # What the damaged one was is not known any more: it can be sent again.
    assert append(log, from_producer(5, b"x" * 20)).base_offset == 6
    assert list(offsets(log)) == [0, 1, 2, 3, 4, 6]


def test_producers_are_known_beyond_a_damaged_batch() -> None:
    files = MemoryFiles()
    log = open_log(files, config=CONFIG)
    for sequence in range(6):
        append(log, from_producer(sequence, b"x" * 20))
    log.close(clean=False)
    for name in names(files):
        if name.endswith((".snapshot", ".producers")):
            files.remove(f"{DIRECTORY}/{name}")
    flip(files, path_of(4), position_of(4) + 70)
    log = opened(files, recovery_point=6)
    assert list(offsets(log)) == [0, 1, 2, 3, 5]
    assert append(log, from_producer(5, b"x" * 20)).is_duplicate
    assert append(log, from_producer(6, b"x" * 20)).base_offset == 6


def test_times_are_searched_around_damage() -> None:
    files = MemoryFiles()
    log = open_log(files, config=CONFIG)
    for at in range(COUNT):
        append(log, batch(b"x" * 20, timestamps=[NOW_MS + at]))
    log.close()
    overwrite(files, path_of(4), position_of(4), bytes(BATCH_BYTES))
    log = opened(files)
    assert refused(log, 4)
    for at in (3, 5, 6):
        found = log.offset_for_timestamp(NOW_MS + at, COUNT)
        assert found is not None
        assert found.offset == at
    found = log.offset_for_timestamp(NOW_MS + 4, COUNT)
    assert found is not None
    assert found.offset == 5


def test_a_truncated_log_keeps_the_damage_that_is_left() -> None:
    files = written()
    for offset in (1, 7):
        flip(files, path_of(offset), position_of(offset) + 70)
    log = opened(files, is_clean=True)
    assert list(offsets(log)) == [0, *range(2, 7), *range(8, COUNT)]
    log.truncate_to(5, NOW_MS)
    assert list(offsets(log)) == [0, 2, 3, 4]
    assert refused(log, 1)
    assert append(log).base_offset == 5
