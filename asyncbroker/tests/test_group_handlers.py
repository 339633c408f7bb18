"""The group APIs as clients of every version see them: each response can be encoded, and reads as
that version has it."""

from __future__ import annotations

from typing import Any

import pytest

from asyncbroker.authorized_operations import GROUP_OPERATIONS, NOT_ASKED
from asyncbroker.context import Address, RequestContext
from asyncbroker.protocol.api import API_BY_NAME
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from asyncbroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from asyncbroker.protocol.messages.delete_groups import DeleteGroupsRequest
from asyncbroker.protocol.messages.describe_groups import DescribeGroupsRequest
from asyncbroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from asyncbroker.protocol.messages.heartbeat import HeartbeatRequest
from asyncbroker.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from asyncbroker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from asyncbroker.protocol.messages.list_groups import ListGroupsRequest
from asyncbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from asyncbroker.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from asyncbroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from asyncbroker.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from asyncbroker.tests.data_path_harness import UnderTest, settle, under_test

CONTEXT = RequestContext(client_id="app", client_host="10.1.2.3")


async def ask(t: UnderTest, request: Any, version: int) -> Any:
    """The response as the client reads it: over the wire of that version and back."""
    response = await t.ask(request, version, CONTEXT)
    codec = API_BY_NAME[type(request).__name__.removesuffix("Request")].response_codec(version)
    return codec.decode(codec.encode(response))


async def join(t: UnderTest, version: int, **fields: Any) -> Any:
    """JoinGroup with whatever it takes to be let in."""
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000 if version else -1,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", b"metadata")],
        **fields,
    )
    await ask(t, FindCoordinatorRequest(key="g"), 3)
    joining: Any = t.begin(request, version, CONTEXT)
    if isinstance(joining, JoinGroupResponse):
        assert joining.error_code == ErrorCode.MEMBER_ID_REQUIRED
        request.member_id = joining.member_id
        joining = t.begin(request, version, CONTEXT)
    await settle()
    t.clock.advance(3)
    codec = API_BY_NAME["JoinGroup"].response_codec(version)
    return codec.decode(codec.encode(await joining))


def sync_request(joined: Any, version: int) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer" if version >= 5 else None,
        protocol_name="range" if version >= 5 else None,
        assignments=[SyncGroupRequestAssignment(joined.member_id, b"part")],
    )


async def started(t: UnderTest) -> Any:
    """A member in a stable group."""
    joined = await join(t, 9)
    await ask(t, sync_request(joined, 5), 5)
    return joined


# ---- FindCoordinator


@pytest.mark.parametrize("version", range(4))
async def test_find_coordinator_answers_with_the_listener_that_was_asked(version: int) -> None:
    async with under_test(node_id="7") as t:
        context = RequestContext(listener=Address("broker.example", 19_092))
        found = await t.ask(FindCoordinatorRequest(key="g"), version, context)
        assert (found.error_code, found.node_id) == (0, 7)
        assert (found.host, found.port) == ("broker.example", 19_092)
        API_BY_NAME["FindCoordinator"].response_codec(version).encode(found)


@pytest.mark.parametrize("version", [4, 5])
async def test_find_coordinator_answers_each_of_several_keys(version: int) -> None:
    async with under_test() as t:
        found = await ask(t, FindCoordinatorRequest(coordinator_keys=["a", "b"]), version)
        assert [c.key for c in found.coordinators] == ["a", "b"]
        assert [c.error_code for c in found.coordinators] == [0, 0]
        assert [c.node_id for c in found.coordinators] == [1, 1]


