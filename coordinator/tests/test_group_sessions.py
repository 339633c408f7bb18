"""SyncGroup, Heartbeat and LeaveGroup: assignments, signs of life, and goodbyes."""

from __future__ import annotations

import pytest

from asyncbroker.coordinator.effects import Reply
from asyncbroker.coordinator.tests.group_scenario import Scenario, stable_group
from asyncbroker.protocol.errors import ErrorCode

OK = ErrorCode.NONE


# ---- the sync phase


def test_followers_wait_for_the_leader_and_get_its_bytes() -> None:
    s = Scenario()
    s.enter("a")
    s.enter("b")
    s.wait(6)
    follower = s.sync("b")
    assert s.is_waiting(follower)
    leader = s.sync("a", {"a": b"\x00\x01\xff", "b": b"anything at all"})
    assert s.replies[leader].assignment == b"\x00\x01\xff"
    assert s.replies[follower].assignment == b"anything at all"
    assert s.replies[follower].protocol_name == "range"


def test_members_that_the_leader_forgot_get_an_empty_assignment() -> None:
    s = Scenario()
    s.enter("a")
    s.enter("b")
    s.wait(6)
    follower = s.sync("b")
    s.sync("a", {"a": b"all", "nobody": b"x"})
    assert s.error(follower) is ErrorCode.NONE
    assert s.replies[follower].assignment == b""


def test_sync_in_a_stable_group_gives_the_assignment_again() -> None:
    s = stable_group("a", "b")
    assert s.replies[s.sync("b")].assignment == b"b"


def test_sync_while_members_join_says_so() -> None:
    s = stable_group("a", "b")
    s.enter("c")
    assert s.error(s.sync("a")) is ErrorCode.REBALANCE_IN_PROGRESS


def test_waiting_syncs_are_sent_back_when_the_group_changes() -> None:
    s = Scenario()
    s.enter("a")
    s.enter("b")
    s.wait(6)
    waiting = s.sync("b")
    s.enter("c")
    assert s.error(waiting) is ErrorCode.REBALANCE_IN_PROGRESS


