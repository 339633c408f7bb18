"""DeleteGroups (key 42), versions 0 to 2: deletes groups without members (KIP-229).

v1   on a quota violation the response comes at once and says how long to wait (KIP-219)
v2   flexible (KIP-482)
"""

from __future__ import annotations

from dataclasses import dataclass

from asyncbroker.protocol.schema import INT16, INT32, STRING, array, wire


@dataclass(slots=True)
class DeleteGroupsRequest:
    """The groups to delete."""

    groups_names: list[str] = wire(array(STRING))


@dataclass(slots=True)
class DeletableGroupResult:
    """The outcome for one group."""

    group_id: str = wire(STRING)
    error_code: int = wire(INT16)


@dataclass(slots=True)
class DeleteGroupsResponse:
    """An outcome for each group of the request."""

    throttle_time_ms: int = wire(INT32)
    results: list[DeletableGroupResult] = wire(array(DeletableGroupResult))
