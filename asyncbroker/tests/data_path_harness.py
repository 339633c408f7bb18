"""A real broker without sockets: files and metadata in memory, a clock that the test moves.

Requests are given to the handlers as messages. Workers run their jobs at once, so that nothing
happens between two steps of a test but what the test does.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from asyncbroker.broker import MEMORY_DIRECTORY, Broker
from asyncbroker.clock import ManualClock
from asyncbroker.config import BrokerConfig
from asyncbroker.context import RequestContext
from asyncbroker.handlers import HANDLERS
from asyncbroker.log.checkpoints import CLEAN_SHUTDOWN
from asyncbroker.log.files import Files
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.metadata_store import MemoryMetadataStore, MetadataStore
from asyncbroker.partition import Partition
from asyncbroker.protocol.api import API_BY_NAME
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from asyncbroker.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from asyncbroker.protocol.records import Compression, Record, batches, build_batch, records_of
from asyncbroker.topic import Topic
from asyncbroker.workers import InlineWorkers, Workers

NOW_MS = 1_700_000_000_000


class UnderTest:
    """A started broker, and what it was made of."""

    def __init__(self, broker: Broker, clock: ManualClock, files: Files) -> None:
        self.broker = broker
        self.clock = clock
        self.files = files

    async def topic(self, name: str = "flights", partitions: int = 1, **settings: str) -> Topic:
        """Creates a topic; settings with underscores for dots."""
        overrides = {name.replace("_", "."): value for name, value in settings.items()}
        return await self.broker.topics.create(name, partitions, overrides)

    def begin(
        self, request: Any, version: int, context: RequestContext | None = None
    ) -> Any | asyncio.Future[Any]:
        """Gives a request to its handler: the response, or a task if it has to wait."""
        context = context or RequestContext()
        context.api_version = version
        api = API_BY_NAME[type(request).__name__.removesuffix("Request")]
        outcome = HANDLERS[api.key].load()(self.broker, context, request)
        return asyncio.ensure_future(outcome) if inspect.isawaitable(outcome) else outcome

    async def ask(self, request: Any, version: int, context: RequestContext | None = None) -> Any:
        """Gives a request to its handler and waits for the response."""
        outcome = self.begin(request, version, context)
        return await outcome if isinstance(outcome, asyncio.Future) else outcome

    async def produce(
        self,
        batch: bytes | bytearray | None,
        *,
        topic: str = "flights",
        index: int = 0,
        acks: int = 1,
        version: int = 9,
        context: RequestContext | None = None,
    ) -> PartitionProduceResponse:
        """Produces one batch; its outcome."""
        request = produce_request(batch, topic=topic, index=index, acks=acks)
        return outcome_of(await self.ask(request, version, context))

    async def fetch(
        self,
        offset: int = 0,
        *,
        topic: str = "flights",
        index: int = 0,
        version: int = 12,
        **fields: Any,
    ) -> PartitionData:
        """Fetches from one partition without waiting; its answer."""
        request = fetch_request({(topic, index): offset}, **fields)
        return answer_of(await self.ask(request, version))


@asynccontextmanager
async def under_test(
    *,
    files: Files | None = None,
    metadata: MetadataStore | None = None,
    clock: ManualClock | None = None,
    workers: Workers | None = None,
    **settings: str,
) -> AsyncIterator[UnderTest]:
    """A broker with these settings (underscores for dots), stopped at the end."""
    clock = clock or ManualClock(wall_ms=NOW_MS)
    files = files or MemoryFiles()
    config = BrokerConfig.from_settings(
        {name.replace("_", "."): value for name, value in settings.items()}
    )
    broker = Broker(
        config,
        clock,
        workers or InlineWorkers(),
        files=files,
        metadata=metadata or MemoryMetadataStore(),
    )
    await broker.start()
    try:
        yield UnderTest(broker, clock, files)
    finally:
        await broker.stop()


def forget_clean_stop(files: Files) -> None:
    """Makes the next start follow a crash, as far as it can tell."""
    files.remove(f"{MEMORY_DIRECTORY}/{CLEAN_SHUTDOWN}")


async def settle() -> None:
    """Lets everything run that can run without the clock moving."""
    for _ in range(20):
        await asyncio.sleep(0)


def records(
    count: int = 1,
    *,
    value: bytes = b"value",
    key: bytes | None = b"key",
    timestamp: int = NOW_MS,
) -> list[Record]:
    """`count` records, a millisecond apart."""
    return [Record(index, timestamp + index, key, value) for index in range(count)]


def batch_of(count: int = 1, **fields: Any) -> bytearray:
    """A batch of `count` records; fields of `records`, the rest of `build_batch`."""
    chosen = {name: fields.pop(name) for name in ("value", "key", "timestamp") if name in fields}
    return build_batch(records(count, **chosen), **fields)


def idempotent(sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0) -> bytearray:
    """A batch of an idempotent producer."""
    return batch_of(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def produce_request(
    batch: bytes | bytearray | memoryview | None,
    *,
    topic: str = "flights",
    index: int = 0,
    acks: int = 1,
    timeout_ms: int = 1000,
) -> ProduceRequest:
    """A request with one batch, which it hands over as the connection does: as a writable view."""
    if batch is not None:
        batch = memoryview(bytearray(batch))
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[TopicProduceData(topic, [PartitionProduceData(index, batch)])],
    )


def fetch_request(
    offsets: dict[tuple[str | bytes, int], int],
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50_000_000,
    partition_max_bytes: int = 1_000_000,
    isolation_level: int = 0,
    session_id: int = 0,
    session_epoch: int = -1,
    current_leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    **fields: Any,
) -> FetchRequest:
    """A request for these partitions, in this order, each from its offset on."""
    topics = []
    for (topic, index), offset in offsets.items():
        wanted = FetchPartition(
            partition=index,
            fetch_offset=offset,
            partition_max_bytes=partition_max_bytes,
            current_leader_epoch=current_leader_epoch,
            last_fetched_epoch=last_fetched_epoch,
        )
        named = {"topic_id": topic} if isinstance(topic, bytes) else {"topic": topic}
        topics.append(FetchTopic(partitions=[wanted], **named))
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=topics,
        **fields,
    )


def outcome_of(response: ProduceResponse) -> PartitionProduceResponse:
    """The outcome of a request with one batch."""
    [topic] = response.responses
    [outcome] = topic.partition_responses
    return outcome


def answers_of(response: FetchResponse) -> list[PartitionData]:
    """The answers of all partitions, in order."""
    return [answer for topic in response.responses for answer in topic.partitions]


def answer_of(response: FetchResponse) -> PartitionData:
    """The answer of a request for one partition."""
    [answer] = answers_of(response)
    return answer


def bytes_of(answer: PartitionData) -> bytes:
    """The record bytes of an answer, also when they are still in a file."""
    located = answer.records
    assert located is not None
    if isinstance(located, (bytes, bytearray, memoryview)):
        return bytes(located)
    return bytes(located.read())  # type: ignore[attr-defined]


def offsets_of(answer: PartitionData) -> list[int]:
    """The offsets of all records in an answer."""
    return [record.offset for record in records_in(answer)]


def records_in(answer: PartitionData) -> Iterator[Record]:
    """The records in an answer."""
    for header, batch in batches(bytes_of(answer)):
        yield from records_of(batch, header)


def errors_of(outcomes: Sequence[Any]) -> list[ErrorCode]:
    """The error codes of some outcomes."""
    return [ErrorCode(outcome.error_code) for outcome in outcomes]


def log_bytes(partition: Partition) -> bytes:
    """Everything in a partition's log below the high watermark."""
    parts = []
    offset = partition.log_start_offset
    while (found := partition.locate(offset, 1 << 30)) is not None:
        data = found.read()
        parts.append(data)
        offset = [header for header, _ in batches(data)][-1].next_offset
    return b"".join(parts)


CODECS = list(Compression)
