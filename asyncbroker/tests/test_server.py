"""Listeners, addresses, and who may come in."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from typing import Any

import pytest

from asyncbroker.connections import AcceptLimits
from asyncbroker.context import Address
from asyncbroker.listeners import Listener
from asyncbroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from asyncbroker.server import CannotListen, Server, advertised_address, open_sockets
from asyncbroker.tests.edge_harness import edge, on_both_loops, request_frame, stand_ins, until

HEARTBEAT = request_frame("Heartbeat", 0, HeartbeatRequest(group_id="g", member_id="m"))


def answer(broker: Any, context: Any, request: Any) -> HeartbeatResponse:
    return HeartbeatResponse()


def has_ipv6_loopback() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


needs_ipv6 = pytest.mark.skipif(not has_ipv6_loopback(), reason="no IPv6 on this machine")


def close_all(sockets: list[socket.socket]) -> None:
    for listening in sockets:
        listening.close()


# ---- addresses


def test_port_0_takes_a_free_one() -> None:
    sockets = open_sockets("127.0.0.1", 0, 10)
    assert sockets[0].getsockname()[1] > 0
    close_all(sockets)


@needs_ipv6
def test_localhost_listens_in_both_families_on_one_port() -> None:
    sockets = open_sockets("localhost", 0, 10)
    hosts = {listening.getsockname()[0] for listening in sockets}
    ports = {listening.getsockname()[1] for listening in sockets}
    assert hosts <= {"127.0.0.1", "::1"}
    assert len(ports) == 1
    close_all(sockets)


@pytest.mark.parametrize("host", ["", "::", "0.0.0.0"])
def test_an_empty_host_is_all_addresses(host: str) -> None:
    sockets = open_sockets(host, 0, 10)
    port = sockets[0].getsockname()[1]
    assert port > 0
    socket.create_connection(("127.0.0.1", port), timeout=5).close()
    if host != "0.0.0.0" and has_ipv6_loopback():
        socket.create_connection(("::1", port), timeout=5).close()
    close_all(sockets)


@pytest.mark.parametrize(
    ("listener", "advertised"),
    [
        (Listener("A", "127.0.0.1", 0), Address("127.0.0.1", 4242)),
        (Listener("A", "localhost", 0), Address("localhost", 4242)),
        (Listener("A", "", 0, "broker.example", None), Address("broker.example", 4242)),
        (Listener("A", "", 0, "broker.example", 9092), Address("broker.example", 9092)),
    ],
)
def test_clients_are_told_what_is_configured_or_what_was_bound(
    listener: Listener, advertised: Address
) -> None:
    assert advertised_address(listener, 4242) == advertised


def test_all_addresses_are_advertised_by_the_name_of_the_machine() -> None:
    host = advertised_address(Listener("A", "", 0), 4242).host
    assert host not in ("", "::", "0.0.0.0")
    assert socket.getaddrinfo(host, 4242)


def test_a_machine_without_a_resolvable_name_advertises_localhost(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "no-such-host.invalid")
    assert advertised_address(Listener("A", "", 0), 4242) == Address("localhost", 4242)
    assert "advertised.listeners" in caplog.text


def test_an_address_of_six_is_written_in_brackets() -> None:
    assert str(Address("::1", 9092)) == "[::1]:9092"


def test_a_port_in_use_is_told_and_nothing_stays_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        listeners = [Listener("A", "127.0.0.1", 0), Listener("B", "127.0.0.1", port)]
        server = Server(None, listeners, backlog=10)  # type: ignore[arg-type]
        with pytest.raises(CannotListen, match=f"cannot listen on 127.0.0.1:{port}: .*in use"):
            server.bind()
    assert server.addresses == []


# ---- limits


@on_both_loops
async def test_more_than_max_connections_are_closed_without_reading(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limits = AcceptLimits(connections_max=2, per_host_max=1000, per_host_overrides={})
    async with edge(stand_ins(Heartbeat=answer), accept_limits=limits) as running:
        inside = [await running.connect() for _ in range(2)]
        await until(lambda: len(running.connections) == 2)
        outside = await running.connect()
        assert await outside.is_closed()
        assert running.metrics.connections_refused == 1
        inside[0].send(HEARTBEAT)
        await inside[0].receive()
        inside[1].close()
        await until(lambda: len(running.connections) == 1)
        again = await running.connect()
        again.send(HEARTBEAT)
        await again.receive()
    assert "refused a connection from 127.0.0.1: max.connections=2 are open" in caplog.text


@on_both_loops
async def test_connections_leave_file_descriptors_for_logs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Facts 4.3: a flood of idle connections must not keep segments from being opened."""
    limits = AcceptLimits(1000, 1000, {}, descriptors_max=1)
    async with edge(stand_ins(Heartbeat=answer), accept_limits=limits) as running:
        await running.connect()
        await until(lambda: len(running.connections) == 1)
        assert await (await running.connect()).is_closed()
    assert "1 are open, and logs need the other file descriptors" in caplog.text


@on_both_loops
async def test_an_address_may_have_its_own_limit() -> None:
    limits = AcceptLimits(1000, per_host_max=5, per_host_overrides={"127.0.0.1": 1})
    async with edge(stand_ins(Heartbeat=answer), accept_limits=limits) as running:
        await running.connect()
        await until(lambda: len(running.connections) == 1)
        assert await (await running.connect()).is_closed()
        assert running.connections.refusal("10.0.0.1") is None


@on_both_loops
async def test_a_flood_of_connections_leaves_those_inside_alone() -> None:
    limits = AcceptLimits(connections_max=5, per_host_max=1000, per_host_overrides={})
    async with edge(stand_ins(Heartbeat=answer), accept_limits=limits) as running:
        inside = await running.connect()
        for _ in range(10):
            flood = [await running.connect() for _ in range(30)]
            inside.send(HEARTBEAT)
            await inside.receive()
            for peer in flood:
                peer.reset()
        assert running.metrics.connections_refused >= 250


@on_both_loops
async def test_accepting_survives_a_lack_of_file_descriptors(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("asyncbroker.server.ACCEPT_PAUSE_SECONDS", 0.0)
    loop = asyncio.get_running_loop()
    accept = loop.sock_accept
    failures = [OSError(errno.EMFILE, "Too many open files"), ConnectionAbortedError()]

    class Failing:
        """The loop, but for some accepts."""

        def __getattr__(self, name: str) -> Any:
            return getattr(loop, name)

        async def sock_accept(self, listening: socket.socket) -> Any:
            if failures:
                raise failures.pop()
            return await accept(listening)

    monkeypatch.setattr("asyncbroker.server.asyncio.get_running_loop", Failing)
    async with edge(stand_ins(Heartbeat=answer)) as running:
        await until(lambda: not failures)
        monkeypatch.undo()
        peer = await running.connect()
        peer.send(HEARTBEAT)
        await peer.receive()
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "Too many open files" in caplog.text
