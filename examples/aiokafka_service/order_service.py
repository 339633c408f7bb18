"""Orders in, invoices out: a small service, to show how one is tested.

It reads JSON orders from `orders`, writes an invoice for each to `invoices`, and puts aside what is
no order in `orders.rejected`, with the reason as a header. An order's offset is committed when its
invoice is acknowledged, so that a crash may make an invoice twice, and never loses one.
"""

from __future__ import annotations

import json

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord

ORDERS, INVOICES, REJECTED = "orders", "invoices", "orders.rejected"
GROUP = "invoicing"


async def serve(bootstrap_servers: str) -> None:
    """Runs until it is cancelled."""
    consumer = AIOKafkaConsumer(
        ORDERS,
        bootstrap_servers=bootstrap_servers,
        group_id=GROUP,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        retry_backoff_ms=20,
    )
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap_servers, acks="all", retry_backoff_ms=20
    )
    async with consumer, producer:
        async for record in consumer:
            await handle(record, producer)
            await consumer.commit()


async def handle(record: ConsumerRecord, producer: AIOKafkaProducer) -> None:
    """Answers one order with an invoice, or puts it aside."""
    try:
        invoice = invoice_for(json.loads(record.value))
    except (ValueError, KeyError, TypeError) as error:
        reason = [("reason", f"{type(error).__name__}: {error}".encode())]
        await producer.send_and_wait(REJECTED, record.value, key=record.key, headers=reason)
    else:
        await producer.send_and_wait(INVOICES, json.dumps(invoice).encode(), key=record.key)


def invoice_for(order: dict[str, int]) -> dict[str, int]:
    """What an order costs, in cents."""
    return {"order": order["id"], "cents": order["count"] * order["unit_cents"]}
