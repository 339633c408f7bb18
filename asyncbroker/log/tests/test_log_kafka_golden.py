"""Against a directory that Apache Kafka 4.3.1 wrote: the same bytes, and each reads the other's.

`golden/kafka-4.3.1` was made by producing sixty batches (all codecs, two idempotent producers,
timestamps that go back and forth and once jump ahead so that the segment rolls) into a topic with
index.interval.bytes=300 and segment.ms=2000, and stopping the broker. What asyncbroker writes of
the same batches, the same directory opened by it and continued, and a directory of its own were
given to Kafka's `DumpLogSegments --deep-iteration --index-sanity-check` and to a Kafka broker, by
hand, which read them without complaint.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from asyncbroker.log.config import LogConfig
from asyncbroker.log.log_directory import LogDirectory
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.partition_log import PartitionLog
from asyncbroker.log.tests.log_harness import (
    NOW_MS,
    append,
    append_each,
    open_log,
    read_all,
)
from asyncbroker.protocol.records import batches, read_header, records_of, stamp, verify_crc

GOLDEN = Path(__file__).parent / "golden" / "kafka-4.3.1"
TOPIC_ID = bytes.fromhex("236f4218a83b4ae882cc1a84d188d6b8")
CONFIG = LogConfig(index_interval_bytes=300, segment_ms=2000)
RECORDS = 150


def kafkas_files() -> MemoryFiles:
    """Kafka's data directory, in memory."""
    files = MemoryFiles()
    for path in GOLDEN.rglob("*"):
        if path.is_file():
            target = f"data/{path.relative_to(GOLDEN)}"
            files.make_directory(target.rpartition("/")[0])
            files.write_whole(target, path.read_bytes())
    return files


def kafkas_batches() -> list[bytearray]:
    """The batches as they were produced."""
    produced = []
    for path in sorted(GOLDEN.glob("flights-0/*.log")):
        for _, data in batches(path.read_bytes()):
            batch = bytearray(data)
            stamp(batch, 0, -1)
            produced.append(batch)
    return produced


def opened(files: MemoryFiles, leader_epoch: int = 0) -> tuple[LogDirectory, PartitionLog]:
    directory = LogDirectory.open(files, "data")
    (found,) = directory.partitions()
    assert (found.topic, found.partition, found.topic_id) == ("flights", 0, TOPIC_ID)
    return directory, directory.open_partition(
        "flights",
        0,
        topic_id=TOPIC_ID,
        config=CONFIG,
        leader_epoch=leader_epoch,
        now_ms=NOW_MS,
    )


def test_the_same_batches_give_the_same_bytes_in_every_file() -> None:
    files = MemoryFiles()
    log = open_log(
        files, directory="data/flights-0", config=CONFIG, topic_id=TOPIC_ID, leader_epoch=0
    )
    for batch in kafkas_batches():
        append(log, batch)
    assert log.end_offset == RECORDS
    log.close()
    ours = files.list_files("data/flights-0")
    for path in GOLDEN.glob("flights-0/*"):
        found = files.read_whole(f"data/flights-0/{path.name}")
        expected = path.read_bytes()
        if path.name == "partition.metadata":
            found, expected = found.strip(), expected.strip()
        assert found == expected, path.name
    extra = set(ours) - {path.name for path in GOLDEN.glob("flights-0/*")}
    assert {name.rpartition(".")[2] for name in extra} == {"producers"}


def test_a_directory_of_kafkas_opens_with_all_its_records() -> None:
    directory, log = opened(kafkas_files())
    assert directory.was_clean
    assert (directory.cluster_id, directory.node_id) == ("abcdefghijklmnopqrstuv", 1)
    assert (log.log_start_offset, log.end_offset, log.durable_end_offset) == (0, RECORDS, RECORDS)
    expected = [
        (record.offset, record.value)
        for path in sorted(GOLDEN.glob("flights-0/*.log"))
        for header, data in batches(path.read_bytes())
        for record in records_of(data, header)
    ]
    assert read_all(log) == expected
    assert len(expected) == RECORDS


def test_the_directory_is_continued_where_kafka_stopped() -> None:
    files = kafkas_files()
    directory, log = opened(files, leader_epoch=1)
    assert log.end_offset_for_epoch(0) == (0, RECORDS)
    # The producers' last batches are known from Kafka's snapshot.
    last = kafkas_batches()[-2]
    assert append(log, bytearray(last)).is_duplicate
    append_each(log, 30)
    directory.close()
    directory, log = opened(files, leader_epoch=1)
    assert log.end_offset == RECORDS + 30
    assert len(read_all(log)) == RECORDS + 30


@pytest.mark.parametrize("is_torn", [False, True])
def test_a_directory_that_kafka_left_in_a_crash_is_recovered(is_torn: bool) -> None:
    files = kafkas_files()
    files.remove("data/.kafka_cleanshutdown")
    files.write_whole("data/recovery-point-offset-checkpoint", b"0\n1\nflights 0 100\n")
    files.remove(f"data/flights-0/{RECORDS:020d}.snapshot")
    # Kafka preallocates the indexes of the newest segment and cuts them when it stops.
    for suffix, size in ((".index", 10485760), (".timeindex", 10485756)):
        path = f"data/flights-0/{100:020d}{suffix}"
        data = files.read_whole(path)[:-12]
        files.write_whole(path, data + bytes(size - len(data)))
    if is_torn:
        path = f"data/flights-0/{100:020d}.log"
        files.write_whole(path, files.read_whole(path)[:-1])
    directory, log = opened(files, leader_epoch=1)
    assert not directory.was_clean
    lost = read_header(kafkas_batches()[-1]).record_count if is_torn else 0
    assert log.end_offset == RECORDS - lost
    assert [offset for offset, _ in read_all(log)] == list(range(RECORDS - lost))
    directory.close()
    for suffix in (".log", ".index", ".timeindex"):
        name = f"{100:020d}{suffix}"
        found = files.read_whole(f"data/flights-0/{name}")
        if not is_torn:
            assert found == (GOLDEN / "flights-0" / name).read_bytes(), name


def test_every_batch_of_kafkas_keeps_its_crc() -> None:
    _, log = opened(kafkas_files())
    located = log.locate(0, 1 << 20, end_offset=RECORDS)
    assert located is not None
    for header, data in batches(located.read()):
        assert verify_crc(data, header)


def test_times_are_found_in_what_kafka_wrote() -> None:
    _, log = opened(kafkas_files())
    times = [
        (record.offset, record.timestamp)
        for path in sorted(GOLDEN.glob("flights-0/*.log"))
        for header, data in batches(path.read_bytes())
        for record in records_of(data, header)
    ]
    for timestamp in range(min(time for _, time in times) - 5, max(time for _, time in times), 97):
        expected = next(((offset, time) for offset, time in times if time >= timestamp), None)
        found = log.offset_for_timestamp(timestamp, RECORDS)
        assert found is not None
        assert (found.offset, found.timestamp) == expected