@pytest.mark.parametrize("version", [1, 3, 4, 5])
@pytest.mark.parametrize(
    ("key_type", "error"),
    [
        (1, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (2, ErrorCode.INVALID_REQUEST),
        (-3, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_other_coordinators_are_refused_for_good(
    version: int, key_type: int, error: ErrorCode
) -> None:
    async with under_test() as t:
        request = FindCoordinatorRequest(key_type=key_type)
        if version >= 4:
            request.coordinator_keys = ["tx"]
        else:
            request.key = "tx"
        found = await ask(t, request, version)
        outcome = found.coordinators[0] if version >= 4 else found
        assert (outcome.error_code, outcome.node_id, outcome.port) == (error, -1, -1)
        assert outcome.error_message


# ---- members


@pytest.mark.parametrize("version", range(10))
async def test_a_member_joins_in_every_version(version: int) -> None:
    async with under_test() as t:
        joined = await join(t, version)
        assert (joined.error_code, joined.generation_id) == (0, 1)
        assert joined.protocol_name == "range"
        assert joined.protocol_type == ("consumer" if version >= 7 else None)
        assert joined.leader == joined.member_id
        assert joined.member_id.startswith("app-")
        assert [m.metadata for m in joined.members] == [b"metadata"]


@pytest.mark.parametrize("version", range(10))
async def test_a_join_that_fails_has_no_protocol_name(version: int) -> None:
    async with under_test() as t:
        response = await ask(t, JoinGroupRequest(group_id="", session_timeout_ms=10_000), version)
        assert response.error_code == ErrorCode.INVALID_GROUP_ID
        assert response.generation_id == -1
        assert response.protocol_name == (None if version >= 7 else "")
        assert response.members == []


@pytest.mark.parametrize("version", range(6))
async def test_an_assignment_is_handed_in_in_every_version(version: int) -> None:
    async with under_test() as t:
        joined = await join(t, 9)
        synced = await ask(t, sync_request(joined, version), version)
        assert (synced.error_code, synced.assignment) == (0, b"part")
        assert synced.protocol_name == ("range" if version >= 5 else None)


async def test_from_version_5_on_a_sync_has_to_say_its_protocol() -> None:
    async with under_test() as t:
        joined = await join(t, 9)
        synced = await ask(t, sync_request(joined, 4), 5)
        assert synced.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("version", range(5))
async def test_a_member_beats_in_every_version(version: int) -> None:
    async with under_test() as t:
        joined = await started(t)
        request = HeartbeatRequest("g", 1, joined.member_id)
        assert (await ask(t, request, version)).error_code == 0
        request.generation_id = 9
        assert (await ask(t, request, version)).error_code == ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize("version", range(6))
async def test_a_member_leaves_in_every_version(version: int) -> None:
    async with under_test() as t:
        joined = await started(t)
        request = LeaveGroupRequest(group_id="g")
        if version >= 3:
            request.members = [MemberIdentity(joined.member_id), MemberIdentity("nobody")]
        else:
            request.member_id = joined.member_id
        left = await ask(t, request, version)
        assert left.error_code == 0
        again = await ask(t, request, version)
        if version >= 3:
            assert [m.error_code for m in left.members] == [0, ErrorCode.UNKNOWN_MEMBER_ID]
            assert again.error_code == 0
            assert again.members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
        else:
            assert again.error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_wrong_leave_request_fails_as_a_whole() -> None:
    async with under_test() as t:
        for version in (0, 2, 3, 5):
            left = await ask(t, LeaveGroupRequest(group_id=""), version)
            assert left.error_code == ErrorCode.INVALID_GROUP_ID


# ---- offsets


def commit_request(joined: Any, *partitions: int, **fields: Any) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=joined.generation_id,
        member_id=joined.member_id,
        topics=[
            OffsetCommitRequestTopic(
                "flights",
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=10 + index,
                        committed_metadata="note",
                        **fields,
                    )
                    for index in partitions
                ],
            )
        ],
    )


@pytest.mark.parametrize("version", range(2, 10))
async def test_offsets_are_committed_in_every_version(version: int) -> None:
    async with under_test() as t:
        await t.topic(partitions=2)
        joined = await started(t)
        epoch = {"committed_leader_epoch": 4} if version >= 6 else {}
        response = await ask(t, commit_request(joined, 0, 1, 2, **epoch), version)
        (topic,) = response.topics
        assert topic.name == "flights"
        assert [p.error_code for p in topic.partitions] == [
            0,
            0,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        fetched = await ask(
            t, OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)]), 8
        )
        partitions = fetched.groups[0].topics[0].partitions
        assert [p.committed_offset for p in partitions] == [10, 11]
        assert {p.committed_leader_epoch for p in partitions} == {4 if version >= 6 else -1}
        assert {p.metadata for p in partitions} == {"note"}


