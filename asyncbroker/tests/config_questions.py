"""Questions about settings, and what a broker answers to them.

As in `group_questions.py`, the same questions go to Apache Kafka once and to our handlers in every
test run. To ask Kafka again, start one with an empty data directory and the settings below, and run

    python -m asyncbroker.tests.config_questions HOST:PORT > asyncbroker/tests/golden/FILE

    log.retention.minutes=5         log.retention.hours=3       log.roll.hours=5
    log.segment.bytes=2000000       compression.type=lz4        message.max.bytes=2000000
    group.consumer.session.timeout.ms=50000

A setting is one line: its value, where that comes from, and all the places that have one, in order.
"""

from __future__ import annotations

from typing import Final

from asyncbroker.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from asyncbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from asyncbroker.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from asyncbroker.protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from asyncbroker.protocol.messages.list_config_resources import ListConfigResourcesRequest
from asyncbroker.tests.asked_broker import Asked, print_answers

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3

SETTINGS: Final = {
    "log.retention.minutes": "5",
    "log.retention.hours": "3",
    "log.roll.hours": "5",
    "log.segment.bytes": "2000000",
    "compression.type": "lz4",
    "message.max.bytes": "2000000",
    "group.consumer.session.timeout.ms": "50000",
}

# Each of a topic's settings, with another value than the default.
ALTERED: Final = {
    "cleanup.policy": "compact,delete",
    "compression.gzip.level": "5",
    "compression.lz4.level": "5",
    "compression.type": "zstd",
    "compression.zstd.level": "5",
    "delete.retention.ms": "5000",
    "file.delete.delay.ms": "5000",
    "flush.messages": "5000",
    "flush.ms": "5000",
    "follower.replication.throttled.replicas": "0:1",
    "index.interval.bytes": "5000",
    "leader.replication.throttled.replicas": "*",
    "max.compaction.lag.ms": "5000",
    "max.message.bytes": "5000",
    "message.timestamp.after.max.ms": "5000",
    "message.timestamp.before.max.ms": "5000",
    "message.timestamp.type": "LogAppendTime",
    "min.cleanable.dirty.ratio": "0.25",
    "min.compaction.lag.ms": "500",
    "min.insync.replicas": "2",
    "preallocate": "true",
    "retention.bytes": "5000",
    "retention.ms": "5000",
    "segment.bytes": "1500000",
    "segment.index.bytes": "5000",
    "segment.jitter.ms": "5000",
    "segment.ms": "5000",
    "unclean.leader.election.enable": "true",
}

GROUP_CHANGES: Final = {
    "session": ("consumer.session.timeout.ms", SET, "60000"),
    "unknown": ("consumer.session.timeout", SET, "60000"),
    "not a number": ("consumer.session.timeout.ms", SET, "soon"),
    "too short": ("consumer.session.timeout.ms", SET, "44999"),
    "too long": ("consumer.session.timeout.ms", SET, "60001"),
    "no value": ("consumer.session.timeout.ms", SET, None),
    "no list": ("consumer.session.timeout.ms", APPEND, "1"),
    "deletes what is not set": ("consumer.session.timeout.ms", DELETE, None),
    "deletes what is unknown": ("nope", DELETE, None),
    "heartbeat too short": ("consumer.heartbeat.interval.ms", SET, "4999"),
    "heartbeat": ("consumer.heartbeat.interval.ms", SET, "15000"),
    "assignment": ("consumer.assignment.interval.ms", SET, "0"),
    "assignment too long": ("consumer.assignment.interval.ms", SET, "15001"),
    "reset": ("share.auto.offset.reset", SET, "earliest"),
    "reset by capitals": ("share.auto.offset.reset", SET, "EARLIEST"),
    "reset by duration": ("share.auto.offset.reset", SET, "by_duration:PT1H"),
    "reset by half a day": ("share.auto.offset.reset", SET, "by_duration:P0.5D"),
    "reset by no duration": ("share.auto.offset.reset", SET, "by_duration:P"),
    "reset to the middle": ("share.auto.offset.reset", SET, "middle"),
    "isolation": ("share.isolation.level", SET, "read_committed"),
    "no isolation": ("share.isolation.level", SET, "none"),
    "lock": ("share.record.lock.duration.ms", SET, "15000"),
    "lock too short": ("share.record.lock.duration.ms", SET, "14999"),
    "deliveries too many": ("share.delivery.count.limit", SET, "11"),
    "locks": ("share.partition.max.record.locks", SET, "100"),
    "locks too few": ("share.partition.max.record.locks", SET, "99"),
    "renewals": ("share.renew.acknowledge.enable", SET, "false"),
    "standbys": ("streams.num.standby.replicas", SET, "2"),
    "too many standbys": ("streams.num.standby.replicas", SET, "3"),
    "streams delay": ("streams.initial.rebalance.delay.ms", SET, "0"),
}


