"""DescribeGroups (key 15), versions 0 to 6: state, members and assignments of groups.

v1   the throttle time (KIP-124)
v2   on a quota violation the response comes at once and says how long to wait (KIP-219)
v3   authorized operations (KIP-430)
v4   static members (KIP-345)
v5   flexible (KIP-482)
v6   an unknown group is an error, with a message (KIP-1043)
"""

from __future__ import annotations

from dataclasses import dataclass

from asyncbroker.protocol.schema import BOOL, BYTES, INT16, INT32, STRING, array, wire


@dataclass(slots=True)
class DescribeGroupsRequest:
    """The groups to describe."""

    groups: list[str] = wire(array(STRING))
    include_authorized_operations: bool = wire(BOOL, "3+")


@dataclass(slots=True)
class DescribedGroupMember:
    """A member; its metadata and assignment are filled in while the group is stable."""

    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, "4+", nullable="0+", default=None, ignorable=True)
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    member_metadata: bytes = wire(BYTES)
    member_assignment: bytes = wire(BYTES)


@dataclass(slots=True)
class DescribedGroup:
    """A group: "Empty", "PreparingRebalance", "CompletingRebalance", "Stable" or "Dead" (unknown).

    `protocol_data` is the name of the assignor, filled in while the group is stable.
    """

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, "6+", nullable="6+", default=None, ignorable=True)
    group_id: str = wire(STRING)
    group_state: str = wire(STRING)
    protocol_type: str = wire(STRING)
    protocol_data: str = wire(STRING)
    members: list[DescribedGroupMember] = wire(array(DescribedGroupMember))
    authorized_operations: int = wire(INT32, "3+", default=-2147483648)


@dataclass(slots=True)
class DescribeGroupsResponse:
    """The groups as they are."""

    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    groups: list[DescribedGroup] = wire(array(DescribedGroup))
