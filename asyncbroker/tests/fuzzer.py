"""Attacks a broker as a stranger would, and checks that it goes on serving others.

Each attack is a coroutine with one or some connections: noise, valid requests with a few bytes
changed, lengths that lie, halves of requests, floods, peers that do not read. Between them a client
that behaves asks for metadata, produces and fetches, and measures how long it waits. A run is told
by its seed, though not its timing.

    python -m asyncbroker.tests.fuzzer --seconds 60 [--seed 7] [--address HOST:PORT]
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from struct import pack, unpack
from typing import Any, Final

from asyncbroker.handlers import HANDLERS
from asyncbroker.protocol.api import API_BY_NAME, Api
from asyncbroker.protocol.headers import RequestHeader, encode_request_header
from asyncbroker.protocol.records import Record, build_batch
from asyncbroker.protocol.schema import Array, Field, Nested, Primitive, table_of
from asyncbroker.tests.broker_process import BrokerProcess
from asyncbroker.tests.edge_harness import decode_response, request_frame

# What a broker under attack may use; its settings keep legal requests from growing it.
RESIDENT_BYTES_MAX: Final = 300 * 1024 * 1024
ANSWER_SECONDS_MAX: Final = 5.0
LET_GO_SECONDS_MAX: Final = 15.0
BROKER_OPTIONS: Final = (
    "--memory",
    "--listen=127.0.0.1:0",
    "--set=asyncbroker.max.partitions=300",
    "--set=max.connections=500",
    "--set=log.retention.bytes=1048576",
)

ATTACKERS: Final = 8
RESPONSE_WAIT_SECONDS: Final = 0.05
FLOOD_CONNECTIONS: Final = 60
HEALTHY_TOPIC: Final = "a-topic-of-somebody-else"
# They are there, so that a request that names them gets past the question whether they are.
ATTACKED_TOPICS: Final = ("t", "u")

EDGES: Final = {
    "int8": (-128, -1, 0, 1, 127),
    "int16": (-32768, -1, 0, 1, 32767),
    "int32": (-(2**31), -2, -1, 0, 1, 100, 30000, 2**31 - 1),
    "int64": (-(2**63), -3, -2, -1, 0, 1, 2**40, 2**63 - 1),
    "uint16": (0, 65535),
    "uint32": (0, 2**32 - 1),
    "float64": (0.0, -1.5),
    "bool": (False, True),
}


@dataclass
class Report:
    """What a run has done and seen."""

    seed: int
    attacks: Counter[str] = field(default_factory=Counter)
    healthy_answers: int = 0
    worst_answer_seconds: float = 0.0
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        attacks = ", ".join(f"{count} {name}" for name, count in sorted(self.attacks.items()))
        return (
            f"seed {self.seed}: {attacks}\n{self.healthy_answers} healthy answers meanwhile, the "
            f"slowest after {self.worst_answer_seconds * 1000:.0f} ms\n"
            + ("\n".join(self.failures) or "no failures")
        )


class Fuzzer:
    """Runs attacks against one address until the time is over."""

    def __init__(self, host: str, port: int, seed: int) -> None:
        self._host = host
        self._port = port
        self._random = random.Random(seed)
        self.report = Report(seed)
        self._attacks = {
            "noise": self._noise,
            "noise in frames": self._noise_in_frames,
            "random requests": self._random_requests,
            "mutated requests": self._mutated_requests,
            "lying sizes": self._lying_sizes,
            "half requests": self._half_requests,
            "slow bytes": self._slow_bytes,
            "floods": self._flood,
            "peers that do not read": self._do_not_read,
        }

    async def run(self, seconds: float) -> Report:
        deadline = time.monotonic() + seconds
        attackers = [asyncio.ensure_future(self._attack(deadline)) for _ in range(ATTACKERS)]
        healthy = asyncio.ensure_future(self._be_healthy(deadline))
        await asyncio.gather(healthy, *attackers)
        return self.report

    async def _attack(self, deadline: float) -> None:
        while time.monotonic() < deadline and not self.report.failures:
            name = self._random.choice(list(self._attacks))
            self.report.attacks[name] += 1
            # The broker closes on the attacker, which is as it should be.
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.TimeoutError):
                await self._attacks[name]()

    # ---- those who behave

    async def _be_healthy(self, deadline: float) -> None:
        try:
            async with self._connected() as (reader, writer):
                topics = [_topic(name) for name in (HEALTHY_TOPIC, *ATTACKED_TOPICS)]
                await self._ask(reader, writer, "Metadata", 4, topics=topics)
                while time.monotonic() < deadline and not self.report.failures:
                    await self._produce_and_fetch(reader, writer)
                    await asyncio.sleep(0.02)
        except (OSError, EOFError, AssertionError, asyncio.TimeoutError) as error:
            self.report.failures.append(f"the healthy client failed: {error!r}")

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """A connection that is closed whatever becomes of it."""
        reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            yield reader, writer
        finally:
            writer.close()

    async def _produce_and_fetch(self, reader: Any, writer: Any) -> None:
        value = self._random.randbytes(20)
        batch = build_batch([Record(0, int(time.time() * 1000), None, value, [])])
        data = _message("Produce", "PartitionProduceData", 0, batch)
        topic = _message("Produce", "TopicProduceData", HEALTHY_TOPIC, [data])
        produced = await self._ask(
            reader, writer, "Produce", 7, acks=1, timeout_ms=5000, topic_data=[topic]
        )
        outcome = produced.responses[0].partition_responses[0]
        assert outcome.error_code == 0, outcome
        partition = _message("Fetch", "FetchPartition", 0)
        partition.fetch_offset = outcome.base_offset
        partition.partition_max_bytes = 1 << 20
        wanted = _message("Fetch", "FetchTopic", HEALTHY_TOPIC, partitions=[partition])
        fetched = await self._ask(
            reader, writer, "Fetch", 11, max_wait_ms=100, min_bytes=1, topics=[wanted]
        )
        records = bytes(fetched.responses[0].partitions[0].records)
        assert value in records, fetched

    async def _ask(self, reader: Any, writer: Any, name: str, version: int, **fields: Any) -> Any:
        asked_at = time.monotonic()
        writer.write(request_frame(name, version, API_BY_NAME[name].request(**fields)))
        frame = await asyncio.wait_for(_read_frame(reader), ANSWER_SECONDS_MAX)
        waited = time.monotonic() - asked_at
        self.report.healthy_answers += 1
        self.report.worst_answer_seconds = max(self.report.worst_answer_seconds, waited)
        return decode_response(name, version, frame)[1]

    # ---- attacks

    async def _noise(self) -> None:
        await self._send_and_look(self._random.randbytes(self._random.choice((1, 7, 100, 5000))))

    async def _noise_in_frames(self) -> None:
        bodies = [
            self._random.randbytes(self._random.choice((0, 1, 9, 10, 14, 200)))
            for _ in range(self._random.randrange(1, 20))
        ]
        await self._send_and_look(b"".join(pack(">i", len(body)) + body for body in bodies))

    async def _random_requests(self) -> None:
        requests = [self._request() for _ in range(self._random.randrange(1, 10))]
        await self._send_and_look(b"".join(pack(">i", len(body)) + body for body in requests))

    async def _mutated_requests(self) -> None:
        requests = [self._mutated(self._request()) for _ in range(self._random.randrange(1, 5))]
        await self._send_and_look(b"".join(pack(">i", len(body)) + body for body in requests))

    async def _lying_sizes(self) -> None:
        body = self._request()
        size = self._random.choice((-1, -(2**31), 2**31 - 1, 100 << 20, (100 << 20) + 1, 0, 3))
        await self._send_and_look(pack(">i", size) + body)

    async def _half_requests(self) -> None:
        body = self._request()
        data = pack(">i", len(body)) + body
        await self._send_and_look(data[: self._random.randrange(1, len(data))])

    async def _slow_bytes(self) -> None:
        body = self._request()
        async with self._connected() as (_, writer):
            for byte in (pack(">i", len(body)) + body)[:40]:
                writer.write(bytes([byte]))
                await asyncio.sleep(0.001)

    async def _flood(self) -> None:
        opened = await asyncio.gather(
            *[asyncio.open_connection(self._host, self._port) for _ in range(FLOOD_CONNECTIONS)],
            return_exceptions=True,
        )
        for connection in opened:
            if not isinstance(connection, BaseException):
                writer = connection[1]
                writer.write(self._random.randbytes(self._random.randrange(20)))
                writer.transport.abort() if self._random.random() < 0.5 else writer.close()

    async def _do_not_read(self) -> None:
        reader, writer = await asyncio.open_connection(self._host, self._port, limit=1024)
        request = request_frame("Metadata", 1, API_BY_NAME["Metadata"].request(topics=None))
        writer.write(request * 2000)
        await asyncio.sleep(self._random.random() * 0.2)
        writer.transport.abort()
        del reader

    async def _send_and_look(self, data: bytes) -> None:
        """Sends, reads what may come in a moment, and leaves in one of several ways."""
        reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            writer.write(data)
            if self._random.random() < 0.2:
                writer.write_eof()
            await asyncio.wait_for(reader.read(1 << 16), RESPONSE_WAIT_SECONDS)
        finally:
            if self._random.random() < 0.5:
                writer.transport.abort()
            else:
                writer.close()

    # ---- requests

    def _request(self) -> bytes:
        """A well-formed request of any API and version, with values of any kind."""
        handler = self._random.choice(list(HANDLERS.values()))
        version = self._random.randint(handler.served.first, handler.served.last)
        client_id = self._random.choice((None, "", "fuzz", "\u00fc" * 50))
        header = RequestHeader(handler.api.key, version, self._random.getrandbits(31), client_id)
        message = self._message(handler.api.request, version)
        return encode_request_header(header) + _encoded(handler.api, version, message)

    def _message(self, message_class: type, version: int) -> Any:
        values = {}
        for name, row in table_of(message_class).items():
            if version in row.versions:
                values[name] = self._value(row, version)
        return message_class(**values)

    def _value(self, row: Field, version: int) -> Any:
        if version in row.nullable and self._random.random() < 0.2:
            return None
        if isinstance(row.type, Array):
            item = row.type.item
            count = self._random.choice((0, 1, 1, 2, 3))
            if isinstance(item, Nested):
                return [self._message(item.message, version) for _ in range(count)]
            return [self._primitive(item) for _ in range(count)]
        if isinstance(row.type, Nested):
            return self._message(row.type.message, version)
        return self._primitive(row.type)

    def _primitive(self, primitive: Primitive) -> Any:
        name = primitive.name
        if name in EDGES:
            return self._random.choice(EDGES[name])
        if name == "string":
            return self._random.choice(
                ("", *ATTACKED_TOPICS, "group", "range", "a b", "x" * 300, "\0")
            )
        if name == "uuid":
            return self._random.choice((bytes(16), self._random.randbytes(16)))
        if name == "records" and self._random.random() < 0.7:
            records = [Record(0, 0, b"k", b"v", [])] * self._random.randrange(1, 4)
            return (
                self._mutated(bytes(build_batch(records)))
                if self._random.random() < 0.5
                else (build_batch(records))
            )
        return self._random.randbytes(self._random.randrange(100))

    def _mutated(self, data: bytes) -> bytes:
        mutated = bytearray(data)
        for _ in range(self._random.randrange(1, 6)):
            position = self._random.randrange(len(mutated) + 1)
            kind = self._random.randrange(5)
            if kind == 0:
                mutated[position : position + 1] = self._random.randbytes(1)
            elif kind == 1:
                del mutated[position:]
            elif kind == 2:
                mutated[position:position] = self._random.randbytes(self._random.randrange(9))
            elif kind == 3:
                mutated[position : position + 4] = self._random.choice(
                    (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\0\0\0\0")
                )
            else:
                mutated[position : position + 2] = self._random.choice((b"\x7f\xff", b"\xff\xff"))
        return bytes(mutated)


def _encoded(api: Api, version: int, message: Any) -> bytes:
    return api.request_codec(version).encode(message)


def _message(api_name: str, class_name: str, *values: Any, **fields: Any) -> Any:
    """A message that is nested in those of an API."""
    module = sys.modules[API_BY_NAME[api_name].request.__module__]
    return getattr(module, class_name)(*values, **fields)


def _topic(name: str) -> Any:
    return _message("Metadata", "MetadataRequestTopic", name=name)


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


def fuzz_a_broker(seconds: float, seed: int) -> Report:
    """Starts a broker, attacks it, and looks at it afterwards."""
    with BrokerProcess(*BROKER_OPTIONS) as broker:
        sockets_before = broker.socket_count()
        report = asyncio.run(Fuzzer(*broker.address, seed).run(seconds))
        if broker.process.poll() is not None:
            report.failures.append(f"the broker ended with {broker.process.returncode}")
            return report
        resident_bytes = broker.resident_bytes()
        if resident_bytes > RESIDENT_BYTES_MAX:
            report.failures.append(f"the broker uses {resident_bytes >> 20} MiB")
        deadline = time.monotonic() + LET_GO_SECONDS_MAX
        while broker.socket_count() > sockets_before and time.monotonic() < deadline:
            time.sleep(0.05)
        if broker.socket_count() > sockets_before:
            report.failures.append("the broker keeps sockets of peers that are gone")
        broker.signal()
        if (status := broker.wait()) != 0:
            report.failures.append(f"the broker ended with {status} when asked to stop")
        if any("Traceback" in line or " ERROR " in line for line in broker.errors):
            report.failures.append("the broker logged errors of its own:")
            report.failures += broker.errors[-60:]
    return report


def main() -> int:
    """Attacks for as long as asked; the exit status is 1 when something was found."""
    parser = argparse.ArgumentParser(description="Attack a broker with malformed bytes.")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None, help="default: another one each time")
    parser.add_argument("--address", help="HOST:PORT of a broker; default: one of our own")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else int(time.time())
    if options.address:
        host, _, port = options.address.rpartition(":")
        report = asyncio.run(Fuzzer(host, int(port), seed).run(options.seconds))
    else:
        report = fuzz_a_broker(options.seconds, seed)
    print(report)
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
