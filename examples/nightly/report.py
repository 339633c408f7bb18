"""Adds up the sales since the last run. What retention has deleted meanwhile must not go unnoticed:
with `auto_offset_reset="earliest"` the sum would be too small, and nobody would know."""

from __future__ import annotations

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import OffsetOutOfRangeError

SALES, GROUP = TopicPartition("sales", 0), "nightly-report"


class SalesLost(Exception):
    """Sales were deleted before they were counted."""


async def total_since_last_time(servers: str) -> int:
    """Raises SalesLost."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=servers,
        group_id=GROUP,
        enable_auto_commit=False,
        auto_offset_reset="none",
    )
    async with consumer:
        consumer.assign([SALES])
        if await consumer.committed(SALES) is None:
            await consumer.seek_to_beginning(SALES)
        end = (await consumer.end_offsets([SALES]))[SALES]
        total = 0
        while await consumer.position(SALES) < end:
            try:
                record = await consumer.getone()
            except OffsetOutOfRangeError as error:
                raise SalesLost(str(error)) from error
            total += int(record.value)
        await consumer.commit({SALES: end})
        return total
