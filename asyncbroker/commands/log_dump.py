"""What `asyncbroker log dump` prints of each kind of file, as rows of names and values."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any, Final

import click

from asyncbroker.commands.record_json import encoded
from asyncbroker.coordinator.records import GroupMetadataRecord, OffsetCommitRecord, decode_record
from asyncbroker.log.batch_scan import BatchScan, GoodBatch
from asyncbroker.log.checkpoints import CorruptCheckpoint
from asyncbroker.log.errors import CorruptIndex
from asyncbroker.log.index import OFFSET_INDEX, TIME_INDEX, Entries, Layout
from asyncbroker.log.inspection import ReadOnlyFile, read_small, read_snapshot, segments_of
from asyncbroker.log.producers import CorruptSnapshot
from asyncbroker.protocol.errors import ProtocolError
from asyncbroker.protocol.records import CorruptBatch, Record, records_of

Row = dict[str, Any]

ABORTED: Final = struct.Struct(">hqqqq")
MARKERS: Final = {0: "abort", 1: "commit"}


def dump_file(path: str, *, with_records: bool, with_offsets: bool) -> Iterator[Row]:
    """The rows of one file; what cannot be read is a row with `damage`."""
    name = os.path.basename(path)
    suffix = os.path.splitext(name)[1]
    if suffix == ".log":
        describe = _offsets_row if with_offsets else _record_row
        yield from _batches(path, describe if with_records or with_offsets else None)
        return
    readers: dict[str, Callable[[str], Iterator[Row]]] = {
        ".index": lambda path: _entries(path, OFFSET_INDEX, ("offset", "position")),
        ".timeindex": lambda path: _entries(path, TIME_INDEX, ("timestamp", "offset")),
        ".txnindex": _aborted,
        ".snapshot": _producers,
    }
    try:
        yield from readers.get(suffix, _small)(path)
    except (CorruptIndex, CorruptSnapshot, CorruptCheckpoint) as damage:
        yield {"damage": str(damage)}
    except KeyError:
        raise click.ClickException(f"{path}: no file of a log") from None


def _batches(path: str, describe: Callable[[Record], Row | None] | None) -> Iterator[Row]:
    file = ReadOnlyFile(path)
    base_offset = _base_offset(path)
    directory = os.path.dirname(path) or os.curdir
    segment = next(
        (each for each in segments_of(directory) if each.base_offset == base_offset), None
    )
    if segment is None:
        scan = BatchScan(file, base_offset, file.size()).run(0, base_offset)
    else:
        scan = segment.scan()
    for found in scan:
        if not isinstance(found, GoodBatch):
            yield {
                "position": found.position,
                "bytes": found.end - found.position,
                "offset": found.first_offset,
                "last offset": None if found.next_offset is None else found.next_offset - 1,
                "damage": found.reason or "damaged, as is known",
            }
            continue
        header, position = found
        yield {
            "position": position,
            "bytes": header.size,
            "offset": header.base_offset,
            "last offset": header.last_offset,
            "records": header.record_count,
            "leader epoch": header.partition_leader_epoch,
            "codec": header.compression.name.lower(),
            "timestamp": header.max_timestamp,
            "timestamp type": header.timestamp_type.name.lower(),
            "producer": header.producer_id,
            "producer epoch": header.producer_epoch,
            "sequence": header.base_sequence,
            "transactional": header.is_transactional,
            "control": header.is_control,
            "crc": f"{header.crc:08x}",
        }
        if describe is not None:
            try:
                for record in records_of(file.pread(header.size, position), header):
                    row = _marker_row(record) if header.is_control else describe(record)
                    if row is not None:
                        yield row
            except CorruptBatch as damage:
                yield {"position": position, "damage": f"its records: {damage}"}


def _record_row(record: Record) -> Row:
    return {
        "record": record.offset,
        "timestamp": record.timestamp,
        "key": encoded(record.key),
        "value": encoded(record.value),
        "headers": [[name, encoded(content)] for name, content in record.headers],
    }


def _marker_row(record: Record) -> Row:
    kind = int.from_bytes((record.key or b"")[2:4], "big")
    return {"record": record.offset, "marker": MARKERS.get(kind, str(kind))}


def _offsets_row(record: Record) -> Row | None:
    try:
        decoded = decode_record(record.key or b"", record.value)
    except ProtocolError as error:
        return {"record": record.offset, "damage": str(error)}
    if isinstance(decoded, OffsetCommitRecord):
        value: Row = {"deleted": True}
        if decoded.value is not None:
            value = {
                "committed": decoded.value.offset,
                "epoch": decoded.value.leader_epoch,
                "metadata": decoded.value.metadata,
                "timestamp": decoded.value.commit_timestamp,
            }
        return {"record": record.offset, **asdict(decoded.key), **value}
    if isinstance(decoded, GroupMetadataRecord):
        value = {"deleted": True}
        if decoded.value is not None:
            members = [member.member_id for member in decoded.value.members]
            value = {
                "generation": decoded.value.generation,
                "protocol": decoded.value.protocol,
                "leader": decoded.value.leader,
                "members": members,
            }
        return {"record": record.offset, "group": decoded.key.group, **value}
    return {"record": record.offset, "about": "a group of another protocol"}


def _entries(path: str, layout: Layout, names: tuple[str, str]) -> Iterator[Row]:
    entries = Entries.decode(layout, ReadOnlyFile(path).pread(1 << 31, 0))
    base_offset = _base_offset(path)
    for at in range(len(entries)):
        row = dict(zip(names, entries[at], strict=True))
        row["offset"] += base_offset
        yield row


def _aborted(path: str) -> Iterator[Row]:
    data = ReadOnlyFile(path).pread(1 << 31, 0)
    if len(data) % ABORTED.size:
        raise CorruptIndex(f"{len(data)} bytes are not entries of {ABORTED.size}")
    names = ("version", "producer", "first offset", "last offset", "last stable offset")
    for fields in ABORTED.iter_unpack(data):
        yield dict(zip(names, fields, strict=True))


def _producers(path: str) -> Iterator[Row]:
    for producer_id, producer in read_snapshot(path).producers():
        yield {
            "producer": producer_id,
            "epoch": producer.epoch,
            "coordinator epoch": producer.coordinator_epoch,
            "timestamp": producer.timestamp,
            "transaction from": producer.transaction_start,
            "last sequences": [batch.last_sequence for batch in producer.batches],
            "last offsets": [batch.last_offset for batch in producer.batches],
        }


def _small(path: str) -> Iterator[Row]:
    yield dict(read_small(path))


def _base_offset(path: str) -> int:
    digits = os.path.basename(path).partition(".")[0]
    if not digits.isdigit():
        raise click.ClickException(f"{path}: not named by an offset")
    return int(digits)
