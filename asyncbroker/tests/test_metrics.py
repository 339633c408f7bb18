"""Metrics: each number moves when it should; the text is Prometheus'; odd peers harm nobody."""

from __future__ import annotations

import asyncio
import re
import socket
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from asyncbroker.broker import Broker
from asyncbroker.log.files import RealFiles
from asyncbroker.metrics import Histogram
from asyncbroker.metrics_export import FAMILIES, PREFIX, collect, render
from asyncbroker.metrics_requests import RequestMetrics
from asyncbroker.metrics_server import HEAD_BYTES_MAX, MetricsServer
from asyncbroker.peer_watch import TooSlow
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.fetch import FetchPartition, FetchTopic
from asyncbroker.protocol.messages.metadata import MetadataRequestTopic
from asyncbroker.protocol.messages.produce import PartitionProduceData, TopicProduceData
from asyncbroker.server import CannotListen
from asyncbroker.tests.broker_process import BrokerProcess
from asyncbroker.tests.data_path_harness import UnderTest, batch_of, under_test
from asyncbroker.tests.test_serve_process import serve_to_the_end

ROOT = Path(__file__).parents[2]
Values = dict[str, float]


def values_of(text: str) -> Values:
    """The samples of a scrape, by name and labels as they are written."""
    found: Values = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            key = f"{sample.name}{{{labels}}}" if labels else sample.name
            found[key.removeprefix(PREFIX)] = sample.value
    return found


async def figures(broker: Broker) -> Values:
    collected = await collect(broker, RequestMetrics(), Histogram())
    return values_of(render(collected).decode())


@asynccontextmanager
async def served(test: UnderTest) -> AsyncIterator[MetricsServer]:
    server = MetricsServer("127.0.0.1", 0)
    server.bind(test.broker)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def exchange(server: MetricsServer, data: bytes, *, is_end: bool = False) -> bytes:
    reader, writer = await asyncio.open_connection(*server.addresses[0])
    try:
        writer.write(data)
        if is_end:
            writer.write_eof()
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        match = re.search(rb"Content-Length: (\d+)", answer)
        assert match is not None
        return answer + (
            b"" if data.startswith(b"HEAD") else await reader.readexactly(int(match[1]))
        )
    finally:
        writer.close()


def test_the_documentation_lists_every_metric_as_it_is() -> None:
    rows = [
        f"| `{PREFIX}{each.name}` | {each.kind} | {', '.join(each.labels)} | {each.help} |"
        for each in FAMILIES
    ]
    text = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    documented = [line for line in text.splitlines() if line.startswith(f"| `{PREFIX}")]
    assert documented == rows
    # In the alerts, too.
    known = {PREFIX + each.name for each in FAMILIES}
    assert not {name.removesuffix("_bucket") for name in re.findall(rf"{PREFIX}\w+", text)} - known


def test_names_follow_the_conventions() -> None:
    assert len({each.name for each in FAMILIES}) == len(FAMILIES)
    for each in FAMILIES:
        assert each.name.endswith("_total") == (each.kind == "counter"), each


def test_a_histogram_counts_up_to_and_with_its_bounds() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 3.0):
        histogram.observe(value)
    assert (histogram.counts, histogram.total) == ([2, 1, 1], 6.0)
    with pytest.raises(ZeroDivisionError):
        histogram.timed(lambda: 1 / 0)()
    assert histogram.counts == [3, 1, 1]


async def test_every_family_is_shown_with_a_value_or_waits_for_its_first_label() -> None:
    async with under_test() as test:
        test.broker.storage.metrics.append_seconds = Histogram()
        collected = await collect(test.broker, RequestMetrics(), Histogram())
        assert set(collected) == {each.name for each in FAMILIES}


async def test_connections_that_were_closed_are_told_by_their_reason() -> None:
    async with under_test() as test:
        test.broker.metrics.connections_closed[TooSlow.IDLE] += 2
        values = await figures(test.broker)
        closed = {key: value for key, value in values.items() if "connections_closed" in key}
        assert closed.pop("connections_closed_total{reason=idle}") == 2
        assert closed == {
            f"connections_closed_total{{reason={reason}}}": 0
            for reason in ("slow_reader", "unfinished", "left")
        }


