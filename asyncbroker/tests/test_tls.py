"""Listeners with TLS: who gets in, who does not, and what a slow or confused peer costs."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from asyncbroker.client.connection import Address
from asyncbroker.client.security import security_of
from asyncbroker.listeners import Listener, TlsRules
from asyncbroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from asyncbroker.server import CannotListen, Server
from asyncbroker.settings import InvalidSetting
from asyncbroker.tests.edge_harness import (
    Edge,
    Peer,
    edge,
    on_both_loops,
    patiently,
    request_frame,
    stand_ins,
    until,
)
from asyncbroker.tests.tls_files import TlsFiles, make_tls_files
from asyncbroker.tls import server_context

HEARTBEAT = HeartbeatRequest("g", 7, "m")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return make_tls_files(tmp_path_factory.mktemp("tls"))


def heartbeat(_broker: Any, _context: Any, request: HeartbeatRequest) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=request.generation_id)


@asynccontextmanager
async def serving(rules: TlsRules) -> AsyncIterator[Edge]:
    async with edge(stand_ins(Heartbeat=heartbeat), tls=rules) as running:
        yield running


def trusting(files: TlsFiles, certificate: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=files.authority)
    if certificate is not None:
        context.load_cert_chain(certificate)
    return context


async def connect(running: Edge, context: ssl.SSLContext) -> Peer:
    reader, writer = await asyncio.open_connection(
        *running.address, ssl=context, server_hostname="localhost"
    )
    peer = Peer(reader, writer)
    running.peers.append(peer)
    return peer


async def is_served(peer: Peer, count: int = 1) -> bool:
    client_id = "c" * 20_000
    peer.send(count * request_frame("Heartbeat", 0, HEARTBEAT, client_id=client_id))
    for _ in range(count):
        _, response = await peer.receive_response("Heartbeat", 0)
        assert response.error_code == 7
    return True


@on_both_loops
async def test_requests_go_through_tls(files: TlsFiles) -> None:
    async with serving(TlsRules(files.server)) as running:
        peer = await connect(running, trusting(files))
        assert await is_served(peer, 30)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_only_versions_that_are_enabled(files: TlsFiles, version: str) -> None:
    rules = TlsRules(files.server, versions=(version,))
    async with serving(rules) as running:
        for tried in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = trusting(files)
            context.minimum_version = context.maximum_version = tried
            if tried.name == version.replace(".", "_"):
                assert await is_served(await connect(running, context))
            else:
                with pytest.raises((ssl.SSLError, ConnectionError)):
                    await connect(running, context)


@on_both_loops
async def test_a_required_certificate_must_be_of_the_authority(files: TlsFiles) -> None:
    rules = TlsRules(files.server, None, files.authority, "required")
    async with serving(rules) as running:
        assert await is_served(await connect(running, trusting(files, files.client)))
        for certificate in (None, files.stranger):
            # In TLS 1.3 a client hears of it only after its own handshake.
            try:
                peer = await connect(running, trusting(files, certificate))
                peer.send(request_frame("Heartbeat", 0, HEARTBEAT))
                assert await peer.is_closed()
            except (ssl.SSLError, ConnectionError):
                pass
        await until(lambda: len(running.connections) == 1)


def texts_of(files: TlsFiles, join: Callable[[list[str]], str]) -> dict[str, str]:
    """What is in the files of a client, as its properties."""
    key, begin, chain = Path(files.client).read_text().partition("-----BEGIN CERTIFICATE")
    return {
        "ssl.truststore.certificates": join(Path(files.authority).read_text().splitlines()),
        "ssl.keystore.key": join(key.splitlines()),
        "ssl.keystore.certificate.chain": join((begin + chain).splitlines()),
    }


@pytest.mark.parametrize("join", ["\n".join, " ".join], ids=["in lines", "in one line"])
async def test_our_client_takes_certificates_and_key_as_text(
    files: TlsFiles, join: Callable[[list[str]], str]
) -> None:
    properties = {"security.protocol": "SSL", **texts_of(files, join)}
    rules = TlsRules(files.server, None, files.authority, "required")
    async with serving(rules) as running:

        def ask() -> bytes:
            with security_of(properties).connect(Address(*running.address), 30) as connected:
                connected.sendall(request_frame("Heartbeat", 0, HEARTBEAT))
                return connected.makefile("rb").read(10)

        answer = await asyncio.to_thread(ask)
        assert answer[-2:] == HEARTBEAT.generation_id.to_bytes(2, "big")


async def test_a_requested_certificate_may_be_left_out(files: TlsFiles) -> None:
    rules = TlsRules(files.server, None, files.authority, "requested")
    async with serving(rules) as running:
        for certificate in (None, files.client):
            assert await is_served(await connect(running, trusting(files, certificate)))


@on_both_loops
async def test_a_client_in_plaintext_is_closed(files: TlsFiles) -> None:
    async with serving(TlsRules(files.server)) as running:
        peer = await running.connect()
        peer.send(request_frame("Heartbeat", 0, HEARTBEAT))
        # A TLS alert may come first.
        await patiently(peer.reader.read())
        await until(lambda: not len(running.connections))


async def test_a_client_in_tls_is_closed_by_a_listener_without_and_the_log_says_so(
    files: TlsFiles, caplog: pytest.LogCaptureFixture
) -> None:
    async with edge(stand_ins(Heartbeat=heartbeat)) as running:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await connect(running, trusting(files))
    assert "speaks TLS" in caplog.text


@on_both_loops
async def test_a_handshake_that_takes_too_long_is_given_up(files: TlsFiles) -> None:
    async with edge(
        stand_ins(Heartbeat=heartbeat), tls=TlsRules(files.server), handshake_seconds_max=0.1
    ) as running:
        peer = await running.connect()
        assert await peer.is_closed()
        await until(lambda: not len(running.connections))


@on_both_loops
async def test_a_stop_does_not_wait_for_a_handshake(files: TlsFiles) -> None:
    async with serving(TlsRules(files.server)) as running:
        await running.connect()
        await until(lambda: len(running.connections) == 1)
    assert not len(running.connections)


async def test_a_client_that_ends_tls_is_served_what_it_asked_before(
    files: TlsFiles, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with serving(TlsRules(files.server)) as running:
        peer = await connect(running, trusting(files))
        assert await is_served(peer, 3)
        peer.close()
        await until(lambda: not len(running.connections))
    assert not caplog.records


async def test_a_large_answer_to_a_slow_client(files: TlsFiles) -> None:
    def large(_broker: Any, _context: Any, _request: Any) -> HeartbeatResponse:
        return HeartbeatResponse(error_code=1)

    async with edge(stand_ins(Heartbeat=large), tls=TlsRules(files.server)) as running:
        peer = await connect(running, trusting(files))
        count = 20_000
        for _ in range(10):
            peer.send(request_frame("Heartbeat", 0, HEARTBEAT) * (count // 10))
            await asyncio.sleep(0)
        for _ in range(count):
            await peer.receive()


@pytest.mark.parametrize("what", ["missing", "no key", "no pem", "encrypted"])
def test_files_that_cannot_be_used_are_told_by_their_setting(
    what: str, files: TlsFiles, tmp_path: Path
) -> None:
    path = tmp_path / "store.pem"
    if what == "no key":
        path.write_text(Path(files.authority).read_text())
    elif what == "no pem":
        path.write_bytes(bytes(100))
    elif what == "encrypted":
        key = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"
        path.write_text(key + Path(files.authority).read_text())
    with pytest.raises(InvalidSetting, match=r"ssl\.keystore\.location="):
        server_context(TlsRules(str(path)))
    with pytest.raises(InvalidSetting, match=r"ssl\.truststore\.location="):
        server_context(TlsRules(files.server, None, str(tmp_path / "none"), "required"))


async def test_a_broker_does_not_start_without_its_key(tmp_path: Path) -> None:
    async with edge(stand_ins(Heartbeat=heartbeat)) as running:
        good = Listener("A", "127.0.0.1", 0)
        bad = Listener("B", "127.0.0.1", 0, tls=TlsRules(str(tmp_path / "none")))
        server = Server(running.connections, [good, bad], backlog=1)
        with pytest.raises(CannotListen, match=r"listener B: ssl\.keystore\.location"):
            server.bind()
        assert server.addresses == []


def test_rules_do_not_show_the_keys_password() -> None:
    assert "secret" not in repr(replace(TlsRules("a"), key_password="secret"))
