"""Sends half of the flights with one client, at a steady pace: `producer.py CLIENT ...`.

Prints the row numbers that the broker acknowledged, as JSON lists, one list a line; the demo reads
them to know what must not be lost. Both clients are idempotent, wait for acks=all, and choose
partitions with the hash of Java's client, so that an aircraft's flights share a partition whichever
client sent them.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import click
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer

CHUNK_SECONDS = 0.05
PATIENCE_MS = 60_000

Row = tuple[int, bytes | None, bytes]


def rows_of(path: Path, half: int) -> Iterator[Row]:
    """Every other line of the file: row number, key and value."""
    with path.open() as file:
        for line in file:
            row, key, value = line.rstrip("\n").split("\t")
            if int(row) % 2 == half:
                yield int(row), key.encode() or None, value.encode()


def chunks_of(path: Path, half: int, rows_per_s: float) -> Iterator[tuple[float, list[Row]]]:
    """The rows in small chunks, each with the time (monotonic seconds) at which it is due."""
    size = max(1, int(rows_per_s * CHUNK_SECONDS))
    start, chunk, number = time.monotonic(), list[Row](), 0
    for row in rows_of(path, half):
        chunk.append(row)
        if len(chunk) == size:
            yield start + number * size / rows_per_s, chunk
            chunk, number = [], number + 1
    yield start + number * size / rows_per_s, chunk


def report(acknowledged: list[int]) -> None:
    print(json.dumps(acknowledged), flush=True)
    acknowledged.clear()


async def paced(path: Path, half: int, rows_per_s: float) -> AsyncIterator[list[Row]]:
    for due, chunk in chunks_of(path, half, rows_per_s):
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        yield chunk


async def send_with_aiokafka(
    servers: str, topic: str, path: Path, half: int, rows_per_s: float
) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=servers,
        enable_idempotence=True,
        request_timeout_ms=PATIENCE_MS,
        retry_backoff_ms=100,
        metadata_max_age_ms=5000,
    )
    await producer.start()
    try:
        async for chunk in paced(path, half, rows_per_s):
            sends = [await producer.send(topic, value, key) for _, key, value in chunk]
            await asyncio.gather(*sends)
            report([row for row, _, _ in chunk])
    finally:
        await producer.stop()


def send_with_confluent(servers: str, topic: str, path: Path, half: int, rows_per_s: float) -> None:
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "linger.ms": 5,
            "message.timeout.ms": PATIENCE_MS,
            "reconnect.backoff.max.ms": 500,
            "log_level": 2,
        }
    )
    acknowledged: list[int] = []

    def delivered(row: int, error: object) -> None:
        if error is not None:
            sys.exit(f"row {row} was not delivered: {error}")
        acknowledged.append(row)

    for due, chunk in chunks_of(path, half, rows_per_s):
        producer.poll(max(0.0, due - time.monotonic()))
        for row, key, value in chunk:
            producer.produce(
                topic, value, key, on_delivery=lambda error, _, row=row: delivered(row, error)
            )
        report(acknowledged)
    if producer.flush(PATIENCE_MS / 1000):
        sys.exit("not all rows were delivered")
    report(acknowledged)


@click.command()
@click.argument("client", type=click.Choice(["aiokafka", "confluent"]))
@click.option("--servers", required=True)
@click.option("--topic", required=True)
@click.option("--rows", required=True, type=click.Path(path_type=Path))
@click.option("--half", required=True, type=click.IntRange(0, 1))
@click.option("--rows-per-s", required=True, type=float)
def main(client: str, servers: str, topic: str, rows: Path, half: int, rows_per_s: float) -> None:
    """Sends half of the rows."""
    if client == "aiokafka":
        asyncio.run(send_with_aiokafka(servers, topic, rows, half, rows_per_s))
    else:
        send_with_confluent(servers, topic, rows, half, rows_per_s)


if __name__ == "__main__":
    main()
