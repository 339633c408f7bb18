"""Members that wait: for time to pass, for each other, for a broker that stops."""

from __future__ import annotations

import asyncio
import logging

import pytest

from asyncbroker.context import RequestContext
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.metadata_store import MemoryMetadataStore
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.list_groups import ListGroupsRequest
from asyncbroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from asyncbroker.tests.data_path_harness import settle, under_test
from asyncbroker.tests.groups_harness import (
    COMMITS,
    OLD_JOIN,
    Connection,
    commit,
    commit_request,
    committed,
    heartbeat,
    join_alone,
    join_request,
)
from asyncbroker.tests.held_workers import HeldWorkers


async def test_time_moves_the_group_on_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with under_test() as t:
        joined = await join_alone(t)
        assert joined.generation_id == 1
        t.clock.advance(11)
        assert await heartbeat(t, joined) is ErrorCode.UNKNOWN_MEMBER_ID
        assert "its session timed out" in caplog.text


async def test_a_lost_connection_gives_its_member_up() -> None:
    async with under_test() as t:
        joined = await join_alone(t)
        connection = Connection()
        context = RequestContext(connection=connection)
        waiting = t.begin(join_request(), OLD_JOIN, context)
        await settle()
        connection.lose()
        await settle()
        assert waiting.cancelled()
        # The new member never knew its id, so nobody waits for it; the old one is alone again.
        again = await t.ask(join_request(member_id=joined.member_id), OLD_JOIN, RequestContext())
        assert again.generation_id == 2
        assert len(again.members) == 1


async def test_a_connection_that_is_lost_before_it_waits_is_not_waited_for() -> None:
    async with under_test() as t:
        connection = Connection()
        connection.is_lost = True
        waiting = t.begin(join_request(), OLD_JOIN, RequestContext(connection=connection))
        await settle()
        assert waiting.cancelled()
        assert (await t.ask(ListGroupsRequest(), 4)).groups[0].group_state != "Stable"


async def test_members_that_wait_are_answered_when_the_broker_stops() -> None:
    async with under_test() as t:
        waiting = t.begin(join_request(), OLD_JOIN)
        await settle()
    with pytest.raises(KafkaError) as error:
        await waiting
    assert error.value.code is ErrorCode.NOT_COORDINATOR


async def test_a_commit_under_way_is_finished_when_the_broker_stops() -> None:
    files, metadata, workers = MemoryFiles(), MemoryMetadataStore(), HeldWorkers()
    async with under_test(files=files, metadata=metadata, workers=workers) as t:
        await t.topic()
        await commit(t, 1)
        workers.held = COMMITS
        committing = t.begin(commit_request(2), 8)
        await settle()
        stopping = asyncio.ensure_future(t.broker.groups.stop())
        await settle()
        assert not committing.done()
        workers.release()
        await stopping
        response = await committing
        assert response.topics[0].partitions[0].error_code == 0
        with pytest.raises(KafkaError):
            await commit(t, 3)
    async with under_test(files=files, metadata=metadata) as t:
        await settle()
        assert await committed(t) == {"flights": 2}


async def test_200_members_become_one_group() -> None:
    async with under_test(group_initial_rebalance_delay_ms="1000") as t:
        joining = [t.begin(join_request(), OLD_JOIN) for _ in range(200)]
        await settle()
        t.clock.advance(3)
        joined = await asyncio.gather(*joining)
        leader = next(response for response in joined if response.members)
        assert len(leader.members) == 200
        assert {response.generation_id for response in joined} == {1}
        syncing = [
            t.begin(
                SyncGroupRequest(
                    "g",
                    1,
                    response.member_id,
                    assignments=[
                        SyncGroupRequestAssignment(m.member_id, m.member_id.encode())
                        for m in response.members
                    ],
                ),
                3,
            )
            for response in joined
        ]
        synced = await asyncio.gather(*syncing)
        assert [response.assignment.decode() for response in synced] == [
            response.member_id for response in joined
        ]


async def test_a_client_cannot_write_lines_of_its_own_into_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with under_test() as t:
        context = RequestContext(client_id="app\nERROR all is lost")
        joining = t.begin(join_request(), OLD_JOIN, context)
        await settle()
        t.clock.advance(3)
        await joining
    messages = [record.getMessage() for record in caplog.records]
    assert any("all is lost" in message for message in messages)
    assert not any("\n" in message for message in messages)
