"""`asyncbroker serve` as a process: the ready line, signals, exit status, refusals."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from asyncbroker.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from asyncbroker.protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsResource,
)
from asyncbroker.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from asyncbroker.protocol.messages.metadata import MetadataRequestTopic
from asyncbroker.protocol.messages.produce import PartitionProduceData, TopicProduceData
from asyncbroker.protocol.records import Record, build_batch
from asyncbroker.tests.broker_process import BlockingPeer, BrokerProcess
from asyncbroker.tests.config_questions import BROKER, SET
from asyncbroker.tests.edge_harness import decode_response, request_frame

LISTEN = "--listen=127.0.0.1:0"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")


def serve_to_the_end(*options: str) -> subprocess.CompletedProcess[str]:
    """Runs a broker that ends by itself."""
    return subprocess.run(
        [sys.executable, "-m", "asyncbroker", "serve", *options],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def produce_acks_all(broker: BrokerProcess, topic: str) -> None:
    with broker.connect() as peer:
        peer.ask("Metadata", 4, topics=[MetadataRequestTopic(name=topic)])
        batch = build_batch([Record(0, 1_700_000_000_000, b"key", b"value", [])])
        data = TopicProduceData(topic, [PartitionProduceData(0, batch)])
        response = peer.ask("Produce", 7, acks=-1, timeout_ms=10_000, topic_data=[data])
        (outcome,) = response.responses[0].partition_responses
        assert outcome.error_code == 0


def high_watermark(broker: BrokerProcess, topic: str) -> int:
    with broker.connect() as peer:
        asked = ListOffsetsTopic(topic, [ListOffsetsPartition(partition_index=0, timestamp=-1)])
        response = peer.ask("ListOffsets", 1, replica_id=-1, topics=[asked])
        (partition,) = response.topics[0].partitions
        assert partition.error_code == 0
        offset: int = partition.offset
        return offset


def test_a_memory_broker_says_that_it_is_ready_answers_and_stops_with_status_0() -> None:
    with BrokerProcess("--memory", LISTEN) as broker:
        host, port = broker.address
        assert host == "127.0.0.1"
        assert port > 0
        with broker.connect() as peer:
            response = peer.ask("ApiVersions", 0)
            assert response.error_code == 0
            assert {key.api_key for key in response.api_keys} >= {0, 1, 3, 18}
            metadata = peer.ask("Metadata", 1, topics=[])
            assert [(one.host, one.port) for one in metadata.brokers] == [(host, port)]
            broker.signal(signal.SIGTERM)
            assert broker.wait() == 0
            assert peer.is_closed()
        # Standard output is for the ready line alone.
        assert broker.rest_of_output == ""
        assert any("stopped" in line for line in broker.errors)
        assert not any("Traceback" in line for line in broker.errors)


def test_an_interrupt_stops_as_well() -> None:
    with BrokerProcess("--memory", LISTEN) as broker:
        broker.signal(signal.SIGINT)
        assert broker.wait() == 0


def test_a_stop_answers_the_fetch_that_waits() -> None:

    with BrokerProcess("--memory", LISTEN) as broker, broker.connect() as peer:
        produce_acks_all(broker, "flights")
        wanted = FetchPartition(0, fetch_offset=1, partition_max_bytes=1000)
        request = FetchRequest(
            max_wait_ms=3_600_000, min_bytes=1, topics=[FetchTopic("flights", partitions=[wanted])]
        )
        peer.socket.sendall(request_frame("Fetch", 11, request))
        # Another connection is served after it, so the fetch waits by then.
        assert high_watermark(broker, "flights") == 1
        broker.signal()
        _, response = decode_response("Fetch", 11, peer.receive())
        (answer,) = response.responses[0].partitions
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert broker.wait() == 0


def test_a_second_signal_ends_at_once() -> None:
    with BrokerProcess("--memory", LISTEN) as broker, broker.connect() as peer:
        # A response that nobody reads keeps the first stop waiting.
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)

        asked = [DescribeConfigsResource(4, "1", None)] * 200
        request = request_frame("DescribeConfigs", 4, DescribeConfigsRequest(resources=asked))
        peer.socket.sendall(request * 20)
        peer.socket.recv(1)
        broker.signal()
        broker.wait_for_line("stopping: SIGTERM")
        broker.signal()
        assert broker.wait() == 128 + signal.SIGTERM
        assert any("at once" in line for line in broker.errors)


def test_acknowledged_records_are_there_after_stop_and_after_kill(tmp_path: Path) -> None:
    data = f"--data={tmp_path / 'data'}"
    with BrokerProcess(data, LISTEN) as broker:
        produce_acks_all(broker, "flights")
        broker.signal()
        assert broker.wait() == 0
    with BrokerProcess(data, LISTEN) as broker:
        assert high_watermark(broker, "flights") == 1
        produce_acks_all(broker, "flights")
        broker.signal(signal.SIGKILL)
        assert broker.wait() == -signal.SIGKILL
    with BrokerProcess(data, LISTEN) as broker:
        assert high_watermark(broker, "flights") == 2


def test_a_second_broker_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    data = f"--data={tmp_path / 'data'}"
    with BrokerProcess(data, LISTEN) as broker:
        second = serve_to_the_end(data, LISTEN)
        assert second.returncode == 1
        assert second.stdout == ""
        assert "cannot start" in second.stderr
        assert str(tmp_path / "data") in second.stderr
        assert "Traceback" not in second.stderr
        produce_acks_all(broker, "still-there")


def test_a_port_in_use_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = serve_to_the_end("--memory", "--listen", address)
    assert ended.returncode == 1
    assert f"cannot listen on {address}" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_closed_standard_streams_are_not_taken_for_files(tmp_path: Path) -> None:
    script = (
        f"exec {sys.executable} -m asyncbroker serve --data={tmp_path / 'data'} {LISTEN} 0<&- 2>&-"
    )
    with subprocess.Popen(["/bin/sh", "-c", script], stdout=subprocess.PIPE, text=True) as broker:
        assert broker.stdout is not None
        assert broker.stdout.readline().startswith("asyncbroker ready ")
        broker.send_signal(signal.SIGTERM)
        assert broker.wait(20) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--memory", "--data=x"), "exclude each other"),
        (("--listen=nonsense",), "is not HOST:PORT"),
        (("--listen=a:99999",), "is not HOST:PORT"),
        ((f"--listen={'a.' * 200}:0",), "is not HOST:PORT"),
        ((f"--listen={'a' * 70}.b:0",), "cannot listen on"),
        (("--data=",), "--data needs a directory"),
        (("--set=num.partitons=3",), "num.partitions"),
        (("--set=num.partitions",), "must be NAME=VALUE"),
        (("--set=num.partitions=many",), "num.partitions"),
        (("--config=/no/such/file",), "/no/such/file"),
        (("--advertise=a:1", "--advertise=b:2"), "more --advertise than --listen"),
    ],
)
def test_options_that_cannot_be_used_are_explained(options: tuple[str, ...], message: str) -> None:
    ended = serve_to_the_end(*options)
    assert ended.returncode in (1, 2)
    assert message in ended.stderr
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr


def test_each_listener_tells_clients_its_own_address() -> None:
    options = ("--memory", LISTEN, LISTEN, "--advertise=one.example:1", "--advertise=two.example:2")
    with BrokerProcess(*options, "--log-format=json") as broker:
        assert broker.address == ("one.example", 1)
        # The addresses that were bound stand in the log alone.
        line = broker.wait_for_line("serving on")
        told = [("one.example", 1), ("two.example", 2)]
        for bound, expected in zip(json.loads(line)["bound"], told, strict=True):
            host, _, port = bound.rpartition(":")
            broker.address = (host, int(port))
            with broker.connect() as peer:
                metadata = peer.ask("Metadata", 1, topics=[])
                assert [(one.host, one.port) for one in metadata.brokers] == [expected]


def alter_max_connections(peer: BlockingPeer, count: int) -> None:
    change = IncrementalAlterableConfig("max.connections", SET, str(count))
    resource = IncrementalAlterConfigsResource(BROKER, "", [change])
    (outcome,) = peer.ask("IncrementalAlterConfigs", 1, resources=[resource]).responses
    assert outcome.error_code == ErrorCode.NONE


def test_an_altered_limit_of_connections_holds_at_once() -> None:
    with (
        BrokerProcess(LISTEN, "--memory") as broker,
        broker.connect() as first,
        broker.connect() as second,
    ):
        for peer in (first, second):
            peer.ask("Metadata", 4, topics=[])
        alter_max_connections(first, 2)
        with broker.connect() as refused:
            assert refused.is_closed()
        # Those who are inside stay.
        second.ask("Metadata", 4, topics=[])
        alter_max_connections(second, 3)
        with broker.connect() as third:
            third.ask("Metadata", 4, topics=[])


def test_logs_are_json_when_asked_for() -> None:
    with BrokerProcess("--memory", LISTEN, "--log-format=json") as broker:
        with broker.connect() as peer:
            peer.socket.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert peer.is_closed()
        broker.signal()
        assert broker.wait() == 0
    lines = [json.loads(line) for line in broker.errors]
    (closed,) = [line for line in lines if line["message"].startswith("closed ")]
    assert closed["level"] == "WARNING"
    assert closed["peer"].startswith("127.0.0.1:")
    assert "a frame of" in closed["message"]


def test_the_portable_fallbacks_serve_too(tmp_path: Path) -> None:
    environment = {"ASYNCBROKER_PORTABLE": "1"}
    data = f"--data={tmp_path / 'data'}"
    with BrokerProcess(data, LISTEN, environment=environment) as broker:
        produce_acks_all(broker, "flights")
        assert high_watermark(broker, "flights") == 1
        broker.signal()
        assert broker.wait() == 0


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux which timers run")
def test_a_peer_that_is_gone_without_a_word_is_asked_for_by_the_system() -> None:
    """Half-open connections: TCP's keepalive finds them, beside our own idle timeout."""
    with BrokerProcess("--memory", LISTEN) as broker, broker.connect() as peer:
        peer.ask("ApiVersions", 2)
        ends = [
            f"{socket.inet_aton(host)[::-1].hex().upper()}:{port:04X}"
            for host, port in (peer.socket.getpeername(), peer.socket.getsockname())
        ]
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
        (timer,) = [row[5] for row in rows if row[1:3] == ends]
        # "02" is a timer of keepalive; without one there would be none, "00".
        assert timer.startswith("02:")