class ConfigQuestions:
    """One round of questions."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked

    async def run(self) -> None:
        """Asks them all."""
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        await self.asked.send(CreateTopicsRequest([topic], 10_000), 7)
        await self.describe("a new topic", TOPIC, "t")
        await self.alter("a topic", TOPIC, "t", *((n, SET, v) for n, v in ALTERED.items()))
        await self.describe("an altered topic", TOPIC, "t")
        await self.describe("a group", GROUP, "nobody")
        await self.alter("no group", GROUP, "", GROUP_CHANGES["heartbeat"])
        await self.describe("no group", GROUP, "")
        for label, change in GROUP_CHANGES.items():
            await self.alter(f"a group: {label}", GROUP, f"g {label}", change)
        twice = [GROUP_CHANGES["heartbeat"], GROUP_CHANGES["heartbeat"]]
        await self.alter("a group: one setting twice", GROUP, "g", *twice)
        both = [("consumer.session.timeout.ms", SET, "55000"), GROUP_CHANGES["heartbeat"]]
        await self.alter("a group: two settings", GROUP, "g", *both)
        await self.describe("an altered group", GROUP, "g")
        await self.replace("a group", "g", AlterableConfig("streams.num.standby.replicas", "1"))
        await self.describe("a replaced group", GROUP, "g")
        await self.list_resources()

    async def describe(self, label: str, type: int, name: str) -> None:
        """All settings of a resource, a line each."""
        resource = DescribeConfigsResource(type, name, None)
        request = DescribeConfigsRequest([resource], include_synonyms=True)
        (result,) = (await self.asked.send(request, 4)).results
        self.asked.note(f"{label}: error", result.error_code)
        for config in result.configs:
            self.asked.note(f"{label}: {config.name}", _told(config))

    async def alter(
        self, label: str, type: int, name: str, *changes: tuple[str, int, str | None]
    ) -> None:
        """What a change of a resource comes to."""
        configs = [IncrementalAlterableConfig(*change) for change in changes]
        resource = IncrementalAlterConfigsResource(type, name, configs)
        await self.asked.ask(f"alters {label}", IncrementalAlterConfigsRequest([resource]), 1)

    async def replace(self, label: str, name: str, *configs: AlterableConfig) -> None:
        """The same in the older way."""
        resource = AlterConfigsResource(GROUP, name, list(configs))
        await self.asked.ask(f"replaces {label}", AlterConfigsRequest([resource]), 2)

    async def list_resources(self) -> None:
        """What has settings."""
        await self.asked.ask("lists, version 0", ListConfigResourcesRequest(), 0)
        for types in (
            [GROUP],
            [BROKER],
            [LOGGER],
            [CLIENT_METRICS],
            [GROUP, GROUP],
            [1],
            [GROUP, 1],
        ):
            await self.asked.ask(f"lists {types}", ListConfigResourcesRequest(types), 1)
        everything = await self.asked.send(ListConfigResourcesRequest(), 1)
        found = sorted({each.resource_type for each in everything.config_resources})
        self.asked.note("lists everything: types", found)


def _told(config: DescribeConfigsResourceResult) -> str:
    synonyms = ", ".join(f"{each.name}={each.value} {each.source}" for each in config.synonyms)
    kind = f"{config.config_source} type {config.config_type}"
    return f"{config.value} {kind}{' read only' if config.read_only else ''}; {synonyms}"


async def ask_all(asked: Asked) -> None:
    """One round of questions."""
    await ConfigQuestions(asked).run()


if __name__ == "__main__":
    print_answers(ask_all)
