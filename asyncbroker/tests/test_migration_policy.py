"""`group.consumer.migration.policy` of the broker: which way groups may change between the
protocols. What each policy means is tested with the coordinator; here that the setting reaches it.
"""

from __future__ import annotations

from typing import Any

import pytest

from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from asyncbroker.protocol.messages.list_groups import ListGroupsRequest
from asyncbroker.tests.data_path_harness import UnderTest, settle, under_test
from asyncbroker.tests.group_requests import TOPIC, join_request, sync_request
from asyncbroker.tests.groups_harness import OLD_JOIN


def under_policy(policy: str) -> Any:
    settings: dict[str, Any] = {
        "group_initial_rebalance_delay_ms": "0",
        "group_consumer_migration_policy": policy,
    }
    return under_test(**settings)


async def join_as_classic(t: UnderTest) -> Any:
    """A new member of the classic protocol, which is answered at once."""
    joining = t.begin(join_request("g", version=OLD_JOIN), OLD_JOIN)
    await settle()
    t.clock.advance(0)
    await settle()
    return await joining


async def beat(t: UnderTest, epoch: int) -> Any:
    """The heartbeat of a consumer: 0 joins, -1 leaves."""
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="consumer",
        member_epoch=epoch,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )
    return await t.ask(request, 1)


async def type_of_group(t: UnderTest) -> str:
    (group,) = (await t.ask(ListGroupsRequest(), 5)).groups
    return str(group.group_type)


@pytest.mark.parametrize(
    ("policy", "error", "group_type"),
    [
        ("disabled", ErrorCode.GROUP_ID_NOT_FOUND, "classic"),
        ("DOWNGRADE", ErrorCode.GROUP_ID_NOT_FOUND, "classic"),
        ("Upgrade", ErrorCode.NONE, "consumer"),
        ("bidirectional", ErrorCode.NONE, "consumer"),
    ],
)
async def test_the_brokers_policy_says_whether_a_consumer_may_join_a_classic_group(
    policy: str, error: ErrorCode, group_type: str
) -> None:
    async with under_policy(policy) as t:
        await t.topic(TOPIC)
        joined = await join_as_classic(t)
        parts = {joined.member_id: b""}
        sync = sync_request("g", joined.generation_id, joined.member_id, parts=parts, version=3)
        assert (await t.ask(sync, 3)).error_code == ErrorCode.NONE
        assert (await beat(t, 0)).error_code == error
        assert await type_of_group(t) == group_type


@pytest.mark.parametrize(
    ("policy", "group_type"),
    [
        ("disabled", "consumer"),
        ("upgrade", "consumer"),
        ("downgrade", "classic"),
        ("bidirectional", "classic"),
    ],
)
async def test_the_brokers_policy_says_what_becomes_of_a_group_without_consumers(
    policy: str, group_type: str
) -> None:
    async with under_policy(policy) as t:
        await t.topic(TOPIC)
        assert (await beat(t, 0)).error_code == ErrorCode.NONE
        assert (await join_as_classic(t)).error_code == ErrorCode.NONE
        assert (await beat(t, -1)).error_code == ErrorCode.NONE
        assert await type_of_group(t) == group_type