async def test_traffic_is_counted_by_topic_and_survives_the_topic_in_the_sum() -> None:
    async with under_test() as test:
        topic = await test.topic(partitions=2)
        batch = batch_of(3)
        await test.produce(batch, index=1)
        await test.fetch(index=1)
        before = await figures(test.broker)
        for name, value in (("bytes_in", len(batch)), ("records_in", 3), ("bytes_out", len(batch))):
            assert before[f"{name}_total"] == value
            assert before[f"topic_{name}_total{{topic=flights}}"] == value
        assert before["topic_log_bytes{topic=flights}"] == before["log_bytes"] == len(batch)
        assert (before["topics"], before["partitions"], before["log_segments"]) == (1, 2, 2)
        await test.broker.topics.delete(topic)
        after = await figures(test.broker)
        assert after["bytes_in_total"] == len(batch)
        assert "topic_bytes_in_total{topic=flights}" not in after


async def test_topics_beyond_the_limit_are_in_the_totals_only() -> None:
    async with under_test(asyncbroker_metrics_topics_max="1") as test:
        for name in ("flights", "other"):
            await test.topic(name)
            await test.produce(batch_of(1), topic=name)
        values = await figures(test.broker)
        assert sum(key.startswith("topic_records_in_total") for key in values) == 1
        assert values["records_in_total"] == 2


async def test_a_commit_round_and_its_fsync_are_measured(tmp_path: Path) -> None:
    async with under_test(files=RealFiles(), log_dirs=str(tmp_path)) as test:
        test.broker.storage.metrics.append_seconds = Histogram()
        await test.topic()
        await test.produce(batch_of(1))
        assert (await figures(test.broker))["log_undurable_partitions"] == 1
        await test.produce(batch_of(1), acks=-1)
        values = await figures(test.broker)
        assert values["append_seconds_count"] == 2
        assert values["fsync_seconds_count"] == values["commit_round_waiters_count"] == 1
        assert values["commit_round_waiters_sum"] == 1
        assert values["log_undurable_partitions"] == 0


async def test_appends_in_a_thread_are_measured_as_those_on_the_loop(tmp_path: Path) -> None:
    async with under_test(
        files=RealFiles(), log_dirs=str(tmp_path), asyncbroker_append_inline_max_bytes="200"
    ) as test:
        seconds = test.broker.storage.metrics.append_seconds = Histogram()
        await test.topic()
        for count in (1, 100, 1):
            await test.produce(batch_of(count))
        assert sum(seconds.counts) == 3
        assert seconds.total > 0


async def test_rounds_of_the_journal_are_counted_and_what_they_use_of_it(tmp_path: Path) -> None:
    async with under_test(files=RealFiles(), log_dirs=str(tmp_path)) as test:
        before = await figures(test.broker)
        assert (before["journal_rounds_total"], before["journal_used_bytes"]) == (0, 0)
        await test.topic()
        while (values := await figures(test.broker))["journal_rounds_total"] == 0:
            # The first rounds go past it, while it is made.
            await test.produce(batch_of(1), acks=-1)
        assert values["journal_used_bytes"] > 0
        whole = before["journal_free_bytes"]
        assert values["journal_used_bytes"] + values["journal_free_bytes"] == whole


async def test_an_offline_directory_is_told() -> None:
    async with under_test() as test:
        await test.topic(partitions=2)
        assert (await figures(test.broker))["partitions_offline"] == 0
        test.broker.storage.fail(OSError(5, "made up"))
        values = await figures(test.broker)
        assert (values["log_directory_offline"], values["partitions_offline"]) == (1, 2)
        test.broker.storage.error = None


