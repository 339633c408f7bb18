"""Replays: a recording of real clients against another broker, and as a test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, TopicPartition

from asyncbroker.client.connection import Deadline
from asyncbroker.testing import Broker, BrokerThread, ErrorCode
from asyncbroker.tracing.observer import Observer
from asyncbroker.tracing.recording import RecordingWriter


@pytest.fixture
async def recording(tmp_path: Path) -> Path:
    """An idempotent producer and a group of one, with aiokafka."""
    path = tmp_path / "recording"
    writer = RecordingWriter(path)
    async with Broker(trace=Observer(recorder=writer)) as broker:
        servers = broker.bootstrap_servers
        async with AIOKafkaProducer(
            bootstrap_servers=servers, enable_idempotence=True, client_id="p"
        ) as producer:
            for number in range(3):
                await producer.send_and_wait("t", str(number).encode(), key=b"k")
        async with AIOKafkaConsumer(
            "t", bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest"
        ) as consumer:
            for _ in range(3):
                await consumer.getone()
            await consumer.commit()
    writer.close()
    return path


def replay(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "asyncbroker", "replay", str(path), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_another_broker_that_answers_the_same_has_no_differences(recording: Path) -> None:
    with BrokerThread() as broker:
        # Other producer ids, member ids and topic ids, and other offsets.
        broker.topic("t").append("before")
        with_before = replay(recording, broker.bootstrap_servers, "--check")
        records = broker.topic("t").records()
        committed = broker.group("g").offsets
    assert with_before.returncode == 0, with_before.stdout + with_before.stderr
    assert " 0 differ" in with_before.stderr
    assert [record.value for record in records] == [b"before", b"0", b"1", b"2"]
    assert committed == {("t", 0): 4}


def test_differences_are_printed_field_by_field(recording: Path) -> None:
    with BrokerThread() as broker:
        broker.faults.on(api="OffsetCommit").error(ErrorCode.UNKNOWN_MEMBER_ID)
        result = replay(recording, broker.bootstrap_servers, "--check", "--json")
    assert result.returncode == 1, result.stderr
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert {row["request"].split()[0] for row in found} == {"OffsetCommit"}
    (difference,) = found[0]["differences"]
    assert difference == {
        "path": "topics[t].partitions[0].error_code",
        "recorded": "NONE",
        "replayed": "UNKNOWN_MEMBER_ID",
    }


def test_lost_records_are_a_difference(recording: Path) -> None:
    with BrokerThread() as broker:
        broker.faults.on(api="Produce", nth=3).error(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        result = replay(recording, broker.bootstrap_servers, "--timeout", "5")
    assert result.returncode == 0
    assert "Produce" in result.stdout
    assert "NOT_LEADER_OR_FOLLOWER" in result.stdout
    assert "record t-0@2" in result.stdout


def test_a_recording_becomes_a_test_that_passes_and_can_fail(
    recording: Path, tmp_path: Path
) -> None:
    test = tmp_path / "test_recorded.py"
    assert replay(recording, "--as-test", str(test)).returncode == 0
    text = test.read_text()
    assert "Record(0, " in text
    assert "member_id=join_group_" in text
    assert max(map(len, text.splitlines())) <= 160
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test)]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, text + result.stdout
    test.write_text(text.replace('b"1"', 'b"x"', 1))
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert result.returncode == 1


@pytest.mark.parametrize("content", [b"", b"something else"])
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "f").write_bytes(content)
    result = replay(tmp_path / "f", "127.0.0.1:1")
    assert result.returncode == 1
    assert "no recording of ours" in result.stderr


def test_a_recording_that_was_cut_is_replayed_up_to_there(recording: Path) -> None:
    whole = recording.read_bytes()
    with BrokerThread() as broker:
        for end in range(12, len(whole), len(whole) // 5):
            recording.write_bytes(whole[:end])
            result = replay(recording, broker.bootstrap_servers)
            assert result.returncode == 0, result.stderr
            assert " 0 differ" in result.stderr
    recording.write_bytes(whole[:-3])
    result = replay(recording, "--as-test", str(recording.with_suffix(".py")))
    assert (result.returncode, "ends torn" in result.stderr) == (0, True)


def test_a_reader_that_has_seen_enough_is_no_failure(recording: Path) -> None:
    with BrokerThread() as broker:
        # Each answer differs: there is much to print.
        broker.faults.on(api="Produce").error(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        ours, theirs = os.pipe()
        os.close(ours)
        command = [sys.executable, "-m", "asyncbroker", "replay", str(recording)]
        try:
            result = subprocess.run(
                [*command, broker.bootstrap_servers],
                stdout=theirs,
                stderr=subprocess.PIPE,
                text=True,
                timeout=60,
                check=False,
            )
        finally:
            os.close(theirs)
    assert result.stderr == ""


def test_a_member_of_the_consumer_protocol_has_the_id_and_epochs_of_the_other_broker(
    tmp_path: Path,
) -> None:
    path = tmp_path / "recording"
    writer = RecordingWriter(path)
    with BrokerThread(trace=Observer(recorder=writer)) as broker:
        broker.topic("t").append("one")
        read_once(broker.bootstrap_servers)
    writer.close()
    with BrokerThread() as broker:
        broker.topic("t").append("one")
        # The group is further on there.
        for _ in range(3):
            read_once(broker.bootstrap_servers)
        result = replay(path, broker.bootstrap_servers)
        refused = [
            str(request)
            for request in broker.requests
            if {"FENCED_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID", "STALE_MEMBER_EPOCH"}
            & {*request.errors}
        ]
    assert result.returncode == 0, result.stderr
    assert not refused


def read_once(servers: str) -> None:
    """A consumer of the new protocol reads a record, commits and leaves."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "g",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["t"])
    deadline = Deadline(20)
    while not consumer.assignment():
        assert not deadline.has_passed
        consumer.poll(0.1)
    consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
    consumer.close()
