"""OffsetCommit, OffsetFetch, the expiry of offsets, and the administration of groups."""

from __future__ import annotations

import pytest

from asyncbroker.coordinator.config import GroupConfig
from asyncbroker.coordinator.effects import Append, Reply
from asyncbroker.coordinator.tests.group_scenario import Scenario, stable_group
from asyncbroker.protocol.errors import ErrorCode

WEEK = 10_080 * 60
CHECK = 600
T0, T1, U0 = ("t", 0), ("t", 1), ("u", 0)
OK = ErrorCode.NONE


def commit_error(s: Scenario, name: str, **fields: object) -> ErrorCode:
    return s.partition_errors(s.commit(name, {T0: 1}, **fields))[T0]


# ---- who may commit


def test_a_standalone_commit_creates_its_group() -> None:
    s = Scenario()
    assert commit_error(s, "s") is OK
    assert s.state() == "Empty"
    assert s.offsets() == {T0: 1}


def test_a_standalone_commit_to_a_group_with_members_is_refused() -> None:
    s = stable_group("a")
    assert commit_error(s, "s") is ErrorCode.UNKNOWN_MEMBER_ID
    assert s.offsets() == {}


def test_a_member_commits_in_its_generation() -> None:
    s = stable_group("a", "b")
    assert commit_error(s, "a") is OK
    assert commit_error(s, "a", generation_id_or_member_epoch=0) is ErrorCode.ILLEGAL_GENERATION
    assert commit_error(s, "a", generation_id_or_member_epoch=2) is ErrorCode.ILLEGAL_GENERATION
    assert commit_error(s, "a", member_id="z") is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit_error(s, "a", generation_id_or_member_epoch=-1) is ErrorCode.ILLEGAL_GENERATION


def test_members_commit_while_they_join_but_not_while_they_wait_for_assignments() -> None:
    s = stable_group("a", "b")
    s.enter("c")
    assert commit_error(s, "a") is OK
    s.join("a")
    s.join("b")
    assert s.state() == "CompletingRebalance"
    assert commit_error(s, "a") is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("version", "error"),
    [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)],
)
def test_a_member_of_a_group_that_is_not_there(version: int, error: ErrorCode) -> None:
    s = Scenario()
    s.client("a", version=version, generation=3, member_id="a-1")
    assert commit_error(s, "a") is error


def test_a_member_of_an_empty_group_is_unknown() -> None:
    s = Scenario()
    s.commit("s", {T0: 1})
    s.client("a", generation=3, member_id="a-1")
    assert commit_error(s, "a") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_commit_counts_as_a_heartbeat() -> None:
    s = stable_group("a")
    for _ in range(5):
        s.wait(9)
        assert commit_error(s, "a") is OK
    assert s.heartbeat("a") is OK


# ---- what is committed


