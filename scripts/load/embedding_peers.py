"""What tests feel of a broker, ours beside others; see scripts/bench_embedding --compare.

Each sample is taken in a process of its own: from the call (or exec) to the first answered
ApiVersions, on to the first record produced and consumed by librdkafka, then a rebalance from one
member to two, the memory at the first answer, and the stop. Rounds go over all brokers in turn, so
that a busy moment of the machine meets all of them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from brokers import free_ports, memory_mb, prepare_kafka, process
from start import ask_api_versions, environment

OURS, OURS_PROCESS = "asyncbroker embedded", "asyncbroker as a process"
MOCK, KAFKA = "librdkafka's mock", "Apache Kafka"
CLASSPATH = "ASYNCBROKER_KAFKA_CLASSPATH"
SECONDS_MAX = 60.0
FIELDS = ("answer_ms", "record_ms", "rebalance_ms", "stop_ms", "memory_mb")

# Not too long for a broker that minds the least session timeout of Kafka's defaults.
MEMBER = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 100, "auto.offset.reset": "earliest"}

Started = tuple[float, str, int]
"""When its clock started, the address, and the process to measure."""


@contextlib.contextmanager
def embedded() -> Iterator[Started]:
    from asyncbroker.testing.thread import BrokerThread

    began = time.perf_counter()
    with BrokerThread() as broker:
        yield began, broker.bootstrap_servers, os.getpid()


@contextlib.contextmanager
def mock() -> Iterator[Started]:
    from confluent_kafka import Producer

    began = time.perf_counter()
    producer = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": ""})
    (node,) = producer.list_topics(timeout=SECONDS_MAX).brokers.values()
    yield began, f"{node.host}:{node.port}", os.getpid()
    del producer


@contextlib.contextmanager
def started(command: list[str], port: int) -> Iterator[Started]:
    began = time.perf_counter()
    with process(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        yield began, f"127.0.0.1:{port}", child.pid


def command(words: list[str]) -> contextlib.AbstractContextManager[Started]:
    (port,) = free_ports(1)
    return started([word.replace("{port}", str(port)) for word in words], port)


def ours_process() -> contextlib.AbstractContextManager[Started]:
    serve = ["serve", "--memory", "--listen", "127.0.0.1:{port}"]
    delay = ["--set", "group.initial.rebalance.delay.ms=0"]
    return command([sys.executable, "-m", "asyncbroker", *serve, *delay])


@contextlib.contextmanager
def kafka() -> Iterator[Started]:
    """With its storage formatted before: that is twice as long again, but need not be done anew."""
    classpath = Path(os.environ[CLASSPATH]).read_text().strip()
    settings = ("offsets.topic.num.partitions=1", "group.initial.rebalance.delay.ms=0")
    with tempfile.TemporaryDirectory() as directory:
        port, run = prepare_kafka(Path(directory, "data"), classpath, settings)
        with started(["java", "-Xmx512m", *run], port) as kafka:
            yield kafka


def starter(kind: str) -> Callable[[], contextlib.AbstractContextManager[Started]]:
    own = {OURS: embedded, OURS_PROCESS: ours_process, MOCK: mock, KAFKA: kafka}
    return own[kind] if kind in own else lambda: command(kind.split())


def sample(kind: str) -> dict[str, float]:
    """One life of a broker, in this process."""
    import confluent_kafka.admin

    if kind == OURS:
        import asyncbroker.testing.thread  # noqa: F401
    before_mb = memory_mb(os.getpid())
    found: dict[str, float] = {}
    with starter(kind)() as (began, address, pid):
        ask_api_versions(int(address.rpartition(":")[2]), time.monotonic() + SECONDS_MAX)
        found["answer_ms"] = milliseconds_since(began)
        found["memory_mb"] = memory_mb(pid) - (before_mb if pid == os.getpid() else 0.0)
        if kind != MOCK:
            # The mock knows no CreateTopics, and has four partitions for who asks for a topic.
            admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": address})
            for done in admin.create_topics([confluent_kafka.admin.NewTopic("t", 2, 1)]).values():
                done.result(SECONDS_MAX)
        found["record_ms"] = first_record(address, began)
        found["rebalance_ms"] = rebalance(address)
        stopping = time.perf_counter()
    found["stop_ms"] = milliseconds_since(stopping)
    return found


def first_record(address: str, began: float) -> float:
    """Milliseconds until it was produced and consumed."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    producer = Producer({"bootstrap.servers": address, "linger.ms": 0})
    producer.produce("t", b"x", partition=0)
    producer.flush(SECONDS_MAX)
    consumer = Consumer({"bootstrap.servers": address, "group.id": "alone"})
    consumer.assign([TopicPartition("t", 0, 0)])
    message = consumer.poll(SECONDS_MAX)
    assert message is not None
    assert message.error() is None, message.error()
    taken = milliseconds_since(began)
    consumer.close()
    return taken


def rebalance(address: str) -> float:
    """From the arrival of a second member until both have partitions."""
    from confluent_kafka import Consumer

    members = [
        Consumer({"bootstrap.servers": address, "group.id": "g", **MEMBER}) for _ in range(2)
    ]
    members[0].subscribe(["t"])
    deadline = time.monotonic() + SECONDS_MAX
    while not members[0].assignment() and time.monotonic() < deadline:
        members[0].poll(0.005)
    began = time.perf_counter()
    members[1].subscribe(["t"])
    while not members[1].assignment() or not members[0].assignment():
        if time.monotonic() > deadline:
            raise RuntimeError("two members never came to share")
        for member in members:
            member.poll(0.005)
    taken = milliseconds_since(began)
    for member in members:
        member.close()
    return taken


def milliseconds_since(began: float) -> float:
    return (time.perf_counter() - began) * 1000


def table(samples: dict[str, list[dict[str, float]]]) -> str:
    """In Markdown: medians."""
    lines = [
        "| | first answer | first record produced and consumed | rebalance to two members | stop "
        "| memory |",
        "|---|---|---|---|---|---|",
    ]
    for name, taken in samples.items():
        middle = {field: statistics.median(each[field] for each in taken) for field in FIELDS}
        times = " | ".join(f"{middle[field]:,.0f} ms" for field in FIELDS[:-1])
        lines.append(f"| {name} | {times} | {middle['memory_mb']:.0f} MB |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND with {port}")
    parser.add_argument("--sample", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.sample:
        print(json.dumps(sample(arguments.sample)))
        return
    kinds = {name: name for name in (OURS, OURS_PROCESS, MOCK)}
    if CLASSPATH in os.environ:
        kinds[KAFKA] = KAFKA
    kinds |= dict(peer.split("=", 1) for peer in arguments.peer)
    samples: dict[str, list[dict[str, float]]] = {name: [] for name in kinds}
    with tempfile.TemporaryDirectory() as cache:
        env = environment(cache)
        for number in range(-1, arguments.rounds):
            # The first round only has modules compiled and files read.
            for name, kind in kinds.items():
                found = sample_elsewhere(kind, env)
                if number >= 0:
                    samples[name].append(found)
            print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
    print(table(samples))


def sample_elsewhere(kind: str, env: dict[str, str]) -> dict[str, float]:
    """In a process of its own; what librdkafka says of brokers that end is shown if it fails."""
    run = [sys.executable, __file__, "--sample", kind]
    result = subprocess.run(run, capture_output=True, text=True, check=False, env=env)
    if result.returncode:
        raise SystemExit(f"{kind}: {result.stderr}")
    found: dict[str, float] = json.loads(result.stdout)
    return found


if __name__ == "__main__":
    main()
