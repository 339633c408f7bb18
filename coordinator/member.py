"""One member of a group: who it is, what it can speak, and which of its requests wait.

A member waits ("is parked") in at most two ways: in a JoinGroup until the next generation is
complete, and in a SyncGroup until the leader has handed in the assignment. Whether it has joined
and whether somebody still listens for the answer are two things: when the connection of a
parked request is lost, the member has still joined, but its token is gone, and from then on its
session runs (Kafka does not notice such a loss, as it does not read from a connection whose request
waits).
"""

from __future__ import annotations

from asyncbroker.coordinator.effects import Token
from asyncbroker.protocol.messages.describe_groups import DescribedGroupMember
from asyncbroker.protocol.messages.join_group import (
    JoinGroupRequestProtocol,
    JoinGroupResponseMember,
)


class Member:
    """A member of a classic group. `protocols` are names and opaque metadata, preferred first."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "group_instance_id",
        "has_joined",
        "is_id_known",
        "is_new",
        "join_token",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_token",
    )

    def __init__(
        self,
        member_id: str,
        *,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocols: dict[str, bytes],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.protocols = protocols
        self.assignment = assignment

        # `has_joined`: in the coming generation. The tokens are those of the parked requests.
        self.has_joined = False
        self.join_token: Token | None = None
        self.sync_token: Token | None = None

        # Between its first JoinGroup and the answer to it. A new member can be given up while it
        # waits, others cannot; and one that has not been told its id can never come back.
        self.is_new = False
        self.is_id_known = True

    @property
    def is_static(self) -> bool:
        """Whether the member outlives its process (KIP-345)."""
        return self.group_instance_id is not None

    def may_expire(self) -> bool:
        """Whether silence counts: not while a request of the member waits for us."""
        if self.is_new:
            return True
        return self.join_token is None and self.sync_token is None

    def has_same_protocols(self, protocols: dict[str, bytes]) -> bool:
        """Whether names, metadata and order of preference are unchanged."""
        return list(self.protocols.items()) == list(protocols.items())

    def vote(self, candidates: set[str]) -> str:
        """The candidate that the member prefers; every member supports every candidate."""
        return next(name for name in self.protocols if name in candidates)

    def joined_member(self, protocol_name: str) -> JoinGroupResponseMember:
        """The member as its group's leader is told of it."""
        return JoinGroupResponseMember(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            metadata=self.protocols[protocol_name],
        )

    def described_member(self, protocol_name: str | None) -> DescribedGroupMember:
        """The member as DescribeGroups shows it; with metadata only when a protocol is in force."""
        return DescribedGroupMember(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            member_metadata=b"" if protocol_name is None else self.protocols[protocol_name],
            member_assignment=self.assignment,
        )


def protocols_of(protocols: list[JoinGroupRequestProtocol]) -> dict[str, bytes]:
    """The protocols of a JoinGroup by name, in order; of a name given twice the first counts."""
    by_name: dict[str, bytes] = {}
    for protocol in protocols:
        by_name.setdefault(protocol.name, protocol.metadata)
    return by_name