async def test_what_retention_deletes_is_counted() -> None:
    async with under_test() as test:
        topic = await test.topic()
        await test.produce(batch_of(3))
        partition = topic.partitions[0]
        partition.log.roll(test.clock.wall_ms())
        size = partition.log.size
        await test.broker.log_starts.advance([(partition, 3)])
        values = await figures(test.broker)
        assert values["log_deleted_segments_total"] == 1
        assert (values["log_deleted_bytes_total"], values["log_bytes"]) == (size, 0)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /metrics?x=1 HTTP/1.0\r\n\r\n", b"200 OK"),
        (b"HEAD /metrics HTTP/1.1\r\n\r\n", b"200 OK"),
        (b"GET / HTTP/1.1\r\n\r\n", b"404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\n\r\n" + bytes(100_000), b"405 Method Not Allowed"),
        (b"\x00\x01\xff\r\n\r\n", b"400 Bad Request"),
        (b"GET /metrics\r\n\r\n", b"400 Bad Request"),
        (b"GET /" + b"x" * (3 * HEAD_BYTES_MAX), b"431 Request Header Fields Too Large"),
    ],
)
async def test_odd_requests_are_answered(request_bytes: bytes, status: bytes) -> None:
    async with under_test() as test, served(test) as server:
        answer = await exchange(server, request_bytes)
        assert answer.startswith(b"HTTP/1.1 " + status)


async def test_half_a_request_keeps_nobody_waiting() -> None:
    async with under_test() as test, served(test) as server:
        reader, writer = await asyncio.open_connection(*server.addresses[0])
        writer.write(b"GET /metr")
        whole = await exchange(server, b"GET /metrics HTTP/1.1\r\n\r\n")
        assert values_of(whole.partition(b"\r\n\r\n")[2].decode())["connections"] == 0
        writer.write_eof()
        # An end, or a reset.
        with suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()


async def test_a_port_that_is_taken_is_told() -> None:
    async with under_test() as test:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            server = MetricsServer("127.0.0.1", taken.getsockname()[1])
            with pytest.raises(CannotListen, match=r"--metrics.*in use"):
                server.bind(test.broker)
        await server.stop()


@pytest.mark.parametrize(
    ("option", "message"),
    [("--metrics=nonsense", "is not HOST:PORT"), ("--metrics=127.0.0.1:99999", "HOST:PORT")],
)
def test_a_wrong_address_is_refused(option: str, message: str) -> None:
    done = serve_to_the_end("--memory", option)
    assert done.returncode != 0
    assert message in done.stderr


def test_a_process_under_load_is_scraped(tmp_path: Path) -> None:
    options = ("--listen=127.0.0.1:0", f"--data={tmp_path}", "--metrics=0")
    with BrokerProcess(*options) as process:
        line = process.wait_for_line("metrics at ")
        url = line.split("metrics at ")[1].split(",")[0].strip()

        def scrape() -> Values:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return values_of(answer.read().decode())

        with process.connect() as peer:
            peer.ask("Metadata", 4, topics=[MetadataRequestTopic(name="t")])
            for _ in range(50):
                data = TopicProduceData("t", [PartitionProduceData(0, bytes(batch_of(1)))])
                peer.ask("Produce", 7, acks=-1, timeout_ms=10_000, topic_data=[data])
                scrape()
            wrong = TopicProduceData("t", [PartitionProduceData(9, bytes(batch_of(1)))])
            peer.ask("Produce", 7, acks=1, timeout_ms=10_000, topic_data=[wrong])
            wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
            peer.ask(
                "Fetch",
                11,
                replica_id=-1,
                max_wait_ms=0,
                min_bytes=1,
                max_bytes=1 << 20,
                topics=[FetchTopic(topic="t", partitions=[wanted])],
            )
            values = scrape()
    assert values["requests_total{api=Produce}"] == 51
    assert values["request_seconds_count{api=Produce}"] == 51
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name
    assert values[f"request_errors_total{{api=Produce,error={error}}}"] == 1
    assert values["records_in_total"] == 50
    assert values["bytes_out_total"] == values["bytes_in_total"] > 0
    assert values["append_seconds_count"] == values["fsync_seconds_count"] == 50
    assert values["connections"] == 1
    assert values["start_seconds"] > 0
    assert values["process_resident_memory_bytes"] > 0
    assert values["process_open_fds"] > 0
