"""FindCoordinator (key 10), versions 0 to 5: which broker coordinates a group or transaction.

v1   the key's type, throttle time and error message (KIP-98)
v2   on a quota violation the response comes at once and says how long to wait (KIP-219)
v3   flexible (KIP-482)
v4   several keys in one request (KIP-699)
v5   TRANSACTION_ABORTABLE may be answered (KIP-890)
"""

from __future__ import annotations

from dataclasses import dataclass

from asyncbroker.protocol.schema import INT8, INT16, INT32, STRING, array, wire


@dataclass(slots=True)
class FindCoordinatorRequest:
    """Group ids (`key_type` 0) or transactional ids (1): one up to v3, a list from v4 on."""

    key: str = wire(STRING, "0-3")
    key_type: int = wire(INT8, "1+")
    coordinator_keys: list[str] = wire(array(STRING), "4+")


@dataclass(slots=True)
class Coordinator:
    """The coordinator of one key."""

    key: str = wire(STRING)
    node_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+", default=None)


@dataclass(slots=True)
class FindCoordinatorResponse:
    """The coordinator: one up to v3, one for each key from v4 on."""

    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    error_code: int = wire(INT16, "0-3")
    error_message: str | None = wire(STRING, "1-3", nullable="0+", default=None, ignorable=True)
    node_id: int = wire(INT32, "0-3")
    host: str = wire(STRING, "0-3")
    port: int = wire(INT32, "0-3")
    coordinators: list[Coordinator] = wire(array(Coordinator), "4+")