def test_sync_with_a_wrong_generation_or_member_is_refused() -> None:
    s = stable_group("a")
    assert s.error(s.sync("a", generation_id=0)) is ErrorCode.ILLEGAL_GENERATION
    assert s.error(s.sync("a", generation_id=2)) is ErrorCode.ILLEGAL_GENERATION
    assert s.error(s.sync("a", member_id="z")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert s.error(s.sync("a", group_id="other")) is ErrorCode.UNKNOWN_MEMBER_ID


def test_sync_with_another_protocol_is_inconsistent() -> None:
    s = stable_group("a")
    wrong = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert s.error(s.sync("a", protocol_type="connect")) is wrong
    assert s.error(s.sync("a", protocol_name="sticky")) is wrong
    right = s.sync("a", protocol_type="consumer", protocol_name="range")
    assert s.error(right) is ErrorCode.NONE


def test_members_that_do_not_sync_in_time_are_removed() -> None:
    s = Scenario()
    for name in ("a", "b", "c"):
        s.enter(name, session_ms=300_000)
    s.wait(9)
    waiting = s.sync("b")
    s.wait(60)
    assert s.error(waiting) is ErrorCode.REBALANCE_IN_PROGRESS
    assert s.heartbeat("a") is ErrorCode.UNKNOWN_MEMBER_ID
    assert s.heartbeat("b") is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_sync_of_another_connection_supersedes_the_one_that_waits() -> None:
    s = Scenario()
    s.enter("a")
    s.enter("b")
    s.wait(6)
    first, second = s.sync("b"), s.sync("b")
    assert s.error(first) is ErrorCode.REBALANCE_IN_PROGRESS
    s.sync("a", {"b": b"x"})
    assert s.replies[second].assignment == b"x"


# ---- heartbeats and sessions


def test_heartbeats_tell_members_what_they_have_to_know() -> None:
    s = stable_group("a", "b")
    assert s.heartbeat("a") is ErrorCode.NONE
    assert s.heartbeat("a", generation_id=0) is ErrorCode.ILLEGAL_GENERATION
    assert s.heartbeat("a", member_id="z") is ErrorCode.UNKNOWN_MEMBER_ID
    assert s.heartbeat("a", group_id="other") is ErrorCode.UNKNOWN_MEMBER_ID
    s.enter("c")
    assert s.heartbeat("a") is ErrorCode.REBALANCE_IN_PROGRESS
    s.join("a")
    s.join("b")
    assert s.state() == "CompletingRebalance"
    assert s.heartbeat("a") is ErrorCode.NONE


def test_a_silent_member_is_removed_after_its_session_timeout() -> None:
    s = stable_group("a", "b")
    s.wait(5)
    s.heartbeat("a")
    s.wait(6)
    assert s.heartbeat("b") is ErrorCode.UNKNOWN_MEMBER_ID
    assert s.heartbeat("a") is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_heartbeat_during_a_rebalance_keeps_the_session() -> None:
    s = stable_group("a", "b", rebalance_ms=300_000)
    s.enter("c", rebalance_ms=300_000)
    s.join("b")
    for _ in range(10):
        s.wait(5)
        assert s.heartbeat("a") is ErrorCode.REBALANCE_IN_PROGRESS
    s.wait(10)
    assert s.heartbeat("a") is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_that_wait_in_join_or_sync_do_not_expire() -> None:
    s = stable_group("a", "b", rebalance_ms=120_000)
    s.enter("c", rebalance_ms=120_000)
    joining = s.join("a")
    for _ in range(11):
        s.wait(5)
        s.heartbeat("b")
    assert s.is_waiting(joining)
    s.join("b")
    assert s.error(joining) is ErrorCode.NONE
    syncing = s.sync("b")
    for _ in range(11):
        s.wait(5)
        s.heartbeat("a")
        s.heartbeat("c")
    assert s.is_waiting(syncing)


def test_a_new_member_is_given_up_when_it_waits_too_long() -> None:
    s = stable_group("a", rebalance_ms=900_000)
    new = s.enter("b", rebalance_ms=900_000)
    for _ in range(61):
        s.wait(5)
        s.heartbeat("a")
    assert s.error(new) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(("away_seconds", "error"), [(9, OK), (11, ErrorCode.UNKNOWN_MEMBER_ID)])
def test_a_member_whose_connection_broke_has_its_session_to_come_back(
    away_seconds: int, error: ErrorCode
) -> None:
    s = stable_group("a", "b", rebalance_ms=120_000)
    s.enter("c", rebalance_ms=120_000)
    joining = s.join("a")
    for _ in range(3):
        s.wait(9)
        s.heartbeat("b")
    s.lose_connection(joining)
    s.wait(away_seconds)
    back = s.join("a")
    s.heartbeat("b")
    s.join("b")
    assert s.error(back) is error


def test_a_member_without_an_id_is_removed_with_its_connection() -> None:
    s = Scenario()
    token = s.join("a", version=3)
    s.lose_connection(token)
    s.wait(3)
    assert s.state() == "Empty"


def test_a_lost_connection_that_nothing_waited_on_changes_nothing() -> None:
    s = stable_group("a")
    s.lose_connection(s.tokens[-1])
    assert s.state() == "Stable"
    assert s.heartbeat("a") is ErrorCode.NONE


def test_heartbeats_are_answered_without_waiting_for_the_disk() -> None:
    s = stable_group("a")
    s.effects.clear()
    s.heartbeat("a")
    (reply,) = s.effects
    assert isinstance(reply, Reply)
    assert reply.at_once


# ---- leaving


def test_leaving_starts_a_rebalance_of_the_others() -> None:
    s = stable_group("a", "b")
    reply = s.replies[s.leave("b")]
    assert [m.error_code for m in reply.members] == [0]
    assert s.heartbeat("a") is ErrorCode.REBALANCE_IN_PROGRESS
    assert s.heartbeat("b") is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_last_member_leaves_an_empty_group_behind() -> None:
    s = stable_group("a", "b")
    s.leave("a", "b")
    assert s.state() == "Empty"
    s.restart()
    assert s.state() == "Empty"


def test_a_batch_of_members_leaves_each_with_its_own_outcome() -> None:
    s = stable_group("a", "b")
    s.client("z", member_id="z-9")
    s.client("fenced", instance=None)
    reply = s.replies[s.leave("a", "z", "b")]
    assert [m.error_code for m in reply.members] == [0, ErrorCode.UNKNOWN_MEMBER_ID, 0]


def test_leaving_a_group_that_is_not_there_is_unknown_for_each_member() -> None:
    s = stable_group("a")
    reply = s.replies[s.leave("a", group="other")]
    assert reply.error_code == 0
    assert [m.error_code for m in reply.members] == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_pending_member_can_leave() -> None:
    s = stable_group("a")
    s.join("b")
    waiting = s.join("a")
    assert s.is_waiting(waiting)
    assert s.replies[s.leave("b")].members[0].error_code == 0
    assert s.error(waiting) is ErrorCode.NONE


def test_a_leaving_member_that_waits_is_answered() -> None:
    s = stable_group("a", "b")
    joining = s.join("b", topics=("u",))
    s.leave("b")
    assert s.error(joining) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_leaves_while_it_waits_for_its_assignment_is_answered() -> None:
    s = Scenario()
    s.enter("a")
    s.enter("b")
    s.wait(6)
    syncing = s.sync("b")
    s.leave("b")
    assert s.error(syncing) is ErrorCode.UNKNOWN_MEMBER_ID
