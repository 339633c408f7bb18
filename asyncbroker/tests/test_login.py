"""Logging in: the ways in, and everything that must not be one."""

from __future__ import annotations

import asyncio
import logging
from struct import pack

import pytest

from asyncbroker.handlers import HANDLERS
from asyncbroker.listeners import SaslRules
from asyncbroker.login import Login, State
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.api_versions import ApiVersionsRequest
from asyncbroker.protocol.messages.metadata import MetadataRequest
from asyncbroker.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from asyncbroker.protocol.messages.sasl_handshake import SaslHandshakeRequest
from asyncbroker.protocol.scram import ScramClient
from asyncbroker.tests.edge_harness import edge, request_frame, until
from asyncbroker.tests.login_harness import (
    FAILED,
    HEARTBEAT,
    MECHANISMS,
    PLAIN,
    SHA_256,
    SHA_512,
    Guarded,
    guarded,
)

mechanisms = pytest.mark.parametrize("mechanism", MECHANISMS)


# ---- the ways in


@mechanisms
async def test_a_user_logs_in_and_is_served(mechanism: str) -> None:
    async with guarded() as test:
        client = await test.connect()
        versions = await client.ask("ApiVersions", 0, ApiVersionsRequest())
        assert {17, 36} <= {row.api_key for row in versions.api_keys}
        response = await client.log_in(mechanism)
        assert (response.error_code, response.session_lifetime_ms) == (0, 0)
        assert await client.is_served()


@pytest.mark.parametrize("version", range(3))
async def test_every_version_of_sasl_authenticate(version: int) -> None:
    async with guarded() as test:
        client = await test.connect()
        await client.handshake(PLAIN)
        assert (await client.token(b"\0alice\0pencil", version)).error_code == 0
        assert await client.is_served()


@mechanisms
async def test_bare_tokens_after_a_handshake_of_version_0(mechanism: str) -> None:
    async with guarded() as test:
        client = await test.connect()
        assert (await client.handshake(mechanism, 0)).mechanisms == list(MECHANISMS)
        if mechanism == PLAIN:
            assert await client.bare(b"alice\0alice\0pencil") == b""
        else:
            scram = ScramClient(mechanism, "alice", "pencil", "nonce")
            scram.check(await client.bare(scram.final(await client.bare(scram.first))))
        assert await client.is_served()


async def test_a_bare_token_that_is_wrong_just_closes() -> None:
    async with guarded() as test:
        client = await test.connect()
        await client.handshake(PLAIN, 0)
        client.peer.send(pack(">i", 15) + b"\0alice\0wrong!!!")
        await test.after_the_delay()
        assert await client.peer.is_closed()


async def test_after_a_login_no_request_passes_the_guard() -> None:
    async with guarded() as test:
        client = await test.connect()
        await client.log_in()
        (connection,) = test.edge.connections._open
        assert connection._serving is test.edge.dispatcher


# ---- before the login


@pytest.mark.parametrize("name", ["Metadata", "Heartbeat", "SaslAuthenticate", "unknown"])
async def test_nothing_else_is_served_before_a_login(name: str) -> None:
    requests = {
        "Metadata": request_frame("Metadata", 1, MetadataRequest()),
        "Heartbeat": request_frame("Heartbeat", 0, HEARTBEAT),
        "SaslAuthenticate": request_frame(
            "SaslAuthenticate", 1, SaslAuthenticateRequest(b"\0alice\0pencil")
        ),
        "unknown": pack(">ihhih", 10, 999, 0, 1, 0),
    }
    async with guarded() as test:
        client = await test.connect()
        client.peer.send(requests[name])
        assert await client.peer.is_closed()


