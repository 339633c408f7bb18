"""Deletions of gigabytes under a broker that answers meanwhile, and a file system without inodes.

The gigabytes are allocated and not written, which costs a file system as much to free.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from asyncbroker.client.connection import Address, Connection, Deadline
from asyncbroker.log.config import LogConfig
from asyncbroker.log.files import RealFiles
from asyncbroker.log.log_directory import LogDirectory
from asyncbroker.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from asyncbroker.protocol.records import Record, build_batch, read_header
from compat_tests.chaos.ext4 import why_not_mounted
from compat_tests.chaos.load import QUICK, create_topic, read_all
from compat_tests.chaos.nemesis import CHAOS_SETTINGS, running, small_disk, wait_until

SEGMENTS = 16
SEGMENT_BYTES = 128 << 20
# What somebody waits who only asks for versions; two cores that are busy with other tests included.
ANSWER_SECONDS_MAX = 0.5
AT_ONCE = (*CHAOS_SETTINGS, "log.segment.delete.delay.ms=0")


def make_large(path: Path, topic: str) -> None:
    """A data directory, left in order, with a topic of 2 GB."""
    directory = LogDirectory.open(RealFiles(), str(path), cluster_id="deletions", node_id=1)
    now_ms = int(time.time() * 1000)
    log = directory.open_partition(
        topic,
        0,
        topic_id=bytes(range(16)),
        config=LogConfig(),
        leader_epoch=0,
        now_ms=now_ms,
    )
    for _ in range(SEGMENTS + 1):
        batch = build_batch([Record(0, now_ms, b"key", b"value")])
        log.roll(now_ms)
        log.append(batch, read_header(batch), leader_epoch=0, now_ms=now_ms)
    directory.close()
    for segment in sorted((path / f"{topic}-0").glob("*.log"))[:SEGMENTS]:
        with segment.open("rb+") as file:
            os.posix_fallocate(file.fileno(), 0, SEGMENT_BYTES)


@contextmanager
def asking(servers: str) -> Iterator[list[float]]:
    """How long each answer takes, of one question after another."""
    host, _, port = servers.rpartition(":")
    connection = Connection.open(Address(host, int(port)), client_id="asking", timeout_s=30)
    seconds: list[float] = []
    stopping = threading.Event()

    def ask() -> None:
        while not stopping.wait(0.002):
            began = time.monotonic()
            connection.request(ApiVersionsRequest("asking", "1"), ApiVersionsResponse, Deadline(30))
            seconds.append(time.monotonic() - began)

    thread = threading.Thread(target=ask, name="asking")
    thread.start()
    try:
        yield seconds
    finally:
        stopping.set()
        thread.join()
        connection.close()


def is_gone(path: Path) -> bool:
    """Whether no large file is left in a directory, whatever it is called."""
    return not any(
        file.stat().st_size >= SEGMENT_BYTES for file in path.rglob("*") if file.is_file()
    )


@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", ["topic", "records"])
def test_gigabytes_are_deleted_and_nobody_waits(how: str, tmp_path: Path) -> None:
    if shutil.disk_usage(tmp_path).free < 3 * SEGMENTS * SEGMENT_BYTES:
        pytest.skip("there is no room for 2 GB")
    data = tmp_path / "data"
    make_large(data, "large")
    try:
        with running(data, AT_ONCE) as broker:
            servers = broker.bootstrap_servers
            admin = AdminClient({"bootstrap.servers": servers})
            with asking(servers) as seconds:
                if how == "topic":
                    admin.delete_topics(["large"])["large"].result(60)
                else:
                    place = TopicPartition("large", 0, SEGMENTS)
                    assert admin.delete_records([place])[place].result(60).low_watermark == SEGMENTS
                wait_until(lambda: is_gone(data), "the end of 2 GB")
            assert max(seconds) < ANSWER_SECONDS_MAX
            assert len(seconds) > 1
    finally:
        shutil.rmtree(data)


@pytest.mark.timeout(300)
def test_a_start_without_free_inodes_after_an_ordinary_stop_serves_what_is_there(
    tmp_path: Path,
) -> None:
    if why := why_not_mounted():
        pytest.skip(why)
    with small_disk(tmp_path / "disk", 48) as disk, running(disk / "data") as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "old", 1)
        producer = Producer({"bootstrap.servers": servers, "acks": "all", **QUICK})
        for _ in range(10):
            producer.produce("old", b"old")
        assert producer.flush(30) == 0
        assert broker.stop() == 0
        ballast = take_all_inodes(disk / "ballast")
        broker.start()
        assert [len(read.records) for read in read_all(servers, "old", 1)] == [10]
        admin = AdminClient({"bootstrap.servers": servers})
        place = TopicPartition("old", 0, 5)
        assert admin.delete_records([place])[place].result(30).low_watermark == 5
        # And in order once more, without any as well.
        assert broker.stop() == 0
        broker.start()
        assert [len(read.records) for read in read_all(servers, "old", 1)] == [5]
        shutil.rmtree(ballast)
        producer.produce("old", b"new")
        assert producer.flush(30) == 0


def take_all_inodes(directory: Path) -> Path:
    """Makes empty files until there can be no more."""
    directory.mkdir()
    try:
        for number in range(1 << 20):
            (directory / str(number)).touch()
    except OSError:
        return directory
    raise AssertionError("there is no end of inodes")
