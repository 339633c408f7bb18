"""Arguments of no use are told by name, by either kind of broker, and change nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from asyncbroker.testing import Broker, BrokerThread

WRONG: list[tuple[Callable[[Any], object], type[Exception], str]] = [
    (lambda b: b.restore(None), TypeError, "snapshot=None is not Snapshot"),
    (lambda b: b.topic(None), TypeError, "name=None is not str"),
    (lambda b: b.group(b"g"), TypeError, "group_id=b'g' is not str"),
    (lambda b: b.take_down("1"), TypeError, "node_id='1' is not int"),
    (lambda b: b.restart(down_seconds=-1), ValueError, "down_seconds=-1: it is 0 to 86400"),
    (lambda b: b.restart(down_seconds="1"), TypeError, "down_seconds='1' is not float"),
    (
        lambda b: b.wait_for(until=lambda: True, timeout=float("nan")),
        ValueError,
        "timeout=nan: it is 0 to",
    ),
    (lambda b: b.wait_for(until=True), TypeError, "until=True is not Callable or None"),
    (lambda b: b.clock.set("x"), TypeError, "moment='x' is not datetime"),
    (lambda b: b.clock.advance(hours="3"), TypeError, "hours='3' is not float"),
    (lambda b: b.topic("t").append(3), TypeError, "value=3 is not bytes, str or None"),
    (lambda b: b.topic("t").append("x", timestamp=2**70), ValueError, "it is 0 to 92233"),
    (lambda b: b.topic("t").append("x", timestamp=-5), ValueError, "timestamp=-5: it is 0 to"),
    (
        lambda b: b.topic("t").append("x", headers=[("h", "7")]),
        TypeError,
        r"headers=\[\('h', '7'\)\] is not some of \(str, bytes or None\)",
    ),
    (lambda b: b.topic("t").append("x", headers={"h": b"7"}), TypeError, "headers={'h': b'7'}"),
    (lambda b: b.topic("t").create("2"), TypeError, "partitions='2' is not int or None"),
    (lambda b: b.scenarios.leader_moves(b.topic("t")), TypeError, "topic=.* is not str"),
    (lambda b: b.faults.on(version="9"), TypeError, "version='9' is not int, some of int or"),
    (lambda b: b.requests.of("Produced"), ValueError, "no API Produced; did you mean Produce"),
    (lambda b: b.faults.on(nth="3"), TypeError, "nth='3' is not int"),
    (lambda b: b.faults.on().error("X"), TypeError, "code='X' is not ErrorCode or int"),
]


@pytest.mark.parametrize(("call", "kind", "message"), WRONG, ids=[each[2] for each in WRONG])
def test_a_wrong_argument_is_told_by_name(
    call: Callable[[Any], object], kind: type[Exception], message: str
) -> None:
    with BrokerThread() as broker:
        port = broker.bootstrap_servers
        for face in (broker, broker._inner):
            with pytest.raises(kind, match=message):
                call(face)
        assert (broker.topics, broker.bootstrap_servers, len(broker.faults)) == ([], port, 0)


@pytest.mark.parametrize("kind", [Broker, BrokerThread])
def test_a_wrong_argument_of_the_broker_itself_is_told_by_name(kind: Any) -> None:
    with pytest.raises(TypeError, match="nodes='3' is not int"):
        kind(nodes="3")
    with pytest.raises(TypeError, match="directory=3 is not str, PathLike or None"):
        kind(directory=3)
    with pytest.raises(TypeError, match="trace=None is not bool, str, Callable or Observer"):
        kind(trace=None)


def test_what_can_be_gone_through_only_once_is_left_for_the_call() -> None:
    with BrokerThread() as broker:
        headers = ((name, b"1") for name in "ab")
        assert broker.topic("t").append("x", headers=headers).headers == (("a", b"1"), ("b", b"1"))
        assert broker.faults.on(version=range(2**62)).delay(0).fired == 0