@pytest.mark.parametrize("name", ["Heartbeat", "ApiVersions"])
async def test_nothing_else_is_served_in_the_middle_of_a_login(name: str) -> None:
    async with guarded() as test:
        client = await test.connect()
        await client.handshake(SHA_256)
        await client.token(b"n,,n=alice,r=x")
        message = HEARTBEAT if name == "Heartbeat" else ApiVersionsRequest()
        client.peer.send(request_frame(name, 0, message))
        assert await client.peer.is_closed()


async def test_requests_sent_along_with_a_failing_login_are_not_served() -> None:
    async with guarded() as test:
        client = await test.connect()
        await client.handshake(PLAIN)
        await_served = request_frame("Heartbeat", 0, HEARTBEAT)
        again = request_frame("SaslAuthenticate", 2, SaslAuthenticateRequest(b"\0alice\0pencil"))
        wrong = request_frame("SaslAuthenticate", 2, SaslAuthenticateRequest(b"\0alice\0x"))
        client.peer.send(wrong + again + await_served)
        await test.after_the_delay()
        _, response = await client.peer.receive_response("SaslAuthenticate", 2)
        assert response.error_code == FAILED
        assert await client.peer.is_closed()


async def test_a_large_frame_is_refused_before_a_login_by_its_size_alone() -> None:
    async with guarded() as test:
        client = await test.connect()
        client.peer.send(pack(">ihh", 4097, 18, 0))
        assert await client.peer.is_closed()


async def test_a_crowd_of_strangers_does_not_take_the_room_of_users() -> None:
    rules = SaslRules(MECHANISMS, receive_bytes_max=100_000)
    async with guarded(rules, bytes_in_flight_max=800_000) as test:
        user = await test.connect()
        await user.log_in()
        crowd = [await test.connect() for _ in range(20)]
        for stranger in crowd:
            stranger.peer.send(pack(">ihh", 100_000, 36, 0) + bytes(90_000))
        budget, of_strangers = (
            test.edge.connections.budget,
            test.edge.connections.strangers_budget,
        )
        await until(lambda: test.edge.metrics.bytes_in_flight_waits > 0)
        assert budget.held_bytes == 0
        assert of_strangers.held_bytes > 100_000
        # Users have all of theirs, and can become users meanwhile.
        user.peer.send(pack(">i", 500_000) + bytes(400_000))
        await until(lambda: budget.held_bytes >= 400_000)
        assert await (await test.connect()).log_in(PLAIN)
        waits = test.edge.metrics.bytes_in_flight_waits
        for stranger in crowd:
            stranger.peer.writer.close()
        await until(lambda: of_strangers.held_bytes == 0)
        assert test.edge.metrics.bytes_in_flight == budget.held_bytes
        assert test.edge.metrics.bytes_in_flight_waits == waits


async def test_what_somebody_has_sent_before_the_login_counts_as_a_users_after_it() -> None:
    async with guarded() as test:
        client = await test.connect()
        await client.handshake(PLAIN)
        token = SaslAuthenticateRequest(b"\0alice\0pencil")
        message = request_frame("SaslAuthenticate", 2, token)
        # The login waits for a worker, and more comes in behind it.
        client.peer.send(message + pack(">i", 4000) + bytes(3000))
        assert (await client.peer.receive_response("SaslAuthenticate", 2))[1].error_code == 0
        await until(lambda: test.edge.connections.budget.held_bytes >= 3000)
        assert test.edge.connections.strangers_budget.held_bytes == 0
        client.peer.writer.close()
        await until(lambda: not len(test.edge.connections))
        assert test.edge.metrics.bytes_in_flight == 0


async def test_a_stranger_who_says_nothing_is_closed_after_a_minute() -> None:
    async with guarded() as test:
        client = await test.connect()
        await client.handshake(PLAIN)
        test.edge.advance(59)
        assert len(test.edge.connections)
        test.edge.advance(2)
        assert await client.peer.is_closed()


