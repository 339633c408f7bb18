"""Logins that expire, and logging in again on the same connection (KIP-368)."""

from __future__ import annotations

import pytest

from asyncbroker.listeners import SaslRules
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.tests.edge_harness import request_frame
from asyncbroker.tests.login_harness import (
    HEARTBEAT,
    MECHANISMS,
    PLAIN,
    SHA_256,
    SHA_512,
    guarded,
)

EXPIRING = SaslRules(MECHANISMS, session_ms_max=10_000)


async def test_a_login_that_expires_says_so_and_ends() -> None:
    async with guarded(EXPIRING) as test:
        client = await test.connect()
        assert (await client.log_in()).session_lifetime_ms == 10_000
        test.edge.advance(9)
        assert await client.is_served()
        test.edge.advance(1)
        client.peer.send(request_frame("Heartbeat", 0, HEARTBEAT))
        assert await client.peer.is_closed()


@pytest.mark.parametrize("late_seconds", [5, 15])
async def test_logging_in_again_goes_on_with_the_connection(late_seconds: int) -> None:
    async with guarded(EXPIRING) as test:
        client = await test.connect()
        for _ in range(3):
            assert (await client.log_in()).error_code == 0
            test.edge.advance(late_seconds)
        assert (await client.log_in()).error_code == 0
        assert await client.is_served()


async def test_logging_in_again_where_logins_do_not_expire() -> None:
    async with guarded() as test:
        client = await test.connect()
        await client.log_in()
        test.edge.advance(1)
        await client.log_in()
        assert await client.is_served()


async def test_nothing_is_served_while_somebody_logs_in_again() -> None:
    async with guarded() as test:
        client = await test.connect()
        await client.log_in()
        test.edge.advance(1)
        await client.handshake(SHA_256)
        client.peer.send(request_frame("Heartbeat", 0, HEARTBEAT))
        assert await client.peer.is_closed()


async def test_another_user_cannot_take_over_a_connection() -> None:
    async with guarded() as test:
        client = await test.connect()
        await client.log_in(PLAIN, "alice")
        test.edge.advance(1)
        await client.handshake(PLAIN)
        await client.is_refused(b"\0bob\0pencil")


async def test_a_wrong_password_ends_the_connection_of_a_user_who_logs_in_again() -> None:
    async with guarded() as test:
        client = await test.connect()
        await client.log_in(PLAIN)
        test.edge.advance(1)
        await client.handshake(PLAIN)
        await client.is_refused(b"\0alice\0wrong")


async def test_logging_in_again_is_by_the_same_mechanism() -> None:
    async with guarded() as test:
        client = await test.connect()
        await client.log_in(SHA_512)
        test.edge.advance(1)
        await client.handshake(PLAIN)
        await client.is_refused(b"\0alice\0pencil")


async def test_logging_in_again_and_again_is_slowed_down() -> None:
    async with guarded() as test:
        client = await test.connect()
        await client.log_in()
        assert (await client.handshake(SHA_256)).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await client.is_served()
        assert (await client.token(b"x")).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await client.is_served()
