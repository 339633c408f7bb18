"""JoinGroup: who comes in, and how the members of a generation come together."""

from __future__ import annotations

import pytest

from asyncbroker.coordinator.config import GroupConfig
from asyncbroker.coordinator.tests.group_scenario import Scenario, settle, stable_group
from asyncbroker.protocol.errors import ErrorCode

NO_DELAY = GroupConfig(initial_rebalance_delay_ms=0)


# ---- member ids (KIP-394)


@pytest.mark.parametrize("version", [4, 5, 6, 7, 8, 9])
def test_a_new_dynamic_member_is_given_an_id_to_join_with(version: int) -> None:
    s = Scenario()
    token = s.join("a", version=version)
    assert s.error(token) is ErrorCode.MEMBER_ID_REQUIRED
    assert s.replies[token].member_id.startswith("a-")
    assert s.is_waiting(s.join("a"))


@pytest.mark.parametrize("name", ["a" * 32_767, "a" + "\u00fc" * 16_383, "\ufffd" * 10_922])
def test_the_id_of_a_member_with_a_long_name_can_be_sent(name: str) -> None:
    s = Scenario()
    member_id = s.replies[s.join(name)].member_id
    assert 32_760 < len(member_id.encode()) <= 32_767
    assert member_id.startswith(name[:10_000])


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
