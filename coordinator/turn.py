"""One call into the coordinator: when it is, what it may look up, and what comes out of it.

The functions that serve requests take the group and the turn. They change the group at once and put
what the world has to do into the turn, in order (see `effects.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from asyncbroker.coordinator.config import GroupConfig
from asyncbroker.coordinator.deadlines import (
    DeadlineKey,
    Deadlines,
    member_sync_deadline,
    rejoin_deadline,
    revocation_deadline,
    session_deadline,
)
from asyncbroker.coordinator.effects import (
    Append,
    Effect,
    Instant,
    MemberKey,
    Note,
    Record,
    Reply,
    Token,
)

if TYPE_CHECKING:
    from asyncbroker.coordinator.consumer.group import ConsumerGroup
    from asyncbroker.coordinator.group import Group
    from asyncbroker.coordinator.member import Member


def counted(count: int, noun: str) -> str:
    """A number of things, for people: "1 member", "2 members"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


class Turn:
    """The context of one call, and its effects so far."""

    __slots__ = ("_deadlines", "config", "effects", "now")

    def __init__(self, config: GroupConfig, deadlines: Deadlines, now: Instant) -> None:
        self.config = config
        self.now = now
        self.effects: list[Effect] = []
        self._deadlines = deadlines

    def append(self, records: Iterable[Record]) -> None:
        """Has records made durable; nothing if there are none."""
        if records := tuple(records):
            self.effects.append(Append(records))

    def reply(
        self,
        token: Token | None,
        response: object,
        *,
        at_once: bool = False,
        member: MemberKey | None = None,
    ) -> None:
        """Answers a request; a token that was forgotten has nobody to answer to."""
        if token is not None:
            self.effects.append(Reply(token, response, at_once, member))

    def answer(self, group: Group, member: Member, token: Token | None, response: object) -> None:
        """Answers a member, whose session runs from when the answer goes out."""
        self.renew_session(group, member)
        self.reply(token, response, member=MemberKey(group.group_id, member.member_id))

    def note(self, group: Group | ConsumerGroup, text: str) -> None:
        """Tells people what happened."""
        self.effects.append(Note(group.group_id, text))

    def set_deadline(self, key: DeadlineKey, after_ms: int) -> None:
        """Sets or moves a deadline, counted from now."""
        self._deadlines.set(key, self.now.monotonic + after_ms / 1000)

    def set_deadline_if_unset(self, key: DeadlineKey, after_ms: int) -> None:
        """Sets a deadline, unless it is running already."""
        if self._deadlines.get(key) is None:
            self.set_deadline(key, after_ms)

    def cancel_deadline(self, key: DeadlineKey) -> None:
        """Forgets a deadline."""
        self._deadlines.cancel(key)

    def cancel_member_deadlines(self, group_id: str, member_id: str) -> None:
        """A member of a consumer group is gone."""
        for deadline in (
            session_deadline,
            revocation_deadline,
            rejoin_deadline,
            member_sync_deadline,
        ):
            self._deadlines.cancel(deadline(group_id, member_id))

    def renew_session(self, group: Group, member: Member) -> None:
        """A sign of life: the session timeout runs from now."""
        key = session_deadline(group.group_id, member.member_id)
        self.set_deadline(key, member.session_timeout_ms)

    def end_session(self, group: Group, member_id: str) -> None:
        """The member is gone, and so is its deadline."""
        self.cancel_deadline(session_deadline(group.group_id, member_id))
