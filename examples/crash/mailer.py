"""Sends a mail for each record of `signups`. Committed after the mail, an offset promises that it
was sent; committed before, a crash in between loses the mail, and no error tells of it."""

from __future__ import annotations

from collections.abc import Callable

from aiokafka import AIOKafkaConsumer

SIGNUPS, GROUP = "signups", "mailer"


async def serve(servers: str, send: Callable[[str], None], *, commits_first: bool = False) -> None:
    """Runs until it is cancelled, or crashes in `send`."""
    consumer = AIOKafkaConsumer(
        SIGNUPS,
        bootstrap_servers=servers,
        group_id=GROUP,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    async with consumer:
        async for record in consumer:
            if commits_first:
                await consumer.commit()
            send(record.value.decode())
            if not commits_first:
                await consumer.commit()
