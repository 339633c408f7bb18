"""Groups of the consumer protocol: sessions, revocations, intervals, restarts, what is written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from asyncbroker.coordinator.config import GroupConfig, MigrationPolicy
from asyncbroker.coordinator.consumer.changes import Changes
from asyncbroker.coordinator.consumer.member import MemberState
from asyncbroker.coordinator.coordinator import GroupCoordinator
from asyncbroker.coordinator.effects import Append, Instant, Note, Reply
from asyncbroker.coordinator.tests.consumer_scenario import ConsumerScenario
from asyncbroker.coordinator.tests.fake_topics import FakeTopics
from asyncbroker.coordinator.tests.group_scenario import settle
from asyncbroker.protocol.errors import ErrorCode

AT_ONCE = GroupConfig(consumer_assignment_interval_ms=0)
each_policy = pytest.mark.parametrize("policy", MigrationPolicy)


def group_of(*names: str, config: GroupConfig = AT_ONCE, partitions: int = 4) -> ConsumerScenario:
    c = ConsumerScenario(config, FakeTopics(t=partitions))
    for name in names:
        c.add(name)
    c.settle(rounds=4, seconds=0)
    return c


def test_a_silent_member_loses_its_partitions_when_its_session_ends() -> None:
    c = group_of("a", "b")
    for _ in range(9):
        c.heartbeat("a")
        c.s.wait(5)
    assert [member.member_id for member in c.group().members.values()] == ["a-1"]
    assert len(c.heartbeat("a").assignment.topic_partitions[0].partitions) == 4  # type: ignore[union-attr]
    assert c.heartbeat("b").error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_give_up_in_time_is_fenced() -> None:
    c = group_of("a")
    c.add("b")
    c.heartbeat("b")
    c.heartbeat("a", takes_over=False)
    assert c.group().members["a-1"].state is MemberState.UNREVOKED_PARTITIONS
    for _ in range(11):
        c.s.wait(5)
        assert c.heartbeat("a", takes_over=False).error_code == ErrorCode.NONE
        c.heartbeat("b")
    c.s.wait(5)
    assert c.heartbeat("a").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    c.settle(rounds=4)
    assert len(c.owners()) == 4


def test_members_that_come_together_cost_one_assignment() -> None:
    config = GroupConfig(consumer_assignment_interval_ms=1_000)
    c = ConsumerScenario(config, FakeTopics(t=4))
    for name in ("a", "b", "c"):
        c.add(name)
        c.heartbeat(name)
    assert c.group().assignment_epoch == 2
    assert c.group().epoch == 4
    c.s.wait(1)
    c.heartbeat("b")
    assert c.group().assignment_epoch == 4


def test_an_answer_without_news_does_not_wait_for_the_disk() -> None:
    c = group_of("a")
    c.s.effects.clear()
    c.heartbeat("a")
    (reply,) = c.s.effects
    assert isinstance(reply, Reply)
    assert reply.at_once
    c.members["a"].has_news = True
    c.s.effects.clear()
    c.heartbeat("a")
    assert not [effect for effect in c.s.effects if isinstance(effect, Append)]
    (reply,) = c.s.effects
    assert isinstance(reply, Reply)
    assert not reply.at_once


def test_members_go_on_where_they_were_after_a_restart() -> None:
    c = group_of("a", "b")
    before = c.owners()
    c.s.restart()
    c.settle(rounds=2, seconds=0)
    assert c.owners() == before
    assert c.group().epoch == 3


def test_a_deleted_group_leaves_only_tombstones() -> None:
    c = group_of("a")
    c.leave("a")
    assert c.s.delete() is ErrorCode.NONE
    last = dict(c.s.log)
    assert set(last.values()) == {None}
    loaded = GroupCoordinator(AT_ONCE, c.topics)
    for record in c.s.log:
        loaded.replay(*record)
    loaded.finish_loading(Instant(0.0, 0))
    assert loaded.list_groups() == []


def test_a_topic_that_is_made_again_is_another_topic() -> None:
    c = group_of("a")
    c.topics.delete("t")
    c.settle(rounds=2)
    assert c.owners() == {}
    c.topics.create("t", 2)
    c.settle(rounds=2)
    assert set(c.owners()) == c.topics.partitions("t")


def test_a_static_member_that_left_for_a_while_has_nothing_to_give_up_in_time() -> None:
    c = ConsumerScenario(AT_ONCE, FakeTopics(t=4))
    c.add("a", instance="ia", rebalance_ms=10_000)
    c.add("b")
    c.settle("a", rounds=2, seconds=0)
    c.heartbeat("b")
    c.heartbeat("a", takes_over=False)
    assert c.group().members["a-1"].pending_revocation
    c.leave("a", for_a_while=True)
    for _ in range(8):
        c.s.wait(5)
        c.heartbeat("b")
    assert "a-1" in c.group().members
    c.restart_member("a")
    c.settle(rounds=4)
    assert len(c.owners()) == 4


def test_an_expression_of_another_broker_is_no_trouble_of_those_who_join() -> None:
    c = group_of("a")
    member = replace(c.group().members["a-1"], topic_regex="(?<=look)behind")
    changes = Changes(c.group())
    changes.put_member(member)
    changes.put_regex("(?<=look)behind", frozenset({"t"}), 1, 1)
    c.s.log += changes.records
    c.s.restart()
    c.add("b")
    assert c.heartbeat("b").error_code == ErrorCode.NONE
    assert c.group().regexes["(?<=look)behind"].topics == {"t"}
    assert any("(?<=look)behind" in e.text for e in c.s.effects if isinstance(e, Note))
    c.settle(rounds=4)
    assert len(c.owners()) == 4


def test_a_classic_group_whose_members_have_left_before_its_first_generation_is_taken_over() -> (
    None
):
    c = ConsumerScenario(AT_ONCE, FakeTopics(t=4))
    c.s.enter("k")
    c.s.leave("k")
    c.add("a")
    response = c.heartbeat("a")
    assert (response.error_code, response.member_epoch) == (ErrorCode.NONE, 2)
    assert len(c.owners()) == 4


def with_policy(policy: MigrationPolicy) -> GroupConfig:
    return replace(AT_ONCE, migration_policy=policy, initial_rebalance_delay_ms=0)


@each_policy
def test_the_policy_says_whether_a_consumer_may_join_those_of_the_classic_protocol(
    policy: MigrationPolicy,
) -> None:
    c = ConsumerScenario(with_policy(policy), FakeTopics(t=4))
    c.s.enter("k")
    c.s.wait(0)
    c.s.sync("k", {"k": b""})
    c.add("a")
    response = c.heartbeat("a")
    if policy in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL):
        assert response.error_code == ErrorCode.NONE
        assert set(c.group().members) == {"a-1", c.s.clients["k"].member_id}
        assert c.s.heartbeat("k") is ErrorCode.REBALANCE_IN_PROGRESS
    else:
        assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert response.error_message is not None
        assert response.error_message.endswith("online upgrade is disabled.")
        assert c.s.state() == "Stable"
        assert c.s.heartbeat("k") is ErrorCode.NONE


@each_policy
def test_the_policy_says_what_becomes_of_a_group_when_its_last_consumer_leaves(
    policy: MigrationPolicy,
) -> None:
    c = group_of("a", config=with_policy(policy))
    # Who may join has nothing to do with the policy, in Kafka either.
    assert c.s.error(c.s.enter("k")) is ErrorCode.NONE
    c.leave("a")
    (group,) = c.s.coordinator.list_groups()
    if policy in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL):
        assert group.group_type == "classic"
        assert c.s.heartbeat("k") is ErrorCode.REBALANCE_IN_PROGRESS
        c.s.join("k")
        settle(c.s, "k")
    else:
        assert group.group_type == "consumer"
        assert set(c.group().members) == {c.s.clients["k"].member_id}
