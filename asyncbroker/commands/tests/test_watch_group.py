"""`asyncbroker watch group`: once, as lines, as JSON, on a terminal, and without its broker."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer

from asyncbroker.client.cluster import TopicPartition
from asyncbroker.testing import BrokerThread
from asyncbroker.tracing.group_table import plain_lines, trend
from asyncbroker.tracing.group_view import GroupView, MemberView, PartitionView, moves

SECONDS_MAX = 20


@contextmanager
def member(broker: BrokerThread, client_id: str = "reader") -> Iterator[Consumer]:
    """A member that has read and committed what is in t."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "client.id": client_id,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.subscribe(["t"])
    (message,) = consumer.consume(1, SECONDS_MAX)
    consumer.commit(message=message, asynchronous=False)
    try:
        yield consumer
    finally:
        consumer.close()


def start(
    broker: BrokerThread, *options: str, stdout: int = subprocess.PIPE
) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "asyncbroker", "watch", "group", "g"]
    command += ["-b", broker.bootstrap_servers, "--interval", "0.1", *options]
    return subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, text=True)


def test_once_shows_all_there_is_to_know() -> None:
    with BrokerThread() as broker:
        for value in ("one", "two", "three"):
            broker.topic("t").append(value)
        with member(broker, "a\x1b[31mb"):
            text, _ = start(broker, "--once").communicate(timeout=SECONDS_MAX)
            output, _ = start(broker, "--once", "--json").communicate(timeout=SECONDS_MAX)
        lines = text.splitlines()
        assert "group g  Stable  generation 1  protocol range  members 1  lag 2" in lines[0]
        assert lines[1:] == [
            "  a\\x1b[31mb (127.0.0.1): t 0",
            "  t-0  committed 1  end 3  lag 2  a\\x1b[31mb",
        ]
        seen = json.loads(output)
        assert (seen["generation"], seen["lag"]) == (1, 2)
        assert seen["members"][0]["partitions"] == ["t-0"]


def test_a_group_that_is_not_there_is_said() -> None:
    with BrokerThread() as broker:
        process = start(broker, "--once")
        _, errors = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 1
    assert "there is no group 'g'" in errors


def test_lines_tell_what_moves_and_that_the_broker_is_away() -> None:
    with BrokerThread() as broker:
        broker.topic("t").append("one")
        process = start(broker, "--timeout", "1")
        assert process.stdout is not None
        assert "group g  Dead" in process.stdout.readline()
        with member(broker):
            while "reader (127.0.0.1) has joined" not in process.stdout.readline():
                pass
        while "reader (127.0.0.1) is gone" not in process.stdout.readline():
            pass
        broker.stop()
        while "cannot connect" not in process.stdout.readline():
            pass
        broker.start()
        while "group g  Empty" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=SECONDS_MAX)
    assert (process.returncode, errors) == (0, "")


def test_on_a_terminal_it_is_drawn_anew_and_leaves_the_cursor() -> None:
    with BrokerThread() as broker:
        broker.topic("t").append("one")
        with member(broker):
            ours, theirs = pty.openpty()
            process = start(broker, stdout=theirs)
            os.close(theirs)
            seen = b""
            deadline = time.monotonic() + SECONDS_MAX
            while seen.count(b"group g") < 2 and time.monotonic() < deadline:
                seen += os.read(ours, 65536)
            process.terminate()
            while True:
                try:
                    seen += os.read(ours, 65536)
                except OSError:
                    break
            os.close(ours)
            _, errors = process.communicate(timeout=SECONDS_MAX)
    assert (process.returncode, errors) == (0, "")
    assert b"reader" in seen
    assert seen.rindex(b"\x1b[?25h") > seen.rindex(b"\x1b[?25l")


def test_moves_name_state_generation_members_and_partitions() -> None:
    old, new = (
        MemberView(name, None, name, "h", (TopicPartition("t", 0),)) for name in ("old", "new")
    )

    def view(state: str, generation: int, who: MemberView, committed: int) -> GroupView:
        row = PartitionView(TopicPartition("t", 0), committed, 10, who)
        return GroupView(0.0, "g", state, "range", generation, (who,), (row,))

    before, after = view("Stable", 1, old, 3), view("Empty", 2, new, 5)
    assert list(moves(before, after)) == [
        "Stable -> Empty",
        "generation 2",
        "new (h) has joined",
        "old (h) is gone",
        "t-0: old -> new",
    ]
    assert list(moves(before, before)) == []
    assert trend(before.partitions[0], after.partitions[0]) == "-2"
    assert plain_lines(after)[-1] == "  t-0  committed 5  end 10  lag 5  new"
