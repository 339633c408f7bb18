"""Settings that single groups have of their own (resources of type 32), as in Apache Kafka 4.3."""

from __future__ import annotations

from typing import Any

import pytest

from asyncbroker.config import BrokerConfig
from asyncbroker.group_settings import check_group_settings, value_in_force
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.metadata_store import MemoryMetadataStore
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from asyncbroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from asyncbroker.protocol.messages.delete_groups import DeleteGroupsRequest
from asyncbroker.protocol.messages.describe_configs import DescribeConfigsResourceResult
from asyncbroker.settings import group_settings
from asyncbroker.tests.data_path_harness import UnderTest, settle, under_test
from asyncbroker.tests.test_config_handlers import DELETE, GROUP, SET, alter, describe, describe_one

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def config_of(**settings: str) -> BrokerConfig:
    return BrokerConfig.from_settings({name.replace("_", "."): v for name, v in settings.items()})


async def told(test: UnderTest, name: str, group: str = "g") -> DescribeConfigsResourceResult:
    return await describe_one(test, GROUP, group, name, include_synonyms=True)


def synonyms_of(entry: DescribeConfigsResourceResult) -> list[tuple[str, str | None, int]]:
    return [(each.name, each.value, each.source) for each in entry.synonyms]


async def beat(test: UnderTest, member: str = "m", **fields: Any) -> Any:
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member, **fields)
    return await test.ask(request, 1)


async def loaded(test: UnderTest) -> None:
    while test.broker.groups.is_loading():
        await settle()


async def join(test: UnderTest, member: str = "m") -> Any:
    return await beat(
        test,
        member,
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["flights"],
        topic_partitions=[],
    )


# ---- describing and altering


async def test_a_group_that_nobody_knows_has_the_settings_of_the_broker() -> None:
    async with under_test(group_consumer_session_timeout_ms="50000") as test:
        assert len((await describe(test, GROUP, "g")).configs) == len(group_settings())
        entry = await told(test, SESSION)
        assert (entry.value, entry.config_source, entry.read_only) == ("50000", 4, False)
        assert synonyms_of(entry) == [
            ("group.consumer.session.timeout.ms", "50000", 4),
            ("group.consumer.session.timeout.ms", "45000", 5),
        ]
        # Of these the broker has no setting.
        entry = await told(test, "share.auto.offset.reset")
        assert (entry.value, entry.config_source) == ("latest", 5)
        assert synonyms_of(entry) == [("share.auto.offset.reset", "latest", 5)]


async def test_what_is_set_goes_first_until_it_is_deleted() -> None:
    async with under_test() as test:
        assert await alter(test, GROUP, "g", (SESSION, SET, " 50000")) is ErrorCode.NONE
        entry = await told(test, SESSION)
        assert (entry.value, entry.config_source) == ("50000", 8)
        assert synonyms_of(entry) == [
            (SESSION, "50000", 8),
            ("group.consumer.session.timeout.ms", "45000", 5),
        ]
        assert (await told(test, SESSION, "other")).value == "45000"
        assert test.broker.group_settings.group_ids() == ["g"]
        assert await alter(test, GROUP, "g", (SESSION, DELETE, None)) is ErrorCode.NONE
        assert (await told(test, SESSION)).config_source == 5
        assert test.broker.group_settings.group_ids() == []


async def test_the_older_way_replaces_all_settings() -> None:
    async with under_test() as test:
        await alter(test, GROUP, "g", (SESSION, SET, "50000"))
        configs = [AlterableConfig(HEARTBEAT, "6000")]
        request = AlterConfigsRequest([AlterConfigsResource(GROUP, "g", configs)])
        (outcome,) = (await test.ask(request, 2)).responses
        assert outcome.error_code == 0
        assert test.broker.group_settings.of("g") == {HEARTBEAT: "6000"}


async def test_validate_only_sets_nothing() -> None:
    async with under_test() as test:
        change = (SESSION, SET, "50000")
        assert await alter(test, GROUP, "g", change, validate_only=True) is ErrorCode.NONE
        assert test.broker.group_settings.group_ids() == []


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("consumer.session.timeout", "1", "no such setting; did you mean consumer.session.timeout"),
        (SESSION, "soon", "must be a whole number of 1 or more"),
        (SESSION, "44999", "not be less than group.consumer.min.session.timeout.ms=45000"),
        (SESSION, "60001", "not be more than group.consumer.max.session.timeout.ms=60000"),
        (HEARTBEAT, "4999", "not be less than group.consumer.min.heartbeat.interval.ms=5000"),
        ("consumer.assignment.interval.ms", "15001", "not be more than"),
        ("share.delivery.count.limit", "11", "group.share.max.delivery.count.limit=10"),
        ("share.auto.offset.reset", "middle", "must be latest, earliest or by_duration"),
        ("share.auto.offset.reset", "by_duration:P", "must be latest, earliest or by_duration"),
        ("share.isolation.level", "none", "must be one of read_committed, read_uncommitted"),
        ("streams.num.standby.replicas", "3", "group.streams.max.standby.replicas=2"),
    ],
)
async def test_what_a_group_cannot_have_is_refused(name: str, text: str, message: str) -> None:
    with pytest.raises(KafkaError, match=message) as caught:
        check_group_settings({name: text}, config_of())
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    async with under_test() as test:
        refused = await alter(test, GROUP, "g", (HEARTBEAT, SET, "6000"), (name, SET, text))
        assert refused is not ErrorCode.NONE
        assert test.broker.group_settings.of("g") == {}


