"""Long lives at random: requests of all kinds, crashes at any change, errors of the disk.

A seed is one machine through several lives of a broker. Each life begins with all promises being
checked, does what chance says, and ends with a stop, `kill -9`, a loss of power, or a death in the
middle of something, recovery among it; in some lives calls to the disk fail for a while. Seeds are
tried from 0 on for 20 seconds, for ten minutes with ASYNCBROKER_LONG=1. A failure names its seed;
ASYNCBROKER_SEED=123 tries that one, and ASYNCBROKER_SEED=1000- all from there on.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from random import Random
from typing import Final

import pytest

from asyncbroker.log.errors import DirectoryRefused
from asyncbroker.log.tests.crash_disk import everything, sampled, synced_only
from asyncbroker.log.tests.crash_files import Died, PartialWrite
from asyncbroker.protocol.errors import KafkaError
from asyncbroker.tests.crash_client import Client
from asyncbroker.tests.crash_machine import Machine
from asyncbroker.tests.crash_oracle import Existence
from asyncbroker.tests.crash_scenarios import CLEANER_SECONDS, SETTINGS, work_on
from asyncbroker.tests.long import IS_LONG

SECONDS: Final = 600.0 if IS_LONG else 20.0
SEED: Final = os.environ.get("ASYNCBROKER_SEED", "")

TOPICS: Final = ("flights", "gates")
COMPACTED: Final = "latest"
POLICY: Final = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01"}


class Chance:
    """What happens in the lives of one seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    async def live(self, client: Client) -> None:
        """So many requests, each of any kind."""
        for _ in range(self.random.choice([0, 5, 20, 40])):
            do = self.random.choices(*zip(*self.requests(), strict=True))[0]
            try:
                await do(client)
            except KafkaError as error:
                client.errors.append(error.code)

    def requests(self) -> tuple[tuple[Callable[[Client], Awaitable[None]], int], ...]:
        """What a client may ask, and how often it does."""
        return (
            (self.produce, 30),
            (self.produce_once, 20),
            (self.produce_everywhere, 8),
            (self.wait, 12),
            (self.commit, 8),
            (self.delete_records, 4),
            (self.create, 3),
            (self.delete, 1),
            (self.grow, 1),
        )

    def topic(self, client: Client) -> tuple[str, int]:
        """A partition that is there, as far as clients know."""
        there = [
            name
            for name, topic in client.oracle.topics.items()
            if topic.existence is Existence.THERE
        ]
        name = self.random.choice(there or [TOPICS[0]])
        count = client.oracle.topics[name].partition_count if there else 1
        return name, self.random.randrange(count)

    async def produce(self, client: Client) -> None:
        await self.create_first(client)
        random = self.random
        await client.produce(
            *self.topic(client),
            count=random.choice([1, 1, 3]),
            size=random.choice([20, 20, 150, 700]),
            acks=random.choice([1, 1, -1]),
            key=random.choice([b"a", b"b", b"c"]),
        )

    async def produce_once(self, client: Client) -> None:
        await self.create_first(client)
        await client.produce_once(*self.topic(client), count=self.random.choice([1, 2]))

    async def produce_everywhere(self, client: Client) -> None:
        await self.create_first(client)
        await client.produce_everywhere(self.topic(client)[0])

    async def wait(self, client: Client) -> None:
        await client.wait(self.random.choice([0.5, 1.5, 1.5, CLEANER_SECONDS, 61.0]))

    async def commit(self, client: Client) -> None:
        await self.create_first(client)
        offsets = {self.random.choice("ab"): self.random.randrange(1000) for _ in range(2)}
        await client.commit_together(offsets, TOPICS[0])

    async def delete_records(self, client: Client) -> None:
        await self.create_first(client)
        name, index = self.topic(client)
        partition = client.partition(name, index)
        start, end = partition.log_start_offset, partition.high_watermark
        if name != COMPACTED:
            await client.delete_records(name, self.random.randint(start, end), index)

    async def create_first(self, client: Client) -> None:
        if TOPICS[0] not in client.oracle.topics:
            await client.create(TOPICS[0], self.random.choice([1, 2]), SETTINGS)

    async def create(self, client: Client) -> None:
        name = self.random.choice([*TOPICS, COMPACTED])
        if name not in client.oracle.topics:
            settings = {**SETTINGS, **POLICY} if name == COMPACTED else SETTINGS
            await client.create(name, self.random.choice([1, 2]), settings)

    async def delete(self, client: Client) -> None:
        name, _ = self.topic(client)
        # Offsets of a topic that is deleted are as well.
        if name in client.oracle.topics and name != TOPICS[0]:
            await client.delete(name)

    async def grow(self, client: Client) -> None:
        name, _ = self.topic(client)
        if name in client.oracle.topics:
            await client.grow(name, client.oracle.topics[name].partition_count + 1)


def life(machine: Machine, chance: Chance) -> Machine:
    """One life; the machine that it leaves behind."""
    random, files = chance.random, machine.files
    if random.random() < 0.5:
        files.die_in = random.randrange(random.choice([30, 300]))
        files.dying_part = random.choice([0.0, 0.0, random.random()])
    is_faulty = random.random() < 0.2
    stops = random.random() < 0.3

    async def live() -> None:
        try:
            client = await machine.start()
        except (OSError, DirectoryRefused):
            assert is_faulty
            return
        if not is_faulty:
            await client.check()
        await chance.live(client)
        assert is_faulty or not client.errors, client.errors
        if stops:
            await client.stop()

    if is_faulty:
        files.on_call = faults(random)
    with contextlib.suppress(Died):
        machine.run(live())
    files.on_call = None
    point = machine.point("")
    if random.random() < 0.3:
        return point.killed()
    choose = random.choice([synced_only, everything, sampled(random), sampled(random)])
    return point.crashed(choose)


def faults(random: Random) -> Callable[[str, str], None]:
    """Some calls in a row fail, or only those of one kind."""
    first = random.randrange(400)
    last = first + random.choice([0, 0, 10, 1000])
    error = random.choice(
        [
            OSError(errno.EIO, "Input/output error"),
            OSError(errno.ENOSPC, "No space left on device"),
            PartialWrite(errno.ENOSPC, random.random()),
        ]
    )
    only = random.choice(["", "pwrite", "datasync", "create", "sync_directory"])
    count = itertools.count()

    def fail(operation: str, path: str) -> None:
        if first <= next(count) <= last and only in ("", operation):
            raise error

    return fail


def try_seed(seed: int) -> None:
    machine, chance = Machine(), Chance(seed)
    for _ in range(chance.random.choice([3, 6])):
        machine = life(machine, chance)
    machine.live(work_on, keeps_points=False)
    machine.live(work_on, keeps_points=False)


def seeds() -> Iterator[int]:
    if SEED and not SEED.endswith("-"):
        yield int(SEED)
        return
    end = time.monotonic() + SECONDS
    for seed in itertools.count(int(SEED.removesuffix("-") or "0")):
        if time.monotonic() > end:
            return
        yield seed


@pytest.mark.timeout(SECONDS * 3)
def test_no_seed_breaks_a_promise() -> None:
    for seed in seeds():
        try:
            try_seed(seed)
        except Exception as error:
            raise AssertionError(f"ASYNCBROKER_SEED={seed}: {error!r}") from error
