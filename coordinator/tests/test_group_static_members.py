"""Static members (KIP-345, KIP-814): a place in the group that outlives a process."""

from __future__ import annotations

from asyncbroker.coordinator.config import GroupConfig
from asyncbroker.coordinator.tests.group_scenario import Scenario, settle
from asyncbroker.protocol.errors import ErrorCode


def static_group() -> Scenario:
    s = Scenario()
    s.enter("a", instance="ia")
    s.enter("b", instance="ib")
    settle(s, "a", "b")
    return s


def test_a_static_member_that_comes_back_keeps_its_part_without_a_rebalance() -> None:
    s = static_group()
    old_id = s.clients["b"].member_id
    reply = s.replies[s.join("b", member_id="")]
    assert (reply.error_code, reply.generation_id) == (0, 1)
    assert reply.member_id != old_id
    assert s.replies[s.sync("b")].assignment == b"b"
    assert s.heartbeat("a") is ErrorCode.NONE


def test_a_static_member_is_not_asked_to_join_twice() -> None:
    s = Scenario()
    assert s.is_waiting(s.join("a", instance="ia"))


def test_a_static_leader_is_told_to_skip_the_assignment() -> None:
    s = static_group()
    reply = s.replies[s.join("a", member_id="", version=9)]
    assert reply.skip_assignment
    assert reply.leader == reply.member_id
    assert len(reply.members) == 2


def test_a_static_leader_that_cannot_skip_is_told_that_its_old_id_leads() -> None:
    s = static_group()
    old_id = s.clients["a"].member_id
    reply = s.replies[s.join("a", member_id="", version=8)]
    assert not reply.skip_assignment
    assert (reply.leader, reply.members) == (old_id, [])


def test_the_old_process_of_a_static_member_is_fenced() -> None:
    s = static_group()
    s.client("old", instance="ib", member_id=s.clients["b"].member_id, generation=1)
    s.join("b", member_id="")
    assert s.heartbeat("old") is ErrorCode.FENCED_INSTANCE_ID
    assert s.error(s.join("old")) is ErrorCode.FENCED_INSTANCE_ID
    assert s.error(s.sync("old")) is ErrorCode.FENCED_INSTANCE_ID
    assert s.replies[s.leave("old")].members[0].error_code == ErrorCode.FENCED_INSTANCE_ID
    committed = s.commit("old", {("t", 0): 1})
    assert s.partition_errors(committed) == {("t", 0): ErrorCode.FENCED_INSTANCE_ID}


def test_a_waiting_request_of_a_replaced_static_member_is_fenced() -> None:
    s = Scenario()
    first = s.join("a", instance="ia")
    second = s.join("a", member_id="")
    assert s.error(first) is ErrorCode.FENCED_INSTANCE_ID
    s.wait(3)
    assert s.error(second) is ErrorCode.NONE


def test_a_replaced_static_member_does_not_expire_while_it_waits() -> None:
    s = Scenario(GroupConfig(initial_rebalance_delay_ms=30_000))
    s.join("a", instance="ia")
    second = s.join("a", member_id="")
    s.wait(30)
    assert s.error(second) is ErrorCode.NONE


def test_a_static_member_replaced_in_the_sync_phase_starts_over() -> None:
    s = Scenario()
    s.enter("a", instance="ia")
    s.enter("b", instance="ib")
    s.wait(6)
    waiting = s.sync("b")
    again = s.join("b", member_id="")
    assert s.error(waiting) is ErrorCode.FENCED_INSTANCE_ID
    assert s.is_waiting(again)
    s.join("a")
    assert s.replies[again].generation_id == 2


def test_a_static_member_that_changes_the_protocol_starts_a_rebalance() -> None:
    s = Scenario()
    s.enter("a", instance="ia", protocols=("range", "sticky"))
    settle(s, "a")
    assert s.is_waiting(s.join("a", member_id="", protocols=("sticky", "range"))) is False
    assert s.clients["a"].generation == 2


def test_a_static_member_that_reads_other_topics_starts_a_rebalance() -> None:
    s = static_group()
    assert s.is_waiting(s.join("b", member_id="", topics=("t", "u")))
    assert s.heartbeat("a") is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_returning_static_member_brings_its_new_timeouts_and_client_id() -> None:
    s = static_group()
    s.join("b", member_id="", session_ms=60_000)
    s.sync("b")
    for _ in range(5):
        s.wait(9)
        s.heartbeat("a")
    assert s.heartbeat("b") is ErrorCode.NONE


def test_an_instance_id_that_nobody_has_is_unknown() -> None:
    s = static_group()
    s.client("z", instance="iz", member_id=s.clients["a"].member_id, generation=1)
    assert s.heartbeat("z") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_leaves_by_its_instance_id() -> None:
    s = static_group()
    reply = s.replies[s.leave("b", by_instance=True)]
    assert [(m.group_instance_id, m.error_code) for m in reply.members] == [("ib", 0)]
    assert s.heartbeat("b") is ErrorCode.UNKNOWN_MEMBER_ID
    again = s.replies[s.leave("b", by_instance=True)]
    assert again.members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_falls_silent_goes_with_its_session() -> None:
    s = static_group()
    s.wait(9)
    s.heartbeat("a")
    s.wait(2)
    assert s.heartbeat("b") is ErrorCode.UNKNOWN_MEMBER_ID
