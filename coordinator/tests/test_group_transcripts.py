"""Transcripts: what clients do to a group, line by line, and every effect that comes of it.

Each file in `transcripts/` is a story. A line that is not indented is a command, the indented lines
after it are the effects. `pytest --rewrite-transcripts` writes them anew; read the diff, and commit
it only if you understand it. Commands:

    config NAME=VALUE...        settings of the coordinator, before anything else
    client NAME OPTION=VALUE... how a client is configured (the fields of `Client`)
    join NAME OPTION=VALUE...   JoinGroup, with the member id that the client knows
    sync NAME [WHO=PART...]     SyncGroup; the leader gives each client its part
    heartbeat NAME              Heartbeat
    leave NAME... [by=instance] LeaveGroup
    commit NAME T/P=OFFSET...   OffsetCommit
    fetch GROUP [T/P...]        OffsetFetch
    lose NAME                   the connection of the client's last request breaks
    restart                     a new coordinator from the records
    wait SECONDS                time passes
    list | describe GROUP | delete GROUP | delete_topic TOPIC
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from asyncbroker.coordinator.config import GroupConfig
from asyncbroker.coordinator.effects import Record
from asyncbroker.coordinator.records import (
    GroupMetadataRecord,
    OffsetCommitRecord,
    decode_record,
)
from asyncbroker.coordinator.tests.group_scenario import Scenario, Token
from asyncbroker.coordinator.tests.transcript import hold_against, show, transcripts
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.heartbeat import HeartbeatResponse
from asyncbroker.protocol.messages.join_group import JoinGroupResponse
from asyncbroker.protocol.messages.leave_group import LeaveGroupResponse
from asyncbroker.protocol.messages.offset_commit import OffsetCommitResponse
from asyncbroker.protocol.messages.sync_group import SyncGroupResponse


@pytest.mark.parametrize("path", transcripts("transcripts"), ids=lambda path: path.stem)
def test_transcript(path: Path, request: pytest.FixtureRequest) -> None:
    hold_against(path, run, request)


def run(text: str) -> str:
    """The transcript with the effects as they are now."""
    lines: list[str] = []
    scenario: Scenario | None = None
    for line in text.splitlines():
        if line.startswith("  "):
            continue
        lines.append(line)
        if not line or line.startswith("#"):
            continue
        command, *words = line.split()
        if command == "config":
            scenario = Scenario(replace(GroupConfig(), **config_of(words)))
            continue
        scenario = scenario or Scenario()
        scenario.effects.clear()
        shown = COMMANDS[command](scenario, *words) or []
        effects = (
            each for effect in scenario.effects for each in show(effect, show_record, show_reply)
        )
        lines.extend(f"  {each}" for each in (*effects, *shown))
        waiting = scenario.tokens[-1] if command in ("join", "sync") else None
        if waiting is not None and scenario.is_waiting(waiting):
            lines.append("  (waits)")
    return "\n".join(lines) + "\n"


# ---- commands


def config_of(words: list[str]) -> dict[str, Any]:
    return {name: int(value) for name, value in options_of(words).items()}


def options_of(words: tuple[str, ...] | list[str]) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words if "=" in word)


def client_options(words: tuple[str, ...]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for key, value in options_of(words).items():
        if key in ("protocols", "topics"):
            options[key] = tuple(value.split(","))
        elif key in ("session_ms", "rebalance_ms", "version", "generation"):
            options[key] = int(value)
        else:
            options[key] = value
    return options


def client_command(s: Scenario, name: str, *words: str) -> None:
    s.client(name, **client_options(words))


def join_command(s: Scenario, name: str, *words: str) -> None:
    s.join(name, **client_options(words))


def sync_command(s: Scenario, name: str, *words: str) -> None:
    s.sync(name, {who: part.encode() for who, part in options_of(words).items()})


def heartbeat_command(s: Scenario, name: str) -> None:
    s.heartbeat(name)


def leave_command(s: Scenario, *words: str) -> None:
    s.leave(*(w for w in words if "=" not in w), by_instance="by=instance" in words)


def commit_command(s: Scenario, name: str, *words: str) -> None:
    s.commit(name, {partition_of(key): int(v) for key, v in options_of(words).items()})


def fetch_command(s: Scenario, group: str, *words: str) -> None:
    s.fetch(group, [partition_of(word) for word in words] or None)


def lose_command(s: Scenario, name: str) -> None:
    s.lose_connection(next(t for t in reversed(s.tokens) if t.client == name))


def restart_command(s: Scenario) -> None:
    s.restart()


def wait_command(s: Scenario, seconds: str) -> None:
    s.wait(float(seconds))


def list_command(s: Scenario, *words: str) -> list[str]:
    return [
        f"{g.group_id} {g.group_state} {g.protocol_type or '-'} {g.group_type}"
        for g in s.coordinator.list_groups(words)
    ]


def describe_command(s: Scenario, group: str) -> list[str]:
    described = s.coordinator.describe(group)
    return [
        f"{group} {described.group_state} protocol={described.protocol_data or '-'}",
        *(f"{m.member_id} has {m.member_assignment.decode() or '-'}" for m in described.members),
    ]


def delete_command(s: Scenario, group: str) -> None:
    s.delete(group)


def delete_topic_command(s: Scenario, topic: str) -> None:
    s.delete_topic(topic)


def partition_of(text: str) -> tuple[str, int]:
    topic, _, partition = text.partition("/")
    return topic, int(partition)


COMMANDS: dict[str, Callable[..., list[str] | None]] = {
    "client": client_command,
    "join": join_command,
    "sync": sync_command,
    "heartbeat": heartbeat_command,
    "leave": leave_command,
    "commit": commit_command,
    "fetch": fetch_command,
    "lose": lose_command,
    "restart": restart_command,
    "wait": wait_command,
    "list": list_command,
    "describe": describe_command,
    "delete": delete_command,
    "delete_topic": delete_topic_command,
}


# ---- effects


def show_record(record: Record) -> str:
    decoded = decode_record(*record)
    if isinstance(decoded, OffsetCommitRecord):
        key, offset = decoded.key, decoded.value
        place = f"offset {key.group} {key.topic}/{key.partition}"
        return f"{place} = {offset.offset}" if offset else f"{place} deleted"
    assert isinstance(decoded, GroupMetadataRecord)
    group = decoded.value
    if group is None:
        return f"group {decoded.key.group} deleted"
    members = ", ".join(f"{m.member_id} has {m.assignment.decode() or '-'}" for m in group.members)
    return (
        f"group {decoded.key.group} generation={group.generation} "
        f"protocol={group.protocol or '-'} leader={group.leader or '-'}"
        + (f": {members}" if members else "")
    )


def show_reply(token: Token, response: Any) -> str:
    return f"{token.api} {token.client}: {show_response(response)}"


def show_response(response: Any) -> str:
    error = ErrorCode(getattr(response, "error_code", 0))
    parts = [error.name] if error else []
    if isinstance(response, JoinGroupResponse):
        if error:
            parts.append(f"member={response.member_id or '-'}")
        else:
            parts.append(f"member={response.member_id} generation={response.generation_id}")
            parts.append(f"protocol={response.protocol_name} leader={response.leader}")
            if response.members:
                parts.append("members=" + ",".join(m.member_id for m in response.members))
            if response.skip_assignment:
                parts.append("skip_assignment")
    elif isinstance(response, SyncGroupResponse):
        if not error:
            parts.append(f"assignment={response.assignment.decode() or '-'}")
    elif isinstance(response, LeaveGroupResponse):
        parts.extend(
            f"{m.member_id or m.group_instance_id}={ErrorCode(m.error_code).name}"
            for m in response.members
        )
    elif isinstance(response, OffsetCommitResponse):
        parts.extend(
            f"{topic.name}/{p.partition_index}={ErrorCode(p.error_code).name}"
            for topic in response.topics
            for p in topic.partitions
        )
    elif hasattr(response, "topics"):
        parts.extend(
            f"{topic.name}/{p.partition_index}={p.committed_offset}"
            for topic in response.topics
            for p in topic.partitions
        )
        parts = parts or ["nothing"]
    elif not isinstance(response, HeartbeatResponse):
        parts.append(f"{response.group_id}={error.name}")
        parts = parts[-1:]
    return " ".join(parts) or "NONE"
