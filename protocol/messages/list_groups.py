"""ListGroups (key 16), versions 0 to 5: the groups that this broker coordinates.

v1   the throttle time (KIP-124)
v2   on a quota violation the response comes at once and says how long to wait (KIP-219)
v3   flexible (KIP-482)
v4   states, and a filter by them (KIP-518)
v5   types, and a filter by them (KIP-848)
"""

from __future__ import annotations

from dataclasses import dataclass

from asyncbroker.protocol.schema import INT16, INT32, STRING, array, wire


@dataclass(slots=True)
class ListGroupsRequest:
    """Filters, compared without regard to case; an empty one lets everything through."""

    states_filter: list[str] = wire(array(STRING), "4+")
    types_filter: list[str] = wire(array(STRING), "5+")


@dataclass(slots=True)
class ListedGroup:
    """A group; its type is "classic" or "consumer"."""

    group_id: str = wire(STRING)
    protocol_type: str = wire(STRING)
    group_state: str = wire(STRING, "4+", ignorable=True)
    group_type: str = wire(STRING, "5+", ignorable=True)


@dataclass(slots=True)
class ListGroupsResponse:
    """The groups that pass."""

    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    error_code: int = wire(INT16)
    groups: list[ListedGroup] = wire(array(ListedGroup))
