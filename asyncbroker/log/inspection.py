"""Looks at the files of a log without a broker: what is in them, and what is wrong with them.

Only reads, also on a medium that cannot be written to. A partition is checked as a start would see
it, but with every CRC: the batches of every segment, what the indexes say of them, the producers'
snapshots, the small files. Each `Finding` tells which file, where, what, which offsets, and what a
broker would do about it.

Not known here: how findings are printed (`commands/log.py`) and repaired (`repair.py`).
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Final

from asyncbroker.log.batch_scan import BatchScan, Damage, GoodBatch
from asyncbroker.log.checkpoint_sums import KAFKAS, CheckpointSums
from asyncbroker.log.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    LEADER_EPOCHS,
    LOG_STARTS,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    CorruptCheckpoint,
    decode_epochs,
    decode_offsets,
    decode_partition_metadata,
    decode_properties,
)
from asyncbroker.log.damage import DAMAGED_RANGES, DamagedRange, decode_ranges
from asyncbroker.log.errors import CorruptIndex
from asyncbroker.log.files import RealFiles
from asyncbroker.log.index import OFFSET_INDEX, TIME_INDEX, Entries, Layout
from asyncbroker.log.journal import JOURNAL, newest, read_heads
from asyncbroker.log.journal_replay import live_rounds
from asyncbroker.log.producers import (
    SIDECAR_SUFFIX,
    SNAPSHOT_SUFFIX,
    CorruptSnapshot,
    ProducerState,
)
from asyncbroker.log.segment import LOG_SUFFIX, segment_name

CUT: Final = "cuts the log here, as the torn end of a crash"
HOLE: Final = "answers CORRUPT_MESSAGE for these offsets and serves the rest"
REBUILD: Final = "builds it anew when it is used"
GAP: Final = "offsets before the next segment are missing: compacted away, or lost with a file"
PASS: Final = "serves what is there, and tells of these offsets when a reader passes over them"
REPLAY: Final = "writes them to the logs first of all"
# What a start does about one that is damaged.
OFFSET_CHECKPOINTS: Final = {
    RECOVERY_POINTS: "does not use it, and reads the logs",
    LOG_STARTS: "does not use it, and reads the logs",
    CLEANER_OFFSETS: "does not use it, and compacts the logs from their beginning",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong. Positions and offsets are -1 where they say nothing; offsets are
    [first_offset, next_offset), and [position, end) the bytes of the file."""

    path: str
    what: str
    start_does: str
    position: int = -1
    end: int = -1
    first_offset: int = -1
    next_offset: int = -1
    # Whether bytes of records are damaged, and not only what can be made anew of them.
    is_of_records: bool = False


