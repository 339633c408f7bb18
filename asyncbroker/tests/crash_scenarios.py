"""The table of what a broker does while it crashes.

To add a scenario, write its script, a coroutine that makes requests through the `Client`, and give
it a row. `test_broker_crashes.py` then crashes the broker before every change that its files see
during the script, the start before it and the stop after it, and `test_broker_faults.py` has every
call fail that it comes to. A script of a hundred to two hundred changes is checked in a few
seconds. What lies on the disk when the script begins can be made by another one, `before`. What the
client cannot ask for yet, or the oracle not judge, goes into `crash_client.py` and
`crash_oracle.py`.

Segments are rolled by time, with `segment.ms`: a segment of the smallest size would take too long
to fill.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from asyncbroker.tests.crash_client import Client
from asyncbroker.tests.crash_machine import Script

TOPIC: Final = "flights"
# Of each topic: segments of a second, and an index entry for every other small batch.
SETTINGS: Final = {"segment_ms": "1000", "index_interval_bytes": "150"}
ROLL_SECONDS: Final = 1.5
# `log.cleaner.backoff.ms`, and some.
CLEANER_SECONDS: Final = 16.0
# `log.retention.check.interval.ms`, and some.
RETENTION_SECONDS: Final = 301.0


async def work_on(client: Client) -> None:
    """What a broker must be able to do after any crash: something with everything there is."""
    for name in client.oracle.topics:
        await client.produce_everywhere(name)
    for group, offsets in list(client.oracle.commits.items()):
        await client.commit(group, offsets[-1] + 1)


# ---- scripts


async def append(client: Client) -> None:
    """Batches of all kinds in one partition, over two segments."""
    await client.create(TOPIC, settings=SETTINGS)
    for count in (1, 3, 2):
        await client.produce(TOPIC, count=count, acks=1)
        await client.produce_once(TOPIC, count=count)
        await client.produce(TOPIC, count=count, size=90)
    await client.wait(ROLL_SECONDS)
    await client.produce(TOPIC, acks=1)
    await client.produce_once(TOPIC)
    await client.produce(TOPIC, size=300)


async def roll(client: Client) -> None:
    """Many segments, most of them not durable for a while."""
    await client.create(TOPIC, settings=SETTINGS)
    for at in range(8):
        await client.produce(TOPIC, count=2, acks=1)
        await client.produce(TOPIC, acks=1)
        if at % 3 == 2:
            await client.produce_once(TOPIC)
        if at == 4:
            await client.checkpoint()
        await client.wait(ROLL_SECONDS)
    await client.produce(TOPIC)


async def commit_rounds(client: Client) -> None:
    """Rounds that make several partitions durable, with earlier acks=1 batches among them."""
    await client.create(TOPIC, 3, settings=SETTINGS)
    for index in (0, 2):
        await client.produce(TOPIC, index, acks=1)
        await client.produce_everywhere(TOPIC)
    await client.wait(ROLL_SECONDS)
    await client.produce(TOPIC, 1, acks=1, size=200)
    await client.produce_everywhere(TOPIC)


async def checkpoint(client: Client) -> None:
    """Checkpoints with and without anything new."""
    await client.produce_everywhere(TOPIC)
    await client.checkpoint()
    await client.checkpoint()
    for _ in range(3):
        await client.wait(ROLL_SECONDS)
        await client.produce_everywhere(TOPIC)
        await client.produce(TOPIC, acks=1)
        await client.checkpoint()


async def delete_records(client: Client) -> None:
    """The beginning of a log moves, within a segment, over segments, and up to its end."""
    await client.produce(TOPIC, acks=1, count=3)
    await client.delete_records(TOPIC, 2)
    await client.delete_records(TOPIC, 9)
    await client.produce_once(TOPIC)
    await client.checkpoint()
    await client.produce(TOPIC, acks=1)
    await client.delete_records(TOPIC, 17)  # all that there is
    await client.wait(ROLL_SECONDS)
    await client.produce(TOPIC)
    await client.create("new", settings=SETTINGS)
    for _ in range(4):
        await client.produce_once("new", count=2)
        await client.wait(ROLL_SECONDS)
    await client.delete_records("new", 5)  # no checkpoint knows of it


async def topics(client: Client) -> None:
    """Topics come, grow, go, and come back under the same name."""
    await client.create("short", 2, settings=SETTINGS)
    await client.produce_everywhere("short")
    await client.grow("short", 3)
    await client.produce_everywhere("short")
    await client.checkpoint()
    await client.delete("short")
    await client.create("short", 1, settings=SETTINGS)
    await client.produce("short", acks=1)
    await client.produce("short")
    await client.delete("short")
    await client.create("short", 2, settings=SETTINGS)
    await client.produce_everywhere("short")
    await client.produce_everywhere(TOPIC)


async def groups(client: Client) -> None:
    """Offsets of some groups, alone and in one round; a topic goes of which there are some."""
    await client.commit("a", 1)
    await client.commit_together({"a": 2, "b": 1, "c": 5})
    await client.wait(ROLL_SECONDS)
    await client.produce_everywhere(TOPIC)
    await client.commit_together({"a": 3, "c": 7})
    await client.checkpoint()
    await client.commit("b", 2)


async def retention(client: Client) -> None:
    """Segments grow old, and are deleted while others are written."""
    await client.create("brief", settings={**SETTINGS, "retention_ms": "2000"})
    for _ in range(3):
        for _ in range(2):
            await client.produce_once("brief", count=2)
            await client.produce("brief", acks=1)
            await client.wait(ROLL_SECONDS)
        client.expect_deletion("brief")
        await client.wait(RETENTION_SECONDS)


async def compaction(client: Client) -> None:
    """A compacted topic is written to and compacted in turns."""
    for at in range(3):
        for key in (b"a", b"b", b"%d" % at):
            await client.produce("latest", key=key, acks=1)
            await client.produce_once("latest", key=key, count=2)
        await client.wait(ROLL_SECONDS)
        await client.produce("latest", key=b"a")
        await client.wait(CLEANER_SECONDS)


async def everything(client: Client) -> None:
    """A little of all that there is."""
    await client.produce(TOPIC, acks=1)
    await client.produce_everywhere(TOPIC)
    await client.create("other", settings=SETTINGS)
    await client.produce("other", count=2)
    await client.commit_together({"a": 1, "b": 2})
    await client.checkpoint()
    await client.wait(ROLL_SECONDS)
    await client.produce(TOPIC, 1)
    await client.produce_once(TOPIC)
    await client.produce_once(TOPIC)
    await client.delete_records(TOPIC, 8)
    await client.grow("other", 2)
    await client.commit("a", 2)
    await client.delete("other")
    await client.checkpoint()
    await client.produce_everywhere(TOPIC)


async def compacted(client: Client) -> None:
    """A compacted topic with three segments that were not looked at yet."""
    policy = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01"}
    await client.create("latest", settings={**SETTINGS, **policy})
    for key in (b"a", b"b", b"a"):
        await client.produce("latest", key=key, count=2)
        await client.produce_once("latest", key=b"c")
        await client.wait(ROLL_SECONDS)


async def filled(client: Client) -> None:
    """A topic of two partitions, the first of which has four segments."""
    await client.create(TOPIC, 2, settings=SETTINGS)
    for _ in range(4):
        await client.produce_once(TOPIC, count=2)
        await client.produce(TOPIC, count=1)
        await client.wait(ROLL_SECONDS)


# ---- the table


@dataclass(frozen=True, slots=True)
class Scenario:
    """A script, what is there before, the broker's settings, and a change that the script is
    about."""

    script: Script
    before: Script | None = None
    settings: dict[str, str] = field(default_factory=dict)
    change: str = ""


SCENARIOS: Final[dict[str, Scenario]] = {
    "append": Scenario(append),
    "roll": Scenario(roll),
    "commit rounds": Scenario(commit_rounds),
    "checkpoint": Scenario(checkpoint, before=filled),
    "delete records": Scenario(delete_records, before=filled),
    "topics": Scenario(topics, before=filled),
    "groups": Scenario(groups, before=filled),
    "retention": Scenario(retention, change="rename memory/brief-0/00000000000000000000.log"),
    "compaction": Scenario(
        compaction, before=compacted, change="rename memory/latest-0/00000000000000000000.log.swap"
    ),
    "everything": Scenario(everything, before=filled),
}
