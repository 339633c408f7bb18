"""The trace of a broker: real clients, real sockets, whatever bytes they send."""

from __future__ import annotations

import json
import socket
import struct
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, Producer

from asyncbroker.protocol.messages.metadata import MetadataRequest
from asyncbroker.testing import BrokerThread, ErrorCode
from asyncbroker.tests.broker_process import BrokerProcess
from asyncbroker.tests.edge_harness import request_frame
from asyncbroker.tracing.exchange import Exchange
from asyncbroker.tracing.recording import Kind, RecordingReader
from asyncbroker.tracing.writer import TraceWriter


def traced(seen: list[Exchange], arrived: threading.Condition) -> Callable[[Exchange], None]:
    def note(exchange: Exchange) -> None:
        with arrived:
            seen.append(exchange)
            arrived.notify_all()

    return note


def wait_for(
    seen: list[Exchange], arrived: threading.Condition, fits: Callable[[Exchange], bool]
) -> Exchange:
    with arrived:
        assert arrived.wait_for(lambda: any(map(fits, seen)), 10), seen
        return next(filter(fits, seen))


def test_a_producer_and_a_consumer_are_traced_with_faults_and_errors() -> None:
    seen: list[Exchange] = []
    arrived = threading.Condition()
    with BrokerThread(trace=traced(seen, arrived)) as broker:
        broker.faults.on(api="Produce", times=1).error(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        servers = {"bootstrap.servers": broker.bootstrap_servers, "client.id": "me"}
        producer = Producer({**servers, "log_level": 0})
        producer.produce("t", b"hello", b"key")
        assert producer.flush(10) == 0
        consumer = Consumer(
            {**servers, "group.id": "g", "auto.offset.reset": "earliest", "log_level": 0}
        )
        consumer.subscribe(["t"])
        (message,) = consumer.consume(1, 10)
        assert message.value() == b"hello"
        consumer.close()
        failed = wait_for(seen, arrived, lambda x: x.api == "Produce")
        assert failed.errors == ("NOT_LEADER_OR_FOLLOWER",)
        assert failed.faults == ("error NOT_LEADER_OR_FOLLOWER",)
        assert failed.client_id == "me"
        worked = wait_for(seen, arrived, lambda x: x.api == "Produce" and not x.errors)
        assert (worked.parts[0].topic, worked.parts[0].records) == ("t", 1)
        assert worked.parts[0].answered_offset == 0
        fetched = wait_for(
            seen, arrived, lambda x: x.api == "Fetch" and any(part.records for part in x.parts)
        )
        # By its name, though a newer Fetch names topics by id.
        assert fetched.parts[0].topic == "t"
        assert fetched.response_bytes is not None
        joined = wait_for(seen, arrived, lambda x: x.api == "JoinGroup" and not x.errors)
        assert joined.groups == ("g",)


def test_requests_without_an_answer_or_a_meaning_are_traced_too() -> None:
    seen: list[Exchange] = []
    arrived = threading.Condition()
    with BrokerThread(trace=traced(seen, arrived)) as broker:
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap_servers, "acks": 0, "log_level": 0}
        )
        producer.produce("t", b"x")
        producer.flush(10)
        unanswered = wait_for(seen, arrived, lambda x: x.api == "Produce")
        assert (unanswered.response_bytes, unanswered.problem) == (None, "")
        for body, api in (
            (struct.pack(">hhih", 3, 9, 1, 2) + b"\xffx" + b"\xff" * 9, "Metadata"),
            (struct.pack(">hhih", 999, 9, 1, -1), "API key 999"),
            (b"\0", "?"),
        ):
            host, _, port = broker.bootstrap_servers.rpartition(":")
            with socket.create_connection((host, int(port)), 10) as peer:
                peer.sendall(struct.pack(">i", len(body)) + body)
                assert peer.recv(1) == b""
            refused = wait_for(seen, arrived, lambda x: bool(x.problem))
            assert (refused.api, refused.response_bytes) == (api, None)
            seen.clear()


def test_serve_writes_json_lines_of_what_is_chosen() -> None:
    options = ("--memory", "--listen", "127.0.0.1:0", "--trace", "json api=Metadata full")
    with BrokerProcess(*options) as broker:
        with broker.connect() as peer:
            peer.ask("ApiVersions", 0)
            peer.socket.sendall(request_frame("Metadata", 9, MetadataRequest(topics=None), 5))
            peer.receive()
        line = json.loads(broker.wait_for_line('"api": "Metadata"'))
        assert line["correlation_id"] == 5
        assert line["response"]["brokers"][0]["port"] == broker.address[1]
        assert not any('"ApiVersions"' in line for line in broker.errors)


def test_a_trace_a_recording_and_metrics_go_together(tmp_path: Path) -> None:
    options = ("--memory", "--listen=127.0.0.1:0", "--trace", f"--record={tmp_path / 'r'}")
    with BrokerProcess(*options, "--metrics=0") as broker:
        where = broker.wait_for_line("metrics at").split()[-1]
        with broker.connect() as peer:
            peer.ask("ApiVersions", 0)
        assert "v0 #" in broker.wait_for_line("ApiVersions")
        with urllib.request.urlopen(where, timeout=10) as answer:
            assert b'requests_total{api="ApiVersions"} 1.0' in answer.read()
        broker.process.terminate()
        assert broker.wait() == 0
    with (tmp_path / "r").open("rb") as file:
        kinds = [entry.kind for entry in RecordingReader(file)]
    assert kinds == [Kind.OPENED, Kind.REQUEST, Kind.RESPONSE]


def test_serve_refuses_a_choice_that_says_nothing() -> None:
    broker = BrokerProcess("--memory", "--trace", "nonsense")
    broker.start()
    assert broker.wait() == 2
    assert any("'nonsense'" in line for line in broker.errors)


def test_a_reader_that_is_slow_misses_lines_and_holds_up_nothing() -> None:
    shown: list[Exchange] = []
    may_go_on, has_begun = threading.Event(), threading.Event()

    def show(exchange: Exchange) -> None:
        has_begun.set()
        may_go_on.wait(10)
        shown.append(exchange)

    writer = TraceWriter(show, waiting_max=3)
    sent = Exchange(0, 0, "", "", 0, 0, "", 0, 0, 0.0)
    writer.put(sent)
    has_begun.wait(10)
    for _ in range(10):
        writer.put(sent)
    may_go_on.set()
    writer.close()
    assert len(shown) == 4
