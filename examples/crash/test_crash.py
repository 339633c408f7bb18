"""At least once, or not: the service crashes between its work and its commit."""

from __future__ import annotations

import asyncio

import pytest
from mailer import SIGNUPS, serve

from asyncbroker.testing import BrokerThread


class Crash(Exception):
    """The process dies here."""


def crash(address: str) -> None:
    raise Crash(address)


async def mails_after_a_crash(broker: BrokerThread, *, commits_first: bool) -> list[str]:
    """The mails of a service that dies at the first of two signups and is started again."""
    for address in ("ann", "bob"):
        broker.topic(SIGNUPS).append(address)
    servers = broker.bootstrap_servers
    with pytest.raises(Crash, match="ann"):
        await serve(servers, crash, commits_first=commits_first)
    mails: list[str] = []
    again = asyncio.create_task(serve(servers, mails.append, commits_first=commits_first))
    await broker.wait_for_async(until=lambda: "bob" in mails)
    again.cancel()
    await asyncio.wait([again])
    return mails


@pytest.mark.asyncio
async def test_committing_first_loses_a_mail(kafka_broker: BrokerThread) -> None:
    assert await mails_after_a_crash(kafka_broker, commits_first=True) == ["bob"]


@pytest.mark.asyncio
async def test_committing_afterwards_loses_none(kafka_broker: BrokerThread) -> None:
    assert await mails_after_a_crash(kafka_broker, commits_first=False) == ["ann", "bob"]