async def test_a_mechanism_that_is_not_enabled_closes_after_an_answer() -> None:
    async with guarded(SaslRules((SHA_512,))) as test:
        for mechanism in (PLAIN, SHA_256, "GSSAPI", "scram-sha-512", "", "x" * 3000):
            client = await test.connect()
            request = SaslHandshakeRequest(mechanism)
            client.peer.send(request_frame("SaslHandshake", 1, request))
            await test.after_the_delay()
            _, response = await client.peer.receive_response("SaslHandshake", 1)
            assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
            assert response.mechanisms == [SHA_512]
            assert await client.peer.is_closed()


async def test_a_second_handshake_cannot_change_the_mechanism_in_the_middle() -> None:
    async with guarded() as test:
        client = await test.connect()
        await client.handshake(SHA_512)
        client.peer.send(request_frame("SaslHandshake", 1, SaslHandshakeRequest(PLAIN)))
        await test.after_the_delay()
        _, response = await client.peer.receive_response("SaslHandshake", 1)
        assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await client.peer.is_closed()


# ---- wrong tokens


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"\0alice\0wrong",
        b"\0alice\0pencil2",
        b"\0alice\0pencil\0",
        b"\0alice\0",
        b"\0\0pencil",
        b"\0nobody\0pencil",
        b"bob\0alice\0pencil",
        b"alice\0pencil",
        b"\0Alice\0pencil",
        b"\0al\xffice\0pencil",
        b"\0" + b"a" * 2000 + b"\0pencil",
        b"\0alice\0" + b"p" * 2000,
    ],
)
async def test_a_wrong_plain_token_is_refused(token: bytes) -> None:
    async with guarded() as test:
        client = await test.connect()
        await client.handshake(PLAIN)
        await client.is_refused(token)


@pytest.mark.parametrize("user", ["alice", "nobody", "a" * 2000, "=,"])
@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
async def test_a_wrong_proof_is_refused_with_or_without_such_a_user(
    mechanism: str, user: str
) -> None:
    async with guarded() as test:
        client = await test.connect()
        await client.handshake(mechanism)
        scram = ScramClient(mechanism, user, "wrong", "nonce")
        first = await client.token(scram.first)
        assert first.error_code == 0
        await client.is_refused(scram.final(first.auth_bytes))


async def test_a_stranger_is_shown_the_same_salt_each_time_and_each_name_another() -> None:
    async def salt(test: Guarded, user: str) -> bytes:
        client = await test.connect()
        await client.handshake(SHA_256)
        first = await client.token(f"n,,n={user},r=x".encode())
        nonce, _, rest = first.auth_bytes.partition(b",s=")
        assert nonce.startswith(b"r=x")
        return rest

    async with guarded() as test:
        assert await salt(test, "nobody") == await salt(test, "nobody")
        assert await salt(test, "nobody") != await salt(test, "someone")
        # As those of the users look.
        assert len(await salt(test, "nobody")) == len(await salt(test, "alice"))
        assert (await salt(test, "nobody")).endswith(b",i=4096")


async def test_a_proof_that_was_overheard_is_of_no_use() -> None:
    async with guarded() as test:
        heard = await test.connect()
        await heard.handshake(SHA_256)
        scram = ScramClient(SHA_256, "alice", "pencil", "nonce")
        proof = scram.final((await heard.token(scram.first)).auth_bytes)
        assert (await heard.token(proof)).error_code == 0
        replaying = await test.connect()
        await replaying.handshake(SHA_256)
        await replaying.token(scram.first)
        await replaying.is_refused(proof)


@pytest.mark.parametrize("name", ["\uff41lice", "ali\u00adce", "Alice", "alice\0", "\u202ealice"])
@mechanisms
async def test_a_name_is_its_bytes_and_no_other_stands_for_it(mechanism: str, name: str) -> None:
    """RFC 4013 would make the first two of them alice; Kafka does not prepare names either."""
    async with guarded() as test:
        client = await test.connect()
        await client.handshake(mechanism)
        if mechanism == PLAIN:
            await client.is_refused(f"\0{name}\0pencil".encode())
        else:
            scram = ScramClient(mechanism, name, "pencil", "nonce")
            first = await client.token(scram.first)
            await client.is_refused(scram.final(first.auth_bytes))