def test_a_partition_that_is_not_there_is_refused_alone() -> None:
    s = Scenario()
    token = s.commit("s", {T0: 1, ("t", 9): 2, ("x", 0): 3})
    assert s.partition_errors(token) == {
        T0: OK,
        ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("x", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert s.offsets() == {T0: 1}


def test_a_missing_partition_goes_before_an_error_of_the_group() -> None:
    s = stable_group("a")
    token = s.commit("s", {T0: 1, ("x", 0): 3})
    assert s.partition_errors(token) == {
        T0: ErrorCode.UNKNOWN_MEMBER_ID,
        ("x", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_metadata_that_is_too_large_is_refused() -> None:
    s = Scenario()
    assert commit_error(s, "s", metadata="x" * 4096) is OK
    assert commit_error(s, "s", metadata="x" * 4097) is ErrorCode.OFFSET_METADATA_TOO_LARGE


def test_a_commit_that_stores_nothing_leaves_no_group() -> None:
    s = Scenario()
    s.commit("s", {("x", 0): 1})
    assert s.coordinator.list_groups() == []
    assert s.log == []


def test_what_was_committed_comes_back_exactly() -> None:
    s = Scenario()
    s.commit("s", {T0: 7}, leader_epoch=-1, metadata="von Müller")
    s.commit("s", {T1: 8}, leader_epoch=3, metadata=None)
    s.restart()
    partitions = s.fetch("g", [T0, T1]).topics
    (first,), (second,) = partitions[0].partitions, partitions[1].partitions
    assert (first.committed_offset, first.committed_leader_epoch) == (7, -1)
    assert first.metadata == "von Müller"
    assert (second.committed_offset, second.committed_leader_epoch) == (8, 3)
    assert second.metadata == ""


def test_offsets_may_go_backwards() -> None:
    s = Scenario()
    s.commit("s", {T0: 7})
    s.commit("s", {T0: 3})
    assert s.offsets() == {T0: 3}
    s.restart()
    assert s.offsets() == {T0: 3}


def test_a_commit_is_durable_before_it_is_answered() -> None:
    s = Scenario()
    s.commit("s", {T0: 7})
    append, reply = s.effects
    assert isinstance(append, Append)
    assert isinstance(reply, Reply)
    assert not reply.at_once


# ---- fetching


def test_a_partition_without_a_commit_is_minus_one_without_an_error() -> None:
    s = Scenario()
    s.commit("s", {T0: 7})
    for group in ("g", "nobody"):
        (topic,) = s.fetch(group, [U0]).topics
        (partition,) = topic.partitions
        assert partition.committed_offset == -1
        assert partition.committed_leader_epoch == -1
        assert partition.metadata == ""
        assert partition.error_code == 0


def test_null_topics_are_all_topics() -> None:
    s = Scenario()
    s.commit("s", {T0: 7, U0: 1})
    assert s.offsets() == {T0: 7, U0: 1}
    assert s.fetch("nobody").topics == []


def transactional_commit(s: Scenario, offset: int, producer_id: int) -> None:
    """A commit as a transaction of Kafka's would have written it."""
    other = Scenario()
    other.commit("s", {T0: offset})
    ((key, value),) = other.log
    s.coordinator.replay(key, value, producer_id)


def test_offsets_of_an_open_transaction_are_unstable() -> None:
    s = Scenario()
    s.commit("s", {T0: 1})
    transactional_commit(s, 5, producer_id=77)
    assert s.offsets() == {T0: 1}
    (topic,) = s.fetch("g", [T0], require_stable=True).topics
    assert topic.partitions[0].error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert topic.partitions[0].committed_offset == -1
    s.coordinator.replay_marker(77, is_commit=True)
    assert s.offsets() == {T0: 5}


def test_an_aborted_transaction_leaves_the_offset_as_it_was() -> None:
    s = Scenario()
    s.commit("s", {T0: 1})
    transactional_commit(s, 5, producer_id=77)
    s.coordinator.replay_marker(77, is_commit=False)
    assert s.offsets() == {T0: 1}


def test_a_later_commit_is_not_overtaken_by_a_transaction() -> None:
    s = Scenario()
    transactional_commit(s, 5, producer_id=77)
    s.commit("s", {T0: 9})
    s.coordinator.replay_marker(77, is_commit=True)
    assert s.offsets() == {T0: 9}


# ---- expiry


def test_offsets_of_an_empty_group_expire_counted_from_when_it_became_empty() -> None:
    s = stable_group("a", session_ms=1_800_000)
    s.commit("a", {T0: 1})
    s.wait(1_000)
    s.leave("a")
    s.wait(WEEK - CHECK)
    assert s.offsets() == {T0: 1}
    s.wait(2 * CHECK)
    assert s.offsets() == {}
    assert s.coordinator.list_groups() == []


def test_offsets_of_a_group_with_members_do_not_expire() -> None:
    s = stable_group("a", session_ms=1_800_000)
    s.commit("a", {T0: 1})
    for _ in range(WEEK // 1_000 * 2):
        s.wait(1_000)
        s.heartbeat("a")
    assert s.offsets() == {T0: 1}


def test_offsets_of_topics_that_nobody_reads_any_more_expire() -> None:
    s = stable_group("a", session_ms=1_800_000)
    s.commit("a", {T0: 1, U0: 1})
    for _ in range(WEEK // 1_000 + 2):
        s.wait(1_000)
        s.heartbeat("a")
    assert s.offsets() == {T0: 1}


def test_offsets_of_groups_that_are_no_consumers_do_not_expire_under_them() -> None:
    s = stable_group("a", protocol_type="connect", session_ms=1_800_000)
    s.commit("a", {U0: 1})
    for _ in range(WEEK // 1_000 + 2):
        s.wait(1_000)
        s.heartbeat("a")
    assert s.offsets() == {U0: 1}


def test_standalone_offsets_expire_after_their_last_commit() -> None:
    s = Scenario()
    s.commit("s", {T0: 1, T1: 1})
    s.wait(WEEK - CHECK)
    s.commit("s", {T1: 2})
    s.wait(2 * CHECK)
    assert s.offsets() == {T1: 2}


def test_offsets_that_an_operator_sets_on_an_old_empty_group_stay() -> None:
    s = stable_group("a")
    s.commit("a", {T0: 1})
    s.leave("a")
    s.wait(WEEK - CHECK)
    s.commit("s", {T0: 5})
    s.wait(3 * CHECK)
    assert s.offsets() == {T0: 5}


def test_retention_survives_a_restart() -> None:
    s = stable_group("a", session_ms=1_800_000)
    s.commit("a", {T0: 1})
    s.leave("a")
    s.wait(WEEK / 2)
    s.restart()
    s.wait(WEEK / 2 - CHECK)
    assert s.offsets() == {T0: 1}
    s.wait(2 * CHECK)
    assert s.offsets() == {}
    s.restart()
    assert s.offsets() == {}
    assert s.coordinator.list_groups() == []


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_retention_time_in_the_request_is_honoured(is_restarted: bool) -> None:
    s = Scenario()
    s.commit("s", {T0: 1}, retention_time_ms=3_600_000)
    s.commit("s", {T1: 1}, retention_time_ms=-1)
    if is_restarted:
        s.restart()
    s.wait(3_600 - 1)
    assert s.offsets() == {T0: 1, T1: 1}
    s.wait(CHECK)
    assert s.offsets() == {T1: 1}


@pytest.mark.parametrize("retention_time_ms", [2**63 - 1, -(2**63)])
def test_a_retention_time_beyond_all_time_can_be_recorded(retention_time_ms: int) -> None:
    s = Scenario()
    s.commit("s", {T0: 1}, retention_time_ms=retention_time_ms)
    s.restart()
    assert s.offsets() == {T0: 1}
    s.wait(3601)
    assert (s.offsets() == {T0: 1}) is (retention_time_ms > 0)


def test_offsets_pending_in_a_transaction_do_not_expire() -> None:
    s = Scenario()
    transactional_commit(s, 5, producer_id=77)
    s.wait(2 * WEEK)
    s.coordinator.replay_marker(77, is_commit=True)
    assert s.offsets() == {T0: 5}


def test_offsets_of_a_deleted_topic_are_removed() -> None:
    s = Scenario()
    s.commit("s", {T0: 1, U0: 2})
    s.delete_topic("t")
    assert s.offsets() == {U0: 2}
    s.restart()
    assert s.offsets() == {U0: 2}
    assert s.coordinator.committed_topics() == {"u"}


# ---- OffsetDelete


def deleted(s: Scenario, *partitions: tuple[str, int]) -> dict[tuple[str, int], ErrorCode]:
    token = s.delete_offsets(list(partitions))
    assert s.replies[token].error_code == OK
    return s.partition_errors(token)


def refusal(s: Scenario, group: str = "g") -> ErrorCode:
    token = s.delete_offsets([T0], group)
    assert s.replies[token].topics == []
    return ErrorCode(s.replies[token].error_code)


def test_offsets_of_a_group_without_members_are_deleted_for_good() -> None:
    s = stable_group("a")
    s.commit("a", {T0: 1, T1: 2, U0: 3})
    s.leave("a")
    assert deleted(s, T0, U0) == {T0: OK, U0: OK}
    assert s.offsets() == {T1: 2}
    s.restart()
    assert s.offsets() == {T1: 2}
    assert s.state() == "Empty"


def test_offsets_of_topics_that_members_read_are_not_deleted() -> None:
    s = stable_group("a")
    s.commit("a", {T0: 1, U0: 3})
    assert deleted(s, T0, U0) == {T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, U0: OK}
    assert s.offsets() == {T0: 1}


def test_what_was_never_committed_is_deleted_already_but_a_missing_partition_is_an_error() -> None:
    s = Scenario()
    s.commit("s", {T0: 1})
    records = len(s.log)
    missing = ("t", 9)
    assert deleted(s, T1, missing) == {T1: OK, missing: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert len(s.log) == records
    assert deleted(s) == {}


def test_a_standalone_group_is_gone_with_its_last_offset() -> None:
    s = Scenario()
    s.commit("s", {T0: 1, U0: 1})
    assert deleted(s, T0, T0) == {T0: OK}
    assert s.state() == "Empty"
    deleted(s, U0)
    assert s.coordinator.list_groups() == []


def test_commits_of_a_transaction_that_is_not_over_are_deleted_too() -> None:
    s = Scenario()
    s.commit("s", {U0: 1})
    transactional_commit(s, 5, 7)
    assert deleted(s, T0) == {T0: OK}
    s.coordinator.replay_marker(7, is_commit=True)
    assert s.offsets() == {U0: 1}


def test_offsets_are_deleted_of_groups_that_are_known_and_say_what_they_read() -> None:
    assert refusal(Scenario(), "") is ErrorCode.INVALID_GROUP_ID
    assert refusal(Scenario()) is ErrorCode.GROUP_ID_NOT_FOUND
    s = stable_group("a", protocol_type="connect")
    s.commit("a", {T0: 1})
    assert refusal(s) is ErrorCode.NON_EMPTY_GROUP
    s.leave("a")
    assert deleted(s, T0) == {T0: OK}


# ---- administration


def test_groups_are_described_in_every_state_and_dead_when_unknown() -> None:
    s = Scenario()
    assert s.state() == "Dead"
    assert s.coordinator.describe("g").error_code == 0
    s.enter("a")
    assert s.state() == "PreparingRebalance"
    s.wait(3)
    assert s.state() == "CompletingRebalance"
    assert s.coordinator.describe("g").protocol_data == ""
    s.sync("a", {"a": b"x"})
    described = s.coordinator.describe("g")
    assert (described.group_state, described.protocol_data) == ("Stable", "range")
    (member,) = described.members
    assert member.client_id == "a"
    assert member.client_host == "/127.0.0.1"
    assert member.member_assignment == b"x"
    assert b"t" in member.member_metadata
    s.leave("a")
    assert s.state() == "Empty"
    assert s.coordinator.describe("g").protocol_type == "consumer"


def test_groups_are_listed_by_state_and_type() -> None:
    s = stable_group("a")
    s.client("s", group="simple")
    s.commit("s", {T0: 1})

    def listed(*states: str, types: tuple[str, ...] = ()) -> list[str]:
        return [group.group_id for group in s.coordinator.list_groups(states, types)]

    assert listed() == ["g", "simple"]
    assert listed("stable") == ["g"]
    assert listed("Empty", "PreparingRebalance") == ["simple"]
    assert listed("nonsense") == []
    assert listed(types=("Classic",)) == ["g", "simple"]
    assert listed(types=("consumer",)) == []
    g, simple = s.coordinator.list_groups()
    assert (g.protocol_type, g.group_type) == ("consumer", "classic")
    assert simple.protocol_type == ""


def test_deleting_groups() -> None:
    s = stable_group("a")
    s.commit("a", {T0: 1})
    assert s.delete("g") is ErrorCode.NON_EMPTY_GROUP
    assert s.delete("nobody") is ErrorCode.GROUP_ID_NOT_FOUND
    s.leave("a")
    assert s.delete("g") is OK
    assert s.delete("g") is ErrorCode.GROUP_ID_NOT_FOUND
    assert s.state() == "Dead"
    assert s.offsets() == {}


def test_a_deleted_group_stays_deleted_after_a_restart() -> None:
    s = stable_group("a")
    s.commit("a", {T0: 1, U0: 2})
    s.leave("a")
    s.delete("g")
    s.restart()
    assert s.coordinator.list_groups() == []
    assert s.offsets() == {}


def test_a_group_that_is_created_anew_after_its_deletion_starts_afresh() -> None:
    s = stable_group("a")
    s.commit("a", {T0: 1})
    s.leave("a")
    s.delete("g")
    s.commit("s", {T1: 5})
    s.restart()
    assert s.offsets() == {T1: 5}


# ---- restarts


def test_a_stable_group_goes_on_after_a_restart() -> None:
    s = stable_group("a", "b")
    s.restart()
    assert s.heartbeat("a") is OK
    assert s.heartbeat("b") is OK
    assert commit_error(s, "a") is OK
    assert s.replies[s.sync("b")].assignment == b"b"


def test_static_members_are_known_after_a_restart() -> None:
    s = Scenario()
    s.enter("a", instance="ia")
    s.wait(3)
    s.sync("a", {"a": b"x"})
    s.restart()
    reply = s.replies[s.join("a", member_id="")]
    assert (reply.error_code, reply.generation_id) == (0, 1)
    assert s.replies[s.sync("a")].assignment == b"x"


def test_a_rebalance_that_a_restart_interrupts_is_made_anew() -> None:
    s = stable_group("a", "b")
    new = s.enter("c")
    s.join("a")
    s.join("b")
    assert s.clients["c"].generation == 2
    s.restart()
    assert s.error(s.sync("a")) is ErrorCode.ILLEGAL_GENERATION
    assert s.heartbeat("b") is ErrorCode.ILLEGAL_GENERATION
    assert s.error(s.sync("c")) is ErrorCode.UNKNOWN_MEMBER_ID
    again = s.join("a")
    s.join("b")
    assert s.replies[again].generation_id == 2
    assert s.replies[new].generation_id == 2


def test_a_loaded_group_above_the_size_limit_rebalances() -> None:
    s = stable_group("a", "b", "c")
    s.config = GroupConfig(member_count_max=2)
    s.restart()
    assert s.heartbeat("a") is ErrorCode.REBALANCE_IN_PROGRESS
    s.join("a")
    s.join("b")
    assert s.error(s.join("c")) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert s.clients["a"].generation == 2


def test_sessions_start_anew_with_a_restart() -> None:
    s = stable_group("a", "b")
    s.wait(9)
    s.restart()
    s.wait(9)
    assert s.heartbeat("a") is OK
    s.wait(2)
    assert s.heartbeat("b") is ErrorCode.UNKNOWN_MEMBER_ID
