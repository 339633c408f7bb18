"""What the coordinator may ask of the world, and in which order the world has to do it.

Every entry point of `GroupCoordinator` takes a request and the time, changes the state at once, and
returns a list of effects. The driver (`asyncbroker/group_shard.py`) carries them out:

- `Append(records)`: write the records to the coordinator's partition of `__consumer_offsets`.
- `Reply(token, response)`: the answer to the request that came with `token`. Each token gets
  exactly one reply, in this list or in a later one (a parked JoinGroup), unless it is forgotten.
- `Note(group_id, text)`: something a person wants to see in the log; changes nothing.

The ordering contract:

1. Appends are written in the order in which they were returned, across lists.
2. A reply is not sent before every append that was returned ahead of it, in this list or in an
   earlier one, is durable. `Reply.at_once` lifts this: a heartbeat is answered while a disk is
   slow, or slow disks would throw members out of their groups. For the same reason a member whose
   answer is held back is not silent, and `Reply.member` says whose it is: `expire` is told of such
   members, and `answered` when their sessions run again.

The state moves before it is durable, so a reply computed from it must not overtake it; that is what
(2) is for. When an append fails, the state in memory is ahead of the log for good: the driver
answers NOT_COORDINATOR to every token it still holds, throws the coordinator away and replays the
partition into a new one. Members then find the last state that was durable, as after a restart.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

Token = Hashable
Record = tuple[bytes, "bytes | None"]


@dataclass(frozen=True, slots=True)
class Append:
    """Records to make durable: key and value, a None value deletes the key."""

    records: tuple[Record, ...]


class MemberKey(NamedTuple):
    """A member of a group."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one request; `at_once` when it need not wait for earlier appends. `member` is
    who waits for it, where that is a member with a session."""

    token: Token
    response: object
    at_once: bool = False
    member: MemberKey | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """A line for the log: what happened to a group, and why."""

    group_id: str
    text: str


Effect = Append | Reply | Note


class Instant(NamedTuple):
    """The time of a call: sessions and rebalances run on `monotonic` seconds, records and retention
    on `wall_ms` since the epoch."""

    monotonic: float
    wall_ms: int


class Caller(NamedTuple):
    """Who sent a request. `unique` is fresh for each request, and makes a member id if one is due
    (the coordinator is deterministic: it draws no random numbers itself)."""

    api_version: int = 0
    client_id: str = ""
    client_host: str = ""
    unique: str = ""