async def test_a_token_is_dressed_as_the_handshake_has_said() -> None:
    async with guarded() as test:
        token = b"\0alice\0pencil"
        dressed = request_frame("SaslAuthenticate", 0, SaslAuthenticateRequest(token))
        for version, sent in ((0, dressed), (1, pack(">i", len(token)) + token)):
            client = await test.connect()
            await client.handshake(PLAIN, version)
            client.peer.send(sent)
            if version == 0:
                await test.after_the_delay()
            assert await client.peer.is_closed()


@pytest.mark.parametrize("length", [-1, 1 << 20, (1 << 31) - 1])
async def test_a_token_of_another_length_than_it_says_closes(length: int) -> None:
    async with guarded() as test:
        client = await test.connect()
        await client.handshake(PLAIN)
        client.peer.send(pack(">ihhihi3s", 17, 36, 0, 1, -1, length, b"abc"))
        assert await client.peer.is_closed()


async def test_a_scram_login_cannot_begin_with_its_end() -> None:
    async with guarded() as test:
        client = await test.connect()
        await client.handshake(SHA_256)
        await client.is_refused(b"c=biws,r=nonce,p=AAAA")


async def test_a_token_of_another_mechanism_is_refused() -> None:
    async with guarded() as test:
        client = await test.connect()
        await client.handshake(SHA_256)
        await client.is_refused(b"\0alice\0pencil")


async def test_a_user_who_is_deleted_during_a_login_is_refused() -> None:
    async with guarded() as test:
        client = await test.connect()
        await client.handshake(SHA_256)
        scram = ScramClient(SHA_256, "alice", "pencil", "nonce")
        first = await client.token(scram.first)
        await test.users.alter({("alice", SHA_256): None})
        await client.is_refused(scram.final(first.auth_bytes))


async def test_a_refusal_comes_late() -> None:
    async with guarded() as test:
        client = await test.connect()
        await client.handshake(PLAIN)
        request = SaslAuthenticateRequest(b"\0alice\0wrong")
        client.peer.send(request_frame("SaslAuthenticate", 2, request))
        (connection,) = test.edge.connections._open
        login = connection.context.login
        assert isinstance(login, Login)
        await until(lambda: login.state is State.FAILED)
        test.edge.advance(0.09)
        await asyncio.sleep(0.02)
        assert not client.peer.reader._buffer  # type: ignore[attr-defined]
        test.edge.advance(0.02)
        await client.peer.receive()


async def test_neither_the_log_nor_the_answer_has_a_password(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with guarded() as test:
        client = await test.connect()
        await client.handshake(PLAIN)
        await client.is_refused(b"\0alice\0secret-of-hers")
        other = await test.connect()
        await other.log_in(PLAIN)
        third = await test.connect()
        await third.handshake(PLAIN)
        await third.is_refused(b"secret-of-hers")
    assert "failed login from 127.0.0.1" in caplog.text
    assert "no user 'alice' with this password" in caplog.text
    assert "secret-of-hers" not in caplog.text
    assert "pencil" not in caplog.text


async def test_on_a_listener_without_a_login_there_is_none() -> None:
    async with edge({key: HANDLERS[key] for key in (17, 36)}, broker=None) as running:
        peer = await running.connect()
        peer.send(request_frame("SaslHandshake", 1, SaslHandshakeRequest(PLAIN)))
        response = (await peer.receive_response("SaslHandshake", 1))[1]
        assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE


async def test_a_size_is_all_that_a_bare_token_needs() -> None:
    async with guarded() as test:
        client = await test.connect()
        await client.handshake(SHA_256, 0)
        client.peer.send(pack(">i", 0))
        await test.after_the_delay()
        assert await client.peer.is_closed()
