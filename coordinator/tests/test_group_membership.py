"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: each rule of the classic protocol by name."""

from __future__ import annotations

import pytest

from asyncbroker.coordinator.config import GroupConfig
from asyncbroker.coordinator.effects import Reply
from asyncbroker.coordinator.tests.group_scenario import Scenario, settle, stable_group
from asyncbroker.protocol.errors import ErrorCode

OK = ErrorCode.NONE
NO_DELAY = GroupConfig(initial_rebalance_delay_ms=0)


# ---- member ids (KIP-394)


@pytest.mark.parametrize("version", [4, 5, 6, 7, 8, 9])
def test_a_new_dynamic_member_is_given_an_id_to_join_with(version: int) -> None:
    s = Scenario()
    token = s.join("a", version=version)
    assert s.error(token) is ErrorCode.MEMBER_ID_REQUIRED
    assert s.replies[token].member_id.startswith("a-")
    assert s.is_waiting(s.join("a"))


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_old_versions_are_admitted_at_once(version: int) -> None:
    s = Scenario()
    token = s.join("a", version=version)
    assert s.is_waiting(token)
    s.wait(3)
    assert s.error(token) is ErrorCode.NONE


def test_a_member_id_is_the_client_id_or_instance_id_and_something_unique() -> None:
    s = Scenario()
    s.enter("a")
    s.enter("b", instance="ib")
    s.wait(6)
    assert s.clients["a"].member_id.startswith("a-")
    assert s.clients["b"].member_id.startswith("ib-")