class ReadOnlyFile:
    """A file that is only read."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))

    def pread(self, size: int, position: int) -> bytes:
        """Up to `size` bytes, fewer only at the end of the file."""
        parts: list[bytes] = []
        while size > 0 and (data := os.pread(self._fd, size, position)):
            parts.append(data)
            size, position = size - len(data), position + len(data)
        return b"".join(parts)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def __del__(self) -> None:
        os.close(self._fd)


@dataclass(slots=True)
class SegmentFiles:
    """One segment: its log, and where the next one begins, None for the newest."""

    directory: str
    base_offset: int
    next_base_offset: int | None
    known: list[DamagedRange] = field(default_factory=list)

    @property
    def path(self) -> str:
        """Without suffix."""
        return os.path.join(self.directory, segment_name(self.base_offset))

    def scan(self) -> Iterator[GoodBatch | Damage]:
        """The batches and what is none. Damage that is known already has no reason."""
        file = ReadOnlyFile(self.path + LOG_SUFFIX)
        scan = BatchScan(
            file,
            self.base_offset,
            file.size(),
            end_offset=self.next_base_offset,
            holes={known.position: known for known in self.known},
        )
        return scan.run(0, self.base_offset)


def is_partition(directory: str) -> bool:
    """Whether segments lie in a directory."""
    return any(name.endswith(LOG_SUFFIX) and _offset(name) >= 0 for name in os.listdir(directory))


def partitions_of(path: str) -> list[str]:
    """The directories with partitions in a data directory, or the one that `path` is."""
    if is_partition(path):
        return [path]
    below = (os.path.join(path, name) for name in sorted(os.listdir(path)))
    return [each for each in below if os.path.isdir(each) and is_partition(each)]


def segments_of(directory: str) -> list[SegmentFiles]:
    """The segments of a partition, oldest first."""
    bases = sorted(
        _offset(name)
        for name in os.listdir(directory)
        if name.endswith(LOG_SUFFIX) and _offset(name) >= 0
    )
    known = known_damage(directory)
    return [
        SegmentFiles(directory, base, after, [each for each in known if each.base_offset == base])
        for base, after in zip(bases, [*bases[1:], None], strict=True)
    ]


def known_damage(directory: str) -> list[DamagedRange]:
    """What is written down as damaged; nothing if that cannot be read."""
    try:
        return decode_ranges(_read(os.path.join(directory, DAMAGED_RANGES)))
    except (FileNotFoundError, CorruptCheckpoint):
        return []


# ---- checking


def needed_frames(path: str) -> int:
    """How many frames of the journal of a data directory the next start will look at: what they
    hold may be nowhere else."""
    journal = os.path.join(path, JOURNAL)
    if os.path.exists(os.path.join(path, CLEAN_SHUTDOWN)) or not os.path.exists(journal):
        return 0
    file = ReadOnlyFile(journal)
    head = newest(read_heads(file))
    return 0 if head is None else sum(len(each.frames) for each in live_rounds(file, head))


def check_data_directory(path: str) -> Iterator[Finding]:
    """What is wrong with the small files of a data directory; not with its partitions."""
    names = {entry.name: entry.stat().st_size for entry in os.scandir(path)}
    frames = needed_frames(path)
    if frames:
        what = f"its {frames} frames are not known to be in the logs: these may seem to end early"
        yield Finding(os.path.join(path, JOURNAL), what, REPLAY)
    sums = CheckpointSums(RealFiles(), path, names)
    for name in OFFSET_CHECKPOINTS:
        if names.get(name):
            try:
                sums.decode(name, _read(os.path.join(path, name)))
            except CorruptCheckpoint as damage:
                yield Finding(os.path.join(path, name), str(damage), OFFSET_CHECKPOINTS[name])
    if META_PROPERTIES in names:
        try:
            properties = decode_properties(_read(os.path.join(path, META_PROPERTIES)))
        except CorruptCheckpoint as damage:
            yield Finding(os.path.join(path, META_PROPERTIES), str(damage), "refuses the directory")
        else:
            if "cluster.id" not in properties:
                where = os.path.join(path, META_PROPERTIES)
                yield Finding(where, "there is no cluster.id", "refuses the directory")


def check_partition(directory: str) -> Iterator[Finding]:
    """What is wrong with a partition. Reads all of it."""
    end_offset, last = 0, ""
    is_compacted = recorded_offset_of(directory, CLEANER_OFFSETS) > 0
    for segment in segments_of(directory):
        if last and segment.base_offset > end_offset and not is_compacted:
            first, after = end_offset, segment.base_offset
            where = os.path.getsize(last)
            yield Finding(last, GAP, PASS, where, where, first, after, is_of_records=True)
        end_offset, last = (yield from check_segment(segment)), segment.path + LOG_SUFFIX
    promised = recovery_point_of(directory)
    if end_offset < promised:
        what = f"the log ends at offset {end_offset}, and was durable to {promised}"
        size = os.path.getsize(last)
        yield Finding(last, what, HOLE, size, size, end_offset, promised, is_of_records=True)
    for name in sorted(os.listdir(directory)):
        path = os.path.join(directory, name)
        if name.endswith(SNAPSHOT_SUFFIX):
            yield from _check_snapshot(path)
        elif name == LEADER_EPOCHS:
            yield from _check_small(path, "asks the log")
        elif name == PARTITION_METADATA:
            yield from _check_small(path, "writes it anew")
        elif name == DAMAGED_RANGES:
            yield from _check_small(path, "reads the whole log")


def check_segment(segment: SegmentFiles) -> Generator[Finding, None, int]:
    """What is wrong with a segment and its indexes; the offset at which it ends."""
    end_offset = segment.base_offset
    ends: dict[int, int] = {}  # last offset of each batch by position
    timestamps: dict[int, int] = {}  # largest timestamp of each batch by last offset
    damaged: list[Damage] = []
    for found in segment.scan():
        if isinstance(found, GoodBatch):
            ends[found.position] = found.header.last_offset
            timestamps[found.header.last_offset] = found.header.max_timestamp
            end_offset = found.header.next_offset
            continue
        end_offset = found.next_offset or end_offset
        damaged.append(found)
        is_torn = found.next_offset is None and found.first_offset >= recovery_point_of(
            segment.directory
        )
        yield Finding(
            segment.path + LOG_SUFFIX,
            found.reason or "damaged, as is known",
            CUT if is_torn else HOLE,
            found.position,
            found.end,
            found.first_offset,
            -1 if found.next_offset is None else found.next_offset,
            is_of_records=True,
        )
    for layout in (OFFSET_INDEX, TIME_INDEX):
        wrong = _wrong_entry(segment, layout, ends, timestamps, damaged)
        if wrong is not None:
            yield Finding(segment.path + layout.suffix, wrong[1], REBUILD, wrong[0])
    return end_offset


def _wrong_entry(
    segment: SegmentFiles,
    layout: Layout,
    ends: dict[int, int],
    timestamps: dict[int, int],
    damaged: list[Damage],
) -> tuple[int, str] | None:
    """The position and the reason of the first entry that the log contradicts. An index may lack
    entries: those of the newest segment are written now and then. Of a damaged batch it is all that
    is left."""
    path = segment.path + layout.suffix
    try:
        entries = Entries.decode(layout, _read(path))
    except FileNotFoundError:
        return (-1, "it is gone") if segment.next_base_offset is not None else None
    except CorruptIndex as damage:
        return -1, str(damage)
    for at in range(len(entries)):
        key, value = entries[at]
        if layout is OFFSET_INDEX:
            is_right = ends.get(value) == segment.base_offset + key or any(
                each.position <= value < each.end for each in damaged
            )
        else:
            offset = segment.base_offset + value
            is_right = timestamps.get(offset) == key or any(
                each.first_offset <= offset < (each.next_offset or offset + 1) for each in damaged
            )
        if not is_right:
            return at * layout.entry_bytes, f"entry {at} ({key}, {value}) is of no batch"
    return None


def _check_snapshot(path: str) -> Iterator[Finding]:
    sidecar = path.removesuffix(SNAPSHOT_SUFFIX) + SIDECAR_SUFFIX
    offset = _offset(os.path.basename(path))
    try:
        state = read_snapshot(path)
    except CorruptSnapshot as damage:
        yield Finding(path, str(damage), "takes an older one, and reads more of the log")
        return
    if not state.is_whole and os.path.exists(sidecar):
        what = f"it does not belong to the snapshot at {offset}"
        yield Finding(sidecar, what, "takes an older one, or only the last batch of each producer")


def read_snapshot(path: str) -> ProducerState:
    """The producers in a snapshot. Raises CorruptSnapshot."""
    sidecar = path.removesuffix(SNAPSHOT_SUFFIX) + SIDECAR_SUFFIX
    return ProducerState.load(
        _offset(os.path.basename(path)),
        _read(path),
        _read(sidecar) if os.path.exists(sidecar) else None,
    )


def _check_small(path: str, start_does: str) -> Iterator[Finding]:
    try:
        read_small(path)
    except CorruptCheckpoint as damage:
        yield Finding(path, str(damage), start_does)


def read_small(path: str) -> list[tuple[str, str]]:
    """What stands in a checkpoint or a properties file, as names and values. Raises
    CorruptCheckpoint; KeyError for a file of another kind."""
    data, name = _read(path), os.path.basename(path)
    if name in (*OFFSET_CHECKPOINTS, KAFKAS):
        return [
            (f"{topic}-{index}", str(at)) for (topic, index), at in decode_offsets(data).items()
        ]
    if name == LEADER_EPOCHS:
        return [(f"epoch {epoch}", f"from offset {at}") for epoch, at in decode_epochs(data)]
    if name == PARTITION_METADATA:
        return [("topic id", decode_partition_metadata(data).hex())]
    if name == DAMAGED_RANGES:
        return [
            (
                segment_name(each.base_offset) if each.base_offset >= 0 else "no longer there",
                str(each),
            )
            for each in decode_ranges(data)
        ]
    if name == META_PROPERTIES:
        return list(decode_properties(data).items())
    raise KeyError(name)


def recovery_point_of(directory: str) -> int:
    """Up to which offset a partition was promised, as its data directory says; 0 if it does not."""
    return recorded_offset_of(directory, RECOVERY_POINTS)


def recorded_offset_of(directory: str, checkpoint: str) -> int:
    """What a checkpoint of its data directory says of a partition; 0 if it says nothing."""
    parent = os.path.dirname(os.path.abspath(directory))
    topic, _, index = os.path.basename(os.path.abspath(directory)).rpartition("-")
    try:
        names = {entry.name: entry.stat().st_size for entry in os.scandir(parent)}
        sums = CheckpointSums(RealFiles(), parent, names)
        offsets = sums.decode(checkpoint, _read(os.path.join(parent, checkpoint)))
        return offsets.get((topic, int(index)), 0)
    except (FileNotFoundError, CorruptCheckpoint, ValueError):
        return 0


def _offset(name: str) -> int:
    """The offset that a file is named by; -1 for other files."""
    digits = name.partition(".")[0]
    return int(digits) if len(digits) == len(segment_name(0)) and digits.isdigit() else -1


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
