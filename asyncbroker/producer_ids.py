"""Gives out producer ids, each once in the life of the data directory.

Ids come from blocks. That a block is taken is durable before its first id is given out, so ids of a
block that was begun before a crash are lost and never repeated.

Logs may know of ids that no block here had: those that have moved in from elsewhere, or are newer
than the metadata. They are passed over. Two producers of one id would be taken for one, and what
the second sends for repeats of what the first has sent: acknowledged, and written nowhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from asyncbroker.metadata_store import SetValue
from asyncbroker.metadata_writer import MetadataWriter

# As Kafka: large enough that few producers wait for the disk, small against 2^63.
BLOCK_LENGTH: Final = 1000

NEXT_PRODUCER_ID: Final = "next.producer.id"


class ProducerIds:
    """The ids of one broker. `first_free` is where the last durable block ends."""

    __slots__ = ("_block_end", "_metadata", "_next", "_taken_ids", "_taking")

    def __init__(self, metadata: MetadataWriter, first_free: int) -> None:
        self._metadata = metadata
        self._next = self._block_end = first_free
        self._taking: asyncio.Future[None] | None = None
        self._taken_ids: frozenset[int] = frozenset()

    @property
    def first_free(self) -> int:
        """Ids below are given out, or will be before another block is taken."""
        return self._block_end

    def pass_over(self, producer_ids: Collection[int]) -> None:
        """Never gives out these."""
        self._taken_ids = self._taken_ids.union(producer_ids)

    async def allocate(self) -> int:
        """The next id; waits when a block has to be taken. KafkaError when that fails."""
        while True:
            while self._next == self._block_end:
                await self._take_block()
            producer_id = self._next
            self._next += 1
            if producer_id not in self._taken_ids:
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