@pytest.mark.parametrize("version", range(1, 8))
async def test_offsets_of_one_group_are_fetched_in_old_versions(version: int) -> None:
    async with under_test() as t:
        await t.topic(partitions=2)
        joined = await started(t)
        await ask(t, commit_request(joined, 0, committed_leader_epoch=3), 8)
        request = OffsetFetchRequest(
            group_id="g", topics=[OffsetFetchRequestTopic("flights", [0, 1])]
        )
        fetched = await ask(t, request, version)
        first, second = fetched.topics[0].partitions
        assert fetched.error_code == 0
        assert (first.committed_offset, first.metadata) == (10, "note")
        assert first.committed_leader_epoch == (3 if version >= 5 else -1)
        assert (second.committed_offset, second.metadata, second.error_code) == (-1, "", 0)
        if version >= 2:
            everything = await ask(t, OffsetFetchRequest(group_id="g", topics=None), version)
            assert [p.partition_index for p in everything.topics[0].partitions] == [0]


@pytest.mark.parametrize("version", [8, 9])
async def test_offsets_of_several_groups_are_fetched_at_once(version: int) -> None:
    async with under_test() as t:
        await t.topic(partitions=2)
        joined = await started(t)
        await ask(t, commit_request(joined, 0), 8)
        groups = [
            OffsetFetchRequestGroup(
                "g", topics=[OffsetFetchRequestTopics("flights", partition_indexes=[0, 1])]
            ),
            OffsetFetchRequestGroup(
                "nobody", topics=[OffsetFetchRequestTopics("flights", partition_indexes=[0])]
            ),
            OffsetFetchRequestGroup("nobody", topics=None),
        ]
        request = OffsetFetchRequest(groups=groups, require_stable=True)
        fetched = await ask(t, request, version)
        assert [group.group_id for group in fetched.groups] == ["g", "nobody", "nobody"]
        assert [group.error_code for group in fetched.groups] == [0, 0, 0]
        g, nobody, empty = fetched.groups
        assert [p.committed_offset for p in g.topics[0].partitions] == [10, -1]
        assert [p.committed_offset for p in nobody.topics[0].partitions] == [-1]
        assert empty.topics == []


async def test_a_topic_id_that_is_asked_for_twice_is_answered_twice() -> None:
    async with under_test() as t:
        topic = await t.topic(partitions=2)
        joined = await started(t)
        await ask(t, commit_request(joined, 0, 1), 8)
        strange = OffsetFetchRequestTopics(topic_id=b"?" * 16, partition_indexes=[0])
        topics = [
            OffsetFetchRequestTopics(topic_id=topic.topic_id, partition_indexes=[0]),
            strange,
            OffsetFetchRequestTopics(topic_id=topic.topic_id, partition_indexes=[1]),
        ]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=topics)])
        (group,) = (await ask(t, request, 10)).groups
        assert [row.topic_id for row in group.topics] == [row.topic_id for row in topics]
        offsets = [row.partitions[0].committed_offset for row in group.topics]
        assert offsets == [10, -1, 11]


# ---- administration


