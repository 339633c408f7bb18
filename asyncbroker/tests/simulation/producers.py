"""Producers: an idempotent one by Kafka's rules, and one that sends each record once.

The idempotent one has up to five batches of a partition on their way, counted from the first one
that is not acknowledged, since a broker knows again no more than the last five. When the connection
is lost, or one is refused for now, it waits until nothing is on its way any more, and sends all
that is not acknowledged again, in order, with the sequences that they had. A broker that keeps its
word never answers the first of them with OUT_OF_ORDER_SEQUENCE_NUMBER.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from dataclasses import dataclass
from typing import Final

from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.init_producer_id import InitProducerIdRequest
from asyncbroker.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from asyncbroker.protocol.records import NO_PRODUCER_ID, Compression, Record, build_batch
from asyncbroker.tests.history.history import ALL, Outcome, Send
from asyncbroker.tests.simulation.client import PASSING, Client, Shared, place_of
from asyncbroker.tests.simulation.link import Link, Lost, NotSent

IN_FLIGHT_MAX: Final = 5
RECORDS_MAX: Final = 4
TIMEOUT_MS: Final = 3000

# The disk did not take it, or the broker is about to stop: not for sure that nothing was written.
UNSURE: Final = frozenset({ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REQUEST_TIMED_OUT})


@dataclass(slots=True, eq=False)
class Batch:
    """Records that go together, and what the history knows of them."""

    index: int
    sends: list[Send]
    base_sequence: int
    # Which one of its partition it is.
    number: int
    data: bytes = b""
    is_on_its_way: bool = False


class Producer(Client):
    """Sends records to the partitions of one topic."""

    def __init__(
        self,
        shared: Shared,
        name: str,
        topic: str,
        *,
        is_idempotent: bool,
        acks: int,
        pace_seconds: float,
        keys: int,
    ) -> None:
        super().__init__(shared, name)
        self._topic = topic
        self._is_idempotent = is_idempotent
        self._acks = ALL if is_idempotent else acks
        self._pace_seconds = pace_seconds
        self._keys = keys
        self._producer_id = NO_PRODUCER_ID
        self._number = 0
        self._sequences: dict[int, int] = {}
        self._batch_counts: Counter[int] = Counter()
        # Of each partition what is not acknowledged, in order.
        self._pending: dict[int, deque[Batch]] = {}
        # Of each partition how many batches were refused a moment ago: until then nothing is sent.
        self._resting: Counter[int] = Counter()
        # The partitions that have acknowledged something.
        self._known: set[int] = set()
        self._changed: asyncio.Future[None] | None = None

    async def run(self) -> None:
        """Sends until the run is finishing; then until all is acknowledged."""
        while self._topic not in self.shared.topics:
            await self.pause(0.1)
        if self._is_idempotent:
            await self._run_idempotent()
        else:
            await self._run_once()
        self.disconnect()
        self.is_done = True

    # ---- each once

    async def _run_once(self) -> None:
        in_flight: set[asyncio.Task[None]] = set()
        while not self.shared.is_finishing:
            await self.pause(self._pace_seconds)
            if len(in_flight) >= IN_FLIGHT_MAX:
                continue
            batch = self._new_batch()
            link = await self.connected()
            for send in batch.sends:
                send.started = self.now
            try:
                if self._acks == 0:
                    link.tell("Produce", self.shared.versions["Produce"], self._request(batch))
                    self.note("send", batch.sends[0].value, "acks=0")
                    continue
                task = self.loop.create_task(self._send_once(link, batch))
            except NotSent:
                continue
            in_flight.add(task)
            task.add_done_callback(in_flight.discard)
        while in_flight:
            await self.pause(0.05)

    async def _send_once(self, link: Link, batch: Batch) -> None:
        try:
            outcome = await self._ask(link, batch)
        except NotSent:
            self._end(batch, Outcome.FAIL, "not sent")
            return
        except Lost:
            # Nobody will ever know.
            return
        code = ErrorCode(outcome.error_code)
        if code is ErrorCode.NONE:
            self._acknowledge(batch, outcome.base_offset)
        elif code in UNSURE:
            self.note("send", batch.sends[0].value, code.name)
        elif code in PASSING:
            self._end(batch, Outcome.FAIL, code.name)
        else:
            self.shared.complain(self.name, f"produce: {code.name} {outcome.error_message}")

    # ---- idempotent

    async def _run_idempotent(self) -> None:
        while True:
            response = await self.insist(
                "InitProducerId", InitProducerIdRequest(transaction_timeout_ms=1000)
            )
            code = ErrorCode(response.error_code)
            if code is ErrorCode.NONE:
                break
            await self.pause(0.2)
        self._producer_id = response.producer_id
        for index in range(self.shared.topics[self._topic]):
            self._pending[index] = deque()
        while not self.shared.is_finishing:
            await self.pause(self._pace_seconds)
            batch = self._new_batch(idempotent=True)
            pending = self._pending[batch.index]
            pending.append(batch)
            await self._send_pending()
            while len(pending) >= IN_FLIGHT_MAX:
                await self._drain(batch.index)
        for index in self._pending:
            while self._pending[index]:
                await self._drain(index)

    async def _drain(self, index: int) -> None:
        """Waits until something has changed, and sends again what has to be."""
        pending = self._pending[index]
        if any(batch.is_on_its_way for batch in pending):
            self._changed = self.loop.create_future()
            await self._changed
        else:
            await self.pause(0.1)
        await self._send_pending()

    async def _send_pending(self) -> None:
        """Sends what has not been sent, or all again once nothing is on its way."""
        link = await self.connected()
        for index, pending in self._pending.items():
            if self._resting[index]:
                continue
            on_their_way = [batch for batch in pending if batch.is_on_its_way]
            if on_their_way and on_their_way != list(pending)[: len(on_their_way)]:
                continue  # one before them has failed: first they must come back
            if on_their_way and len(pending) > len(on_their_way):
                first = pending[len(on_their_way)]
                if first.sends[0].attempts:
                    continue
            limit = IN_FLIGHT_MAX if index in self._known else 1
            for batch in list(pending)[:limit]:
                if batch.number >= pending[0].number + IN_FLIGHT_MAX:
                    break
                if not batch.is_on_its_way:
                    batch.is_on_its_way = True
                    self.loop.create_task(self._send_idempotent(link, index, batch))

    async def _send_idempotent(self, link: Link, index: int, batch: Batch) -> None:
        for send in batch.sends:
            send.attempts += 1
        pending = self._pending[index]
        try:
            outcome = await self._ask(link, batch)
        except Lost:
            code = None
        else:
            code = ErrorCode(outcome.error_code)
        if code is ErrorCode.NONE:
            self._known.add(index)
            self._acknowledge(batch, outcome.base_offset)
            pending.remove(batch)
        elif code is not None:
            is_out_of_order = code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            is_late = is_out_of_order and pending[0] is not batch
            if is_out_of_order and not is_late and self._may_be_damaged(batch):
                # What came behind it is there: it cannot be taken again, and is not acknowledged.
                pending.remove(batch)
            elif not is_late and code not in PASSING:
                self.shared.complain(
                    self.name,
                    f"{batch.sends[0].value!r} sequence {batch.base_sequence} to "
                    f"{place_of(self._topic, index)}: {code.name}",
                )
            self.note("send", batch.sends[0].value, code.name)
        batch.is_on_its_way = False
        if code is not ErrorCode.NONE and code is not None:
            self._resting[index] += 1
            await self.pause(0.1)
            self._resting[index] -= 1
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    def _may_be_damaged(self, batch: Batch) -> bool:
        """Whether an attempt that nobody has answered may have stored what was damaged since."""
        damaged = self.shared.history.damaged.get(place_of(self._topic, batch.index), [])
        is_known = batch.sends[0].attempts > 1
        return is_known and any(end - first == len(batch.sends) for first, end in damaged)

    # ---- both

    def _new_batch(self, *, idempotent: bool = False) -> Batch:
        index = self.random.randrange(self.shared.topics[self._topic])
        sends: list[Send] = []
        for _ in range(self.random.randint(1, RECORDS_MAX)):
            self._number += 1
            key = f"k{self.random.randrange(self._keys)}".encode() if self._keys else None
            sends.append(
                Send(
                    self.name,
                    place_of(self._topic, index),
                    f"{self.name}:{self._number}".encode(),
                    key,
                    self._acks,
                    self._number,
                    is_idempotent=idempotent,
                    is_ordered=idempotent,
                    started=self.now,
                    attempts=0 if idempotent else 1,
                )
            )
            self.shared.history.add(sends[-1])
        sequence = self._sequences.get(index, 0)
        self._sequences[index] = sequence + len(sends)
        batch = Batch(index, sends, sequence if idempotent else -1, self._batch_counts[index])
        self._batch_counts[index] += 1
        batch.data = self._encode(batch)
        return batch

    def _encode(self, batch: Batch) -> bytes:
        compressed = self.random.random() < 0.1
        records = [
            Record(0, 1_700_000_000_000 + int(self.now * 1000), send.key, send.value)
            for send in batch.sends
        ]
        return bytes(
            build_batch(
                records,
                compression=Compression.LZ4 if compressed else Compression.NONE,
                producer_id=self._producer_id,
                producer_epoch=0 if self._is_idempotent else -1,
                base_sequence=batch.base_sequence,
            )
        )

    def _request(self, batch: Batch) -> ProduceRequest:
        data = PartitionProduceData(batch.index, batch.data)
        return ProduceRequest(
            acks=self._acks,
            timeout_ms=TIMEOUT_MS,
            topic_data=[TopicProduceData(self._topic, [data])],
        )

    async def _ask(self, link: Link, batch: Batch) -> PartitionProduceResponse:
        response = await link.ask("Produce", self.shared.versions["Produce"], self._request(batch))
        outcome: PartitionProduceResponse = response.responses[0].partition_responses[0]
        return outcome

    def _acknowledge(self, batch: Batch, base_offset: int) -> None:
        self.note("sent", batch.sends[0].value, len(batch.sends), "at", batch.index, base_offset)
        for place, send in enumerate(batch.sends):
            send.offset = base_offset + place if base_offset >= 0 else -1
            send.outcome = Outcome.OK
            send.ended = self.now

    def _end(self, batch: Batch, outcome: Outcome, why: str) -> None:
        for send in batch.sends:
            send.outcome, send.error, send.ended = outcome, why, self.now