def test_a_session_must_outlive_the_time_between_two_heartbeats() -> None:
    config = config_of(group_consumer_max_heartbeat_interval_ms="100000")
    with pytest.raises(KafkaError, match=f"{SESSION}=45000: must be more than {HEARTBEAT}=45000"):
        check_group_settings({HEARTBEAT: "45000"}, config)
    both = {HEARTBEAT: "45000", SESSION: "50000"}
    assert check_group_settings(both, config) == both


@pytest.mark.parametrize(
    "text", ["earliest", "latest", "by_duration:P1D", "by_duration:PT1H30M", "by_duration:PT0.5S"]
)
def test_settings_of_other_kinds_of_groups_are_taken_and_kept(text: str) -> None:
    settings = {"share.auto.offset.reset": text, "streams.num.standby.replicas": "1"}
    assert check_group_settings(settings, config_of()) == settings


# ---- what they do


async def test_members_of_a_group_go_by_its_own_settings() -> None:
    async with under_test() as test:
        await test.topic()
        await alter(test, GROUP, "g", (SESSION, SET, "60000"), (HEARTBEAT, SET, "7000"))
        joined = await join(test)
        assert joined.heartbeat_interval_ms == 7_000
        test.clock.advance(59)
        assert (await beat(test, member_epoch=joined.member_epoch)).error_code == 0
        test.clock.advance(61)
        late = await beat(test, member_epoch=joined.member_epoch)
        assert late.error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_change_holds_from_the_next_heartbeat_on() -> None:
    async with under_test() as test:
        await test.topic()
        joined = await join(test)
        assert joined.heartbeat_interval_ms == 5_000
        await alter(test, GROUP, "g", (HEARTBEAT, SET, "7000"))
        assert (await beat(test, member_epoch=joined.member_epoch)).heartbeat_interval_ms == 7_000
        await alter(test, GROUP, "g", (HEARTBEAT, DELETE, None))
        assert (await beat(test, member_epoch=joined.member_epoch)).heartbeat_interval_ms == 5_000


async def test_the_time_between_assignments_is_a_groups_own() -> None:
    async with under_test() as test:
        await test.topic(partitions=2)
        await alter(test, GROUP, "g", ("consumer.assignment.interval.ms", SET, "10000"))
        await join(test)
        test.clock.advance(2)
        # The broker's second is over, the group's ten are not.
        assert (await join(test, "n")).assignment.topic_partitions == []
        group = test.broker.groups.describe_consumer_group("g")
        assert group.assignment_epoch < group.group_epoch


async def test_they_outlive_a_restart_and_the_group() -> None:
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    async with under_test(files=files, metadata=metadata) as test:
        await test.topic()
        await alter(test, GROUP, "g", (HEARTBEAT, SET, "7000"))
        joined = await join(test)
        await beat(test, member_epoch=-1)
        assert joined.error_code == 0
        deleted = await test.ask(DeleteGroupsRequest(["g"]), 2)
        assert deleted.results[0].error_code == 0
    async with under_test(files=files, metadata=metadata) as test:
        await loaded(test)
        assert (await told(test, HEARTBEAT)).value == "7000"
        assert (await join(test)).heartbeat_interval_ms == 7_000


async def test_where_the_broker_allows_less_than_before_the_nearest_value_is_in_force() -> None:
    files, metadata = MemoryFiles(), MemoryMetadataStore()
    async with under_test(files=files, metadata=metadata) as test:
        await test.topic()
        await alter(test, GROUP, "g", (HEARTBEAT, SET, "14000"))
    async with under_test(
        files=files, metadata=metadata, group_consumer_max_heartbeat_interval_ms="9000"
    ) as test:
        assert (await join(test)).heartbeat_interval_ms == 9_000
    config = config_of(group_consumer_max_heartbeat_interval_ms="9000")
    assert value_in_force(HEARTBEAT, {HEARTBEAT: "14000"}, config) == 9_000
