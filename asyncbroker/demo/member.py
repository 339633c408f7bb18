"""One member of the demo's group, as a process: `python -m asyncbroker.demo.member ...`.

It reads JSON records with aiokafka and counts them by one field, with its counts and offsets in a
`CountStore`. SIGTERM makes it leave the group politely; SIGKILL is survived by the others.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import click
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import KafkaError

from asyncbroker.demo.store import CountStore

# The least that a broker accepts by default, so that a killed member is noticed soon.
SESSION_TIMEOUT_MS = 6000
POLL_RECORDS_MAX = 2000


class ResumeFromStore(ConsumerRebalanceListener):  # type: ignore[misc]
    """Seeks each new partition to the offset in the store, not to the committed one."""

    def __init__(self, consumer: Any, store: CountStore) -> None:
        self._consumer = consumer
        self._store = store

    async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        """Nothing to do: every chunk that was counted is in the store already."""

    async def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        for partition in assigned:
            self._consumer.seek(partition, self._store.next_offset(partition.partition))


async def count_records(
    servers: str, group: str, topic: str, field: str, name: str, store: CountStore
) -> None:
    """Reads and counts until the process is asked to end."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=servers,
        group_id=group,
        client_id=name,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=500,
        metadata_max_age_ms=2000,
        partition_assignment_strategy=(RoundRobinPartitionAssignor,),
    )
    consumer.subscribe([topic], listener=ResumeFromStore(consumer, store))
    await consumer.start()
    try:
        while not stopping.is_set():
            chunks = await consumer.getmany(timeout_ms=200, max_records=POLL_RECORDS_MAX)
            for partition, records in chunks.items():
                count_chunk(store, field, partition, records)
            if chunks:
                await commit(consumer, chunks)
    finally:
        await consumer.stop()


def count_chunk(
    store: CountStore, field: str, partition: TopicPartition, records: list[Any]
) -> None:
    """Puts one chunk of one partition into the store."""
    start = store.next_offset(partition.partition)
    new = [record for record in records if record.offset >= start]
    if new:
        counts = Counter(str(json.loads(record.value)[field]) for record in new)
        store.add(partition.partition, counts, start, new[-1].offset + 1)


async def commit(consumer: Any, chunks: dict[TopicPartition, list[Any]]) -> None:
    """Commits to the group too, so that its lag can be seen; the store is what counts.

    In a rebalance, or while the broker is away, the commit fails and a later one makes it up.
    """
    offsets = {partition: records[-1].offset + 1 for partition, records in chunks.items()}
    try:
        await consumer.commit(offsets)
    except KafkaError as error:
        click.echo(f"commit not possible now: {error}", err=True)


@click.command()
@click.option("--servers", required=True)
@click.option("--group", required=True)
@click.option("--topic", required=True)
@click.option("--field", required=True, help="The JSON field whose values are counted.")
@click.option("--name", required=True, help="The member's client id.")
@click.option("--store", "store_path", required=True, type=click.Path(path_type=Path))
def main(servers: str, group: str, topic: str, field: str, name: str, store_path: Path) -> None:
    """Counts a topic's JSON records by one field, as a member of a group."""
    store = CountStore(store_path)
    try:
        asyncio.run(count_records(servers, group, topic, field, name, store))
    finally:
        store.close()


if __name__ == "__main__":
    main()
