"""The proxy: clients stay on it, it shows what passed, and what it cannot read passes too."""

from __future__ import annotations

import json
import random
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer

from asyncbroker.testing import BrokerThread
from asyncbroker.tracing.frames import FRAME_BYTES_MAX
from asyncbroker.tracing.recording import Kind, RecordingReader

SECONDS_MAX = 20


class Tracing:
    """`asyncbroker trace` as a process."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self._process = process
        self.address = address

    def end(self) -> list[dict[str, Any]]:
        """Stops it; returns what it has shown."""
        self._process.terminate()
        output, self.errors = self._process.communicate(timeout=SECONDS_MAX)
        assert self._process.returncode == 0, self.errors
        return [json.loads(line) for line in output.splitlines()]

    def connect(self) -> socket.socket:
        host, _, port = self.address.rpartition(":")
        return socket.create_connection((host, int(port)), SECONDS_MAX)


@contextmanager
def tracing(upstream: str, *options: str) -> Iterator[Tracing]:
    process = subprocess.Popen(
        [sys.executable, "-m", "asyncbroker", "trace", upstream, "--json", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        ready = process.stderr.readline().split()
        assert ready[:3] == ["asyncbroker", "trace", "ready"], ready
        yield Tracing(process, ready[3])
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


async def test_clients_stay_on_the_proxy(tmp_path: Path) -> None:
    with (
        BrokerThread() as broker,
        tracing(broker.bootstrap_servers, "--record", str(tmp_path / "r")) as proxy,
    ):
        async with AIOKafkaProducer(
            bootstrap_servers=proxy.address, client_id="aio", enable_idempotence=True
        ) as producer:
            for number in range(3):
                await producer.send_and_wait("t", str(number).encode())
        async with AIOKafkaConsumer(
            "t", bootstrap_servers=proxy.address, group_id="g", auto_offset_reset="earliest"
        ) as consumer:
            for number in range(3):
                record = await consumer.getone()
                assert record.value == str(number).encode()
            await consumer.commit()
        shown = proxy.end()
    for api in ("Produce", "Fetch", "JoinGroup", "OffsetCommit"):
        assert any(line["api"] == api for line in shown), api
    produced = [line for line in shown if line["api"] == "Produce"]
    assert [line["partitions"][0]["answered_offset"] for line in produced] == [0, 1, 2]
    assert all(line["client_id"] == "aio" for line in produced)
    assert not any(line["problem"] for line in shown), shown
    with (tmp_path / "r").open("rb") as file:
        reader = RecordingReader(file)
        recorded = list(reader)
    assert reader.torn_bytes == 0
    assert sum(entry.kind is Kind.REQUEST for entry in recorded) >= len(shown)
    assert not any(entry.is_cut for entry in recorded)


def test_librdkafka_stays_on_the_proxy() -> None:
    with BrokerThread() as broker, tracing(broker.bootstrap_servers, "--topic", "t") as proxy:
        producer = Producer({"bootstrap.servers": proxy.address, "client.id": "a\x1b[31m"})
        producer.produce("t", b"x")
        assert producer.flush(SECONDS_MAX) == 0
        consumer = Consumer(
            {
                "bootstrap.servers": proxy.address,
                "group.id": "g",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(["t"])
        (message,) = consumer.consume(1, SECONDS_MAX)
        assert message.value() == b"x"
        consumer.close()
        shown = proxy.end()
    (fetched, *_) = [
        line
        for line in shown
        if line["api"] == "Fetch" and any(part["records"] for part in line["partitions"])
    ]
    assert fetched["partitions"][0]["topic"] == "t"
    assert any(line["client_id"] == "a\x1b[31m" for line in shown)


def test_a_large_frame_passes_and_is_summarised() -> None:
    size = FRAME_BYTES_MAX + 1000
    settings = {"message.max.bytes": 2 * size, "socket.request.max.bytes": 4 * size}
    with (
        BrokerThread(settings) as broker,
        tracing(broker.bootstrap_servers, "--api", "produce") as proxy,
    ):
        producer = Producer(
            {"bootstrap.servers": proxy.address, "message.max.bytes": 2 * size, "acks": 1}
        )
        producer.produce("t", bytes(size))
        assert producer.flush(SECONDS_MAX) == 0
        assert len(broker.topic("t").records()[0].value or b"") == size
        (line,) = proxy.end()
    assert line["problem"] == "not decoded: too large"
    assert line["request_bytes"] > size
    assert line["response_bytes"] is not None


def test_what_cannot_be_read_passes_and_is_said() -> None:
    with BrokerThread() as broker, tracing(broker.bootstrap_servers) as proxy:
        with proxy.connect() as peer:
            frame = struct.pack(">hhih", 3, 9, 1, 1) + b"c" + b"\xff" * 20
            peer.sendall(struct.pack(">i", len(frame)) + frame)
            assert peer.recv(1) == b""
        with proxy.connect() as peer:
            peer.sendall(b"\x16\x03\x01\x02\x00 hello from TLS")
            assert peer.recv(1) == b""
        shown = proxy.end()
    assert [(line["api"], line["response_bytes"]) for line in shown] == [("Metadata", None)]
    assert shown[0]["problem"]
    assert "not Kafka's plain protocol" in proxy.errors


def test_a_token_of_sasl_is_not_shown() -> None:
    with BrokerThread() as broker, tracing(broker.bootstrap_servers) as proxy:
        with proxy.connect() as peer:
            token = b"\0me\0hunter2"
            peer.sendall(struct.pack(">i", len(token)) + token)
            assert peer.recv(1) == b""
        with proxy.connect() as peer:
            # Of a short name and a password that look like a known API in a small version.
            token = b"\x000\x005hunter2hunter2"
            peer.sendall(struct.pack(">i", len(token)) + token)
            assert peer.recv(1) == b""
        shown = proxy.end()
    assert len(shown) == 2
    assert "hunter2" not in json.dumps(shown)
    assert {line["problem"] for line in shown} == {"no request: a token of SASL, perhaps"}


def test_a_broker_that_cannot_be_reached_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tracing(f"127.0.0.1:{port}") as proxy:
        with proxy.connect() as peer:
            assert peer.recv(1) == b""
        assert proxy.end() == []
    assert f"cannot reach 127.0.0.1:{port}" in proxy.errors


def test_garbage_of_one_client_is_not_felt_by_another() -> None:
    chance = random.Random(7)
    garbage = [b"GET / HTTP/1.1\r\n\r\n", b"\x7f\xff\xff\xff", b"\0\0\0\0", b"\0\0\0\2ab", b"\0"]
    garbage += [chance.randbytes(300) for _ in range(20)]
    garbage += [struct.pack(">i", 100) + chance.randbytes(100) for _ in range(20)]
    with BrokerThread() as broker, tracing(broker.bootstrap_servers) as proxy:
        for data in garbage:
            with proxy.connect() as peer:
                peer.sendall(data)
                peer.shutdown(socket.SHUT_WR)
                with suppress(ConnectionError):
                    while peer.recv(65536):
                        pass
        producer = Producer({"bootstrap.servers": proxy.address, "client.id": "good"})
        producer.produce("t", b"x")
        assert producer.flush(SECONDS_MAX) == 0
        shown = proxy.end()
    assert any(line["api"] == "Produce" and line["client_id"] == "good" for line in shown)
    assert "Traceback" not in proxy.errors
