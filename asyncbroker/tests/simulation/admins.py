"""Administrators: one makes the topics and changes them, one makes and deletes its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from asyncbroker.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from asyncbroker.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from asyncbroker.protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from asyncbroker.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from asyncbroker.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from asyncbroker.protocol.records import Record, build_batch
from asyncbroker.tests.history.history import ALL, Outcome, Removal, Send, Trim
from asyncbroker.tests.simulation.client import PASSING, Client, Shared, place_of
from asyncbroker.tests.simulation.fetching import fetch
from asyncbroker.tests.simulation.link import Lost

# Clients keep the right time when the broker's clock jumps. After a restart with a clock that is
# wrong a broker has to take records for old ones: only topics that expire anyway have a retention.
ANY_TIME: Final = {
    "message.timestamp.after.max.ms": str((1 << 63) - 1),
    "retention.ms": "-1",
}


class TopicSpec:
    """A topic to be made."""

    def __init__(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        self.name = name
        self.partitions = partitions
        self.configs = dict(configs)


async def create_topic(client: Client, spec: TopicSpec) -> None:
    """Creates a topic, as often as it takes, and learns its id."""
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                spec.name,
                spec.partitions,
                1,
                configs=[CreatableTopicConfig(*each) for each in spec.configs.items()],
            )
        ],
        timeout_ms=2000,
    )
    while True:
        response = await client.insist("CreateTopics", request)
        code = ErrorCode(response.topics[0].error_code)
        client.note("create", spec.name, code.name)
        if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            topic_id = await _id_of(client, spec.name)
            if topic_id is not None:
                client.shared.topic_ids[spec.name] = topic_id
                return
        elif code not in PASSING:
            client.shared.complain(
                client.name, f"create {spec.name}: {code.name} {response.topics[0].error_message}"
            )
        await client.pause(0.3)


async def _id_of(client: Client, name: str) -> bytes | None:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
    )
    response = await client.insist("Metadata", request)
    topic = response.topics[0]
    if ErrorCode(topic.error_code) is ErrorCode.NONE:
        return bytes(topic.topic_id)
    return None


class Admin(Client):
    """Creates the topics, then deletes records and alters settings now and then."""

    def __init__(self, shared: Shared, name: str, specs: list[TopicSpec], *, trims: bool) -> None:
        super().__init__(shared, name)
        self._specs = specs
        self._trims = trims

    async def run(self) -> None:
        """Works until the run is finishing."""
        for spec in self._specs:
            await create_topic(self, spec)
            self.shared.topics[spec.name] = spec.partitions
        while not self.shared.is_finishing:
            await self.pause(2.0)
            spec = self.random.choice(self._specs)
            try:
                if self._trims and self.random.random() < 0.7:
                    await self._trim(spec)
                else:
                    await self._alter(spec)
            except Lost:
                continue
        self.disconnect()
        self.is_done = True

    async def _trim(self, spec: TopicSpec) -> None:
        if spec.configs.get("cleanup.policy", "delete") != "delete":
            return
        index = self.random.randrange(spec.partitions)
        place = place_of(spec.name, index)
        known = [
            each.high_watermark
            for each in self.shared.history.operations[-200:]
            if getattr(each, "place", None) == place and hasattr(each, "high_watermark")
        ]
        end = max(known, default=0)
        offset = self.random.randint(0, end) // 2
        trim = Trim(self.name, place, offset, self.now)
        self.shared.history.add(trim)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(spec.name, [DeleteRecordsPartition(index, offset)])],
            timeout_ms=2000,
        )
        response = await self.ask("DeleteRecords", request)
        answer = response.topics[0].partitions[0]
        code = ErrorCode(answer.error_code)
        self.note("trim", place, offset, code.name, answer.low_watermark)
        trim.ended = self.now
        if code is ErrorCode.NONE:
            trim.outcome, trim.low_watermark = Outcome.OK, answer.low_watermark
        elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
            trim.outcome = Outcome.FAIL
        elif code not in PASSING:
            self.shared.complain(self.name, f"trim {place} to {offset}: {code.name}")

    async def _alter(self, spec: TopicSpec) -> None:
        value = str(self.random.choice([200, 1000, 604_800_000]))
        request = IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsResource(
                    2, spec.name, [IncrementalAlterableConfig("segment.ms", 0, value)]
                )
            ]
        )
        response = await self.ask("IncrementalAlterConfigs", request)
        code = ErrorCode(response.responses[0].error_code)
        self.note("alter", spec.name, value, code.name)
        if code is not ErrorCode.NONE and code not in PASSING:
            self.shared.complain(self.name, f"alter {spec.name}: {code.name}")


class Churn(Client):
    """Makes a topic, writes and reads it, deletes it, and makes it again."""

    async def run(self) -> None:
        """Goes round until the run is finishing."""
        number = life = 0
        while not self.shared.is_finishing:
            life += 1
            name = f"churn{number}"
            await create_topic(self, TopicSpec(name, self.random.randint(1, 2), ANY_TIME))
            # In the history each life of the topic is a place of its own.
            self.shared.topics.pop(name, None)
            if not await self._use(name, life) or not await self._delete(name, life):
                # What is still on its way must not meet another topic of this name.
                number += 1
                self.shared.history.add(Removal(self.name, frozenset({f"{name}/{life}"}), self.now))
                await self.pause(0.5)
                continue
            await self.pause(0.5)
            if await _id_of(self, name) is not None:
                self.shared.complain(self.name, f"{name}/{life} was deleted and is there again")
        self.disconnect()
        self.is_done = True

    async def _use(self, name: str, life: int) -> bool:
        """Writes and reads; whether nothing is left on its way."""
        sends: list[Send] = []
        for count in range(self.random.randint(0, 3)):
            value = f"{name}/{life}:{count}".encode()
            send = Send(self.name, f"{name}/{life}", value, None, ALL, count, False, True, self.now)
            self.shared.history.add(send)
            try:
                response = await self.ask("Produce", _produce(name, value))
            except Lost:
                return False
            outcome = response.responses[0].partition_responses[0]
            code = ErrorCode(outcome.error_code)
            self.note("churn", value, code.name)
            if code is not ErrorCode.NONE:
                if code not in PASSING:
                    self.shared.complain(self.name, f"produce to {name}: {code.name}")
                return False
            send.outcome, send.offset, send.ended = Outcome.OK, outcome.base_offset, self.now
            sends.append(send)
        return await self._read(name, life, sends)

    async def _read(self, name: str, life: int, sends: list[Send]) -> bool:
        before = len(self.shared.history.operations)
        try:
            answer = (await fetch(self, {(name, 0): 0}, wait_ms=0))[name, 0]
        except Lost:
            return False
        mine: Any
        for mine in self.shared.history.operations[before:]:
            if getattr(mine, "place", "") == place_of(name, 0) and mine.process == self.name:
                mine.place = f"{name}/{life}"
        if answer.code is ErrorCode.NONE and answer.next_position != len(sends):
            self.shared.complain(
                self.name, f"{name}/{life} ends at {answer.next_position}, not {len(sends)}"
            )
        elif answer.code is not ErrorCode.NONE and answer.code not in PASSING:
            self.shared.complain(self.name, f"fetch of {name}: {answer.code.name}")
        return True

    async def _delete(self, name: str, life: int) -> bool:
        removal = Removal(self.name, frozenset({f"{name}/{life}"}), self.now)
        self.shared.history.add(removal)
        version = self.shared.versions["DeleteTopics"]
        while True:
            response = await self.insist(
                "DeleteTopics",
                DeleteTopicsRequest(topics=[DeleteTopicState(name)], timeout_ms=2000)
                if version >= 6
                else DeleteTopicsRequest(topic_names=[name], timeout_ms=2000),
            )
            code = ErrorCode(response.responses[0].error_code)
            self.note("delete", name, code.name)
            if code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                removal.outcome, removal.ended = Outcome.OK, self.now
                return True
            if code not in PASSING:
                self.shared.complain(self.name, f"delete {name}: {code.name}")
            await self.pause(0.2)


def _produce(name: str, value: bytes) -> ProduceRequest:
    batch = bytes(build_batch([Record(0, 1_700_000_000_000, None, value)]))
    return ProduceRequest(
        acks=ALL,
        timeout_ms=3000,
        topic_data=[TopicProduceData(name, [PartitionProduceData(0, batch)])],
    )