def test_a_member_id_that_nobody_gave_out_is_unknown() -> None:
    s = stable_group("a")
    assert s.error(s.join("z", member_id="z-9")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert s.error(s.join("y", group="other", member_id="y-9")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert [group.group_id for group in s.coordinator.list_groups()] == ["g"]


def test_an_unused_member_id_is_forgotten_after_the_session_timeout() -> None:
    s = Scenario()
    s.join("a")
    s.wait(10)
    assert s.error(s.join("a")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert s.coordinator.list_groups() == []


def test_an_unused_member_id_does_not_end_the_wait_of_others() -> None:
    s = Scenario(NO_DELAY)
    s.enter("a")
    s.wait(0)
    s.sync("a")
    s.join("b")
    rejoined = s.join("a")
    assert s.is_waiting(rejoined)
    s.join("b")
    assert s.replies[rejoined].generation_id == 2


# ---- what is refused


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001, 0, -1])
def test_session_timeouts_out_of_bounds_are_refused(session_ms: int) -> None:
    s = Scenario()
    assert s.error(s.join("a", session_ms=session_ms)) is ErrorCode.INVALID_SESSION_TIMEOUT


@pytest.mark.parametrize("session_ms", [6_000, 1_800_000])
def test_session_timeouts_at_the_bounds_are_accepted(session_ms: int) -> None:
    s = Scenario()
    assert s.error(s.join("a", session_ms=session_ms)) is ErrorCode.MEMBER_ID_REQUIRED


def test_an_empty_group_id_is_invalid() -> None:
    s = stable_group("a")
    s.client("a", group="")
    assert s.error(s.join("a")) is ErrorCode.INVALID_GROUP_ID
    assert s.error(s.sync("a")) is ErrorCode.INVALID_GROUP_ID
    assert s.heartbeat("a") is ErrorCode.INVALID_GROUP_ID
    assert s.error(s.leave("a")) is ErrorCode.INVALID_GROUP_ID


def test_a_member_without_protocols_or_type_is_inconsistent() -> None:
    s = Scenario()
    assert s.error(s.join("a", protocols=())) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert s.error(s.join("b", protocol_type="")) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert s.coordinator.list_groups() == []


def test_a_member_with_another_protocol_type_or_no_common_protocol_is_inconsistent() -> None:
    s = stable_group("a", protocols=("range", "sticky"))
    assert s.error(s.enter("b", protocol_type="connect")) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert s.error(s.enter("c", protocols=("own",))) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert s.state() == "Stable"


def test_a_full_group_turns_new_members_away() -> None:
    s = stable_group("a", "b", config=GroupConfig(member_count_max=2))
    assert s.error(s.join("c", version=3)) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert s.error(s.join("c", version=9)) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert s.state() == "Stable"


def test_a_pending_member_that_finds_the_group_full_is_forgotten() -> None:
    s = Scenario(GroupConfig(member_count_max=1))
    s.join("a")
    s.join("b")
    s.join("a")
    refused = s.join("b")
    assert s.error(refused) is ErrorCode.GROUP_MAX_SIZE_REACHED
    s.wait(3)
    assert s.clients["a"].generation == 1


# ---- the join phase


def test_the_first_joiner_leads_and_only_the_leader_is_told_the_members() -> None:
    s = Scenario()
    first, second = s.enter("a"), s.enter("b")
    s.wait(6)
    leader, follower = s.replies[first], s.replies[second]
    assert leader.leader == follower.leader == leader.member_id
    assert [m.member_id for m in leader.members] == [leader.member_id, follower.member_id]
    assert follower.members == []
    assert leader.protocol_type == "consumer"


def test_an_empty_group_waits_for_the_initial_delay_and_again_for_each_newcomer() -> None:
    s = Scenario()
    first = s.enter("a")
    s.wait(2.9)
    s.enter("b")
    s.wait(2.9)
    s.enter("c")
    s.wait(2.9)
    assert s.is_waiting(first)
    s.wait(0.3)
    assert len(s.replies[first].members) == 3


def test_the_initial_delay_ends_with_the_rebalance_timeout() -> None:
    s = Scenario()
    first = s.enter("a", rebalance_ms=7_000)
    for number in range(6):
        s.wait(1)
        s.enter(f"b{number}", rebalance_ms=7_000)
        assert s.is_waiting(first)
    s.wait(1)
    assert len(s.replies[first].members) == 7


def test_without_an_initial_delay_the_first_member_is_answered_at_once() -> None:
    s = Scenario(NO_DELAY)
    token = s.enter("a")
    s.wait(0)
    assert s.replies[token].generation_id == 1


def test_the_generation_grows_by_one_and_is_the_same_for_all() -> None:
    s = stable_group("a", "b")
    assert s.clients["a"].generation == s.clients["b"].generation == 1
    new = s.enter("c")
    rejoined = [s.join("a"), s.join("b")]
    assert {s.replies[token].generation_id for token in (new, *rejoined)} == {2}


def test_member_ids_survive_a_rebalance() -> None:
    s = stable_group("a", "b")
    before = {name: s.clients[name].member_id for name in ("a", "b")}
    s.enter("c")
    s.join("a")
    s.join("b")
    assert {name: s.clients[name].member_id for name in ("a", "b")} == before


def test_members_that_do_not_rejoin_in_time_are_dropped() -> None:
    s = stable_group("a", "b", session_ms=300_000)
    new = s.enter("c")
    s.join("a")
    s.wait(60)
    assert [m.member_id for m in s.replies[s.tokens[-1]].members] == [
        s.clients["a"].member_id,
        s.clients["c"].member_id,
    ]
    assert s.error(new) is ErrorCode.NONE
    assert s.heartbeat("b") is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_longest_rebalance_timeout_counts() -> None:
    s = Scenario()
    s.enter("a", rebalance_ms=10_000, session_ms=300_000)
    s.enter("b", rebalance_ms=90_000, session_ms=300_000)
    settle(s, "a", "b")
    new = s.enter("c", rebalance_ms=10_000)
    s.join("a")
    s.wait(89)
    assert s.is_waiting(new)
    s.wait(1)
    assert s.error(new) is ErrorCode.NONE


def test_version_0_waits_for_its_session_timeout() -> None:
    s = stable_group("a", version=0, session_ms=20_000, rebalance_ms=1)
    new = s.join("b", version=0, session_ms=20_000)
    for _ in range(19):
        s.wait(1)
        s.heartbeat("a")
    assert s.is_waiting(new)
    s.wait(1)
    assert s.error(new) is ErrorCode.NONE


def test_a_missing_leader_is_replaced_by_one_who_joined() -> None:
    s = stable_group("a", "b", session_ms=300_000)
    new = s.enter("c")
    rejoined = s.join("b")
    s.wait(60)
    assert s.replies[new].leader == s.clients["b"].member_id
    assert len(s.replies[rejoined].members) == 2


def test_absent_static_members_keep_their_place() -> None:
    s = Scenario()
    s.enter("a", session_ms=300_000)
    s.enter("b", instance="ib", session_ms=300_000)
    settle(s, "a", "b")
    s.enter("c")
    s.join("a")
    s.wait(60)
    assert s.clients["b"].member_id in [m.member_id for m in s.replies[s.tokens[-1]].members]


def test_a_group_of_absent_static_members_waits_for_their_sessions() -> None:
    s = Scenario()
    for name in ("a", "b"):
        s.enter(name, instance=f"i{name}", session_ms=300_000)
    settle(s, "a", "b")
    for name in ("a", "b"):
        s.join(name, member_id="", rebalance_ms=0)
    s.enter("c", rebalance_ms=0)
    s.leave("c")
    assert s.state() == "PreparingRebalance"
    s.wait(301)
    assert s.state() == "Empty"


def test_a_join_of_another_connection_supersedes_the_one_that_waits() -> None:
    s = Scenario()
    first = s.enter("a")
    second = s.join("a")
    assert s.error(first) is ErrorCode.REBALANCE_IN_PROGRESS
    s.wait(3)
    assert s.error(second) is ErrorCode.NONE


# ---- the choice of the protocol


def test_the_protocol_is_the_one_with_the_most_votes_among_those_all_support() -> None:
    s = Scenario()
    token = s.enter("a", protocols=("sticky", "range", "own"))
    s.enter("b", protocols=("range", "sticky"))
    s.enter("c", protocols=("range", "sticky"))
    s.wait(9)
    assert s.replies[token].protocol_name == "range"


def test_a_protocol_that_not_all_support_gets_no_votes() -> None:
    s = Scenario()
    token = s.enter("a", protocols=("new", "range"))
    s.enter("b", protocols=("new", "range"))
    s.enter("c", protocols=("range",))
    s.wait(9)
    assert s.replies[token].protocol_name == "range"


def test_metadata_of_the_chosen_protocol_goes_to_the_leader() -> None:
    s = Scenario()
    token = s.enter("a", protocols=("range",), topics=("mine",))
    s.enter("b", protocols=("range",), topics=("yours",))
    s.wait(6)
    assert b"yours" in s.replies[token].members[1].metadata


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


# ---- joining again


def test_an_unchanged_follower_that_rejoins_gets_the_current_generation() -> None:
    s = stable_group("a", "b")
    reply = s.replies[s.join("b")]
    assert (reply.error_code, reply.generation_id, reply.members) == (0, 1, [])
    assert s.state() == "Stable"


def test_the_leader_that_rejoins_starts_a_rebalance() -> None:
    s = stable_group("a", "b")
    assert s.is_waiting(s.join("a"))
    assert s.heartbeat("b") is ErrorCode.REBALANCE_IN_PROGRESS


def test_changed_metadata_starts_a_rebalance() -> None:
    s = stable_group("a", "b")
    assert s.is_waiting(s.join("b", topics=("t", "u")))
    assert s.state() == "PreparingRebalance"


def test_a_lost_answer_to_join_is_given_again() -> None:
    s = Scenario()
    s.enter("a")
    s.enter("b")
    s.wait(6)
    leader, follower = s.replies[s.join("a")], s.replies[s.join("b")]
    assert leader.generation_id == follower.generation_id == 1
    assert len(leader.members) == 2
    assert follower.members == []
    assert s.state() == "CompletingRebalance"


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


# ---- static members (KIP-345)


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