@pytest.mark.parametrize("version", range(7))
async def test_groups_are_described_in_every_version(version: int) -> None:
    async with under_test() as t:
        await started(t)
        request = DescribeGroupsRequest(groups=["g", "nobody"])
        request.include_authorized_operations = version >= 3
        g, nobody = (await ask(t, request, version)).groups
        assert (g.group_state, g.protocol_type, g.protocol_data) == ("Stable", "consumer", "range")
        (member,) = g.members
        assert (member.client_id, member.client_host) == ("app", "/10.1.2.3")
        assert (member.member_metadata, member.member_assignment) == (b"metadata", b"part")
        assert g.authorized_operations == (GROUP_OPERATIONS if version >= 3 else NOT_ASKED)
        assert nobody.group_state == "Dead"
        # An error from version 6 on, as in Kafka 4 (KIP-1043).
        if version < 6:
            assert nobody.error_code == 0
        else:
            assert nobody.error_code == ErrorCode.GROUP_ID_NOT_FOUND
            assert nobody.error_message == "Group nobody not found."
            assert nobody.authorized_operations == NOT_ASKED


async def test_a_group_of_the_other_protocol_is_said_to_be_one() -> None:
    async with under_test() as t:
        await started(t)
        request = ConsumerGroupHeartbeatRequest(
            "new", "m", 0, rebalance_timeout_ms=9, subscribed_topic_names=[], topic_partitions=[]
        )
        assert (await ask(t, request, 1)).error_code == ErrorCode.NONE
        (new,) = (await ask(t, DescribeGroupsRequest(groups=["new"]), 6)).groups
        assert (new.group_state, new.error_code) == ("Dead", ErrorCode.GROUP_ID_NOT_FOUND)
        assert new.error_message == "Group new is not a classic group."
        (old,) = (await ask(t, ConsumerGroupDescribeRequest(["g"]), 1)).groups
        assert old.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert old.error_message == "Group g is not a consumer group."


@pytest.mark.parametrize("version", range(6))
async def test_groups_are_listed_in_every_version(version: int) -> None:
    async with under_test() as t:
        await started(t)
        (group,) = (await ask(t, ListGroupsRequest(), version)).groups
        assert (group.group_id, group.protocol_type) == ("g", "consumer")
        assert group.group_state == ("Stable" if version >= 4 else "")
        assert group.group_type == ("classic" if version >= 5 else "")
        if version >= 4:
            empty = ListGroupsRequest(states_filter=["Empty"])
            assert (await ask(t, empty, version)).groups == []


@pytest.mark.parametrize("version", range(3))
async def test_groups_are_deleted_in_every_version(version: int) -> None:
    async with under_test() as t:
        joined = await started(t)
        request = DeleteGroupsRequest(groups_names=["g", "nobody", "g"])
        refused = await ask(t, request, version)
        assert [(r.group_id, r.error_code) for r in refused.results] == [
            ("g", ErrorCode.NON_EMPTY_GROUP),
            ("nobody", ErrorCode.GROUP_ID_NOT_FOUND),
        ]
        await ask(t, LeaveGroupRequest("g", members=[MemberIdentity(joined.member_id)]), 3)
        deleted = await ask(t, request, version)
        assert [r.error_code for r in deleted.results] == [0, ErrorCode.GROUP_ID_NOT_FOUND]
        assert (await ask(t, ListGroupsRequest(), 5)).groups == []


async def test_offsets_are_deleted_as_far_as_nobody_reads_them() -> None:
    async with under_test() as t:
        await t.topic()
        joined = await started(t)
        await ask(t, commit_request(joined, 0), 8)
        partitions = [OffsetDeleteRequestPartition(0), OffsetDeleteRequestPartition(9)]
        request = OffsetDeleteRequest("g", [OffsetDeleteRequestTopic("flights", partitions)])
        (topic,) = (await ask(t, request, 0)).topics
        # The metadata of this member says nothing that could be read: it may be reading all.
        assert [p.error_code for p in topic.partitions] == [
            ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        await ask(t, LeaveGroupRequest("g", members=[MemberIdentity(joined.member_id)]), 3)
        (topic,) = (await ask(t, request, 0)).topics
        assert [p.error_code for p in topic.partitions] == [
            0,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)])
        assert (await ask(t, fetch, 8)).groups[0].topics == []
        request.group_id = "nobody"
        assert (await ask(t, request, 0)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
