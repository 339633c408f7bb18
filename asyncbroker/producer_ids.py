"""Gives out producer ids, each once in the life of the data directory.

Ids come from blocks. That a block is taken is durable before its first id is given out, so ids of a
block that was begun before a crash are lost and never repeated.
"""

from __future__ import annotations

import asyncio
from typing import Final

from asyncbroker.metadata_store import SetValue
from asyncbroker.metadata_writer import MetadataWriter

# As Kafka: large enough that few producers wait for the disk, small against 2^63.
BLOCK_LENGTH: Final = 1000

NEXT_PRODUCER_ID: Final = "next.producer.id"


class ProducerIds:
    """The ids of one broker. `first_free` is where the last durable block ends."""

    def __init__(self, metadata: MetadataWriter, first_free: int) -> None:
        self._metadata = metadata
        self._next = self._block_end = first_free
        self._taking: asyncio.Future[None] | None = None

    async def allocate(self) -> int:
        """The next id; waits when a block has to be taken. KafkaError when that fails."""
        while self._next == self._block_end:
            await self._take_block()
        producer_id = self._next
        self._next += 1
        return producer_id

    async def _take_block(self) -> None:
        """Everybody who finds the block used up waits for the same new one."""
        if self._taking is None:
            end = self._block_end + BLOCK_LENGTH
            self._taking = self._metadata.write(
                SetValue(NEXT_PRODUCER_ID, str(end)), then=lambda: self._begin_block(end)
            )
            self._taking.add_done_callback(self._taken)
        await asyncio.shield(self._taking)

    def _begin_block(self, end: int) -> None:
        self._next, self._block_end = self._block_end, end

    def _taken(self, _done: asyncio.Future[None]) -> None:
        self._taking = None
