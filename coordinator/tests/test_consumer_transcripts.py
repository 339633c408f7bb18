"""Transcripts of groups of the consumer protocol (KIP-848): what members say, and what comes of it.

As in `test_group_transcripts.py`, each file in `consumer_transcripts/` is a story: a line that is
not indented is a command, the indented lines after it are the effects, and
`pytest --rewrite-transcripts` writes them anew. Commands:

    config NAME=VALUE...         settings of the coordinator, before anything else
    topic NAME COUNT             a topic, or one with more partitions
    delete_topic NAME            it is gone
    member NAME OPTION=VALUE...  how a member is configured (the fields of `Consumer`)
    heartbeat NAME [lags]        its next heartbeat; one that lags goes on with what it had
    take_over NAME               it has given up, and reads, what it was told last
    leave NAME [for_a_while]     it stops
    again NAME                   a new process of it, with another member id
    classic NAME                 a JoinGroup of a member of the classic protocol, group g
    own NAME=VALUE...            settings of group g of its own
    restart                      a new coordinator from the records
    wait SECONDS                 time passes
    describe | list | owners     the group g, all groups, who reads what

A partition is shown as `t/0`, one that a member has to give up in brackets.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from asyncbroker.coordinator.config import GroupConfig
from asyncbroker.coordinator.consumer.member import MemberState
from asyncbroker.coordinator.consumer.records import ConsumerRecord, RecordKind
from asyncbroker.coordinator.effects import Record
from asyncbroker.coordinator.records import decode_record
from asyncbroker.coordinator.tests.consumer_scenario import ConsumerScenario
from asyncbroker.coordinator.tests.fake_topics import FakeTopics
from asyncbroker.coordinator.tests.group_scenario import Token
from asyncbroker.coordinator.tests.transcript import hold_against, show, transcripts
from asyncbroker.protocol.errors import ErrorCode


@pytest.mark.parametrize("path", transcripts("consumer_transcripts"), ids=lambda path: path.stem)
def test_transcript(path: Path, request: pytest.FixtureRequest) -> None:
    hold_against(path, Story().run, request)


class Story:
    """One transcript: its commands are the methods, its effects are those of the scenario."""

    def __init__(self) -> None:
        self.own: dict[str, GroupConfig] = {}
        self.topics = FakeTopics()
        # Ids of topics that are gone are still in records.
        self.topic_names: dict[bytes, str] = {}
        self.c = ConsumerScenario(GroupConfig(own=self.own), self.topics)

    def run(self, text: str) -> str:
        """The transcript with the effects as they are now."""
        lines: list[str] = []
        for line in text.splitlines():
            if line.startswith("  "):
                continue
            lines.append(line)
            if not line or line.startswith("#"):
                continue
            command, *words = line.split()
            self.c.s.effects.clear()
            shown: list[str] = getattr(self, f"do_{command}")(*words) or []
            effects = (
                each
                for effect in self.c.s.effects
                for each in show(effect, self.show_record, self.show_reply)
            )
            lines.extend(f"  {each}" for each in (*effects, *shown))
        return "\n".join(lines) + "\n"

    # ---- commands

    def do_config(self, *words: str) -> None:
        config = replace(self.c.s.config, **numbers_of(words))
        self.c = ConsumerScenario(config, self.topics)

    def do_topic(self, name: str, count: str) -> None:
        if self.topics.find(name) is None:
            self.topics.create(name, int(count))
        else:
            self.topics.grow(name, int(count))
        info = self.topics.find(name)
        assert info is not None
        self.topic_names[info.topic_id] = name

    def do_delete_topic(self, name: str) -> None:
        self.topics.delete(name)

    def do_member(self, name: str, *words: str) -> None:
        options: dict[str, Any] = dict(word.split("=", 1) for word in words)
        if "topics" in options:
            options["topics"] = tuple(options["topics"].split(","))
        if "rebalance_ms" in options:
            options["rebalance_ms"] = int(options["rebalance_ms"])
        if name not in self.c.members:
            self.c.add(name)
        for option, value in options.items():
            setattr(self.c.members[name], option, value)
        self.c.members[name].has_news = True

    def do_heartbeat(self, name: str, *words: str) -> None:
        if name not in self.c.members:
            self.c.add(name)
        self.c.heartbeat(name, takes_over="lags" not in words)

    def do_take_over(self, name: str) -> None:
        self.c.take_over(name)

    def do_leave(self, name: str, *words: str) -> None:
        self.c.leave(name, for_a_while="for_a_while" in words)

    def do_again(self, name: str) -> None:
        self.c.restart_member(name)

    def do_classic(self, name: str) -> None:
        self.c.s.join(name)

    def do_own(self, *words: str) -> None:
        self.own["g"] = replace(self.c.s.config, **numbers_of(words))

    def do_restart(self) -> None:
        self.c.s.restart()

    def do_wait(self, seconds: str) -> None:
        self.c.s.wait(float(seconds))

    def do_describe(self) -> list[str]:
        group = self.c.s.coordinator.describe_consumer_group("g")
        rows = [
            f"{group.group_state} epoch={group.group_epoch} assigned={group.assignment_epoch} "
            f"by {group.assignor_name}"
        ]
        for member in group.members:
            has, wants = (
                self.partitions(part.topic_partitions)
                for part in (member.assignment, member.target_assignment)
            )
            rows.append(f"{member.member_id} epoch={member.member_epoch} has {has} is to {wants}")
        return rows

    def do_list(self) -> list[str]:
        groups = self.c.s.coordinator.list_groups()
        return [f"{each.group_id} {each.group_state} {each.group_type}" for each in groups]

    def do_owners(self) -> list[str]:
        owned = self.c.owners().items()
        return sorted(f"{self.place(*where)} {', '.join(names)}" for where, names in owned)

    # ---- effects

    def show_reply(self, token: Token, response: Any) -> str:
        return f"{token.client}: {self.show_response(response)}"

    def show_response(self, response: Any) -> str:
        if response.error_code:
            return ErrorCode(response.error_code).name
        if not hasattr(response, "member_epoch"):
            return f"member={response.member_id} generation={response.generation_id}"
        assignment = response.assignment
        told = "" if assignment is None else f" has {self.partitions(assignment.topic_partitions)}"
        return f"member={response.member_id} epoch={response.member_epoch}{told}"

    def show_record(self, record: Record) -> str:
        decoded = decode_record(*record)
        if not isinstance(decoded, ConsumerRecord):
            return type(decoded).__name__
        key, value = decoded.key, decoded.value
        what = [NAMES[decoded.kind]]
        if hasattr(key, "member_id"):
            what.append(key.member_id)
        if hasattr(key, "regular_expression"):
            what.append(key.regular_expression)
        told = "deleted" if value is None else self.show_value(decoded.kind, value)
        return f"{' '.join(what)}: {told}"

    def show_value(self, kind: RecordKind, value: Any) -> str:
        if kind is RecordKind.GROUP_METADATA:
            return f"epoch={value.epoch}"
        if kind is RecordKind.TARGET_ASSIGNMENT_METADATA:
            return f"epoch={value.assignment_epoch}"
        if kind is RecordKind.TARGET_ASSIGNMENT_MEMBER:
            return self.partitions(value.topic_partitions)
        if kind is RecordKind.MEMBER_METADATA:
            topics = value.subscribed_topic_regex or ",".join(value.subscribed_topic_names)
            instance = f" instance={value.instance_id}" if value.instance_id else ""
            protocol = " classic" if value.classic_member_metadata else ""
            return f"reads {topics or 'nothing'}{instance}{protocol}"
        if kind is RecordKind.CURRENT_MEMBER_ASSIGNMENT:
            gives_up = self.partitions(value.partitions_pending_revocation, nothing="")
            return (
                f"epoch={value.member_epoch} {MemberState(value.state).name.lower()} "
                f"{self.partitions(value.assigned_partitions)}"
                + (f" [{gives_up}]" if gives_up else "")
            )
        return ",".join(value.topics) or "nothing"

    def partitions(self, topics: Iterable[Any], nothing: str = "nothing") -> str:
        found = [self.place(each.topic_id, index) for each in topics for index in each.partitions]
        return " ".join(sorted(found)) or nothing

    def place(self, topic_id: bytes, index: int) -> str:
        return f"{self.topic_names[topic_id]}/{index}"


NAMES: dict[RecordKind, str] = {
    RecordKind.GROUP_METADATA: "group",
    RecordKind.MEMBER_METADATA: "member",
    RecordKind.TARGET_ASSIGNMENT_METADATA: "target",
    RecordKind.TARGET_ASSIGNMENT_MEMBER: "target",
    RecordKind.CURRENT_MEMBER_ASSIGNMENT: "current",
    RecordKind.REGULAR_EXPRESSION: "expression",
    RecordKind.PARTITION_METADATA: "topics",
}


def numbers_of(words: tuple[str, ...]) -> dict[str, Any]:
    """Settings by the names of `GroupConfig`."""
    return {name: int(value) for name, value in (word.split("=", 1) for word in words)}
