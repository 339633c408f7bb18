"""DescribeClientQuotas (key 48), versions 0 to 1: what users and clients may use up (KIP-546).

v1   flexible (KIP-482)
"""

from __future__ import annotations

from dataclasses import dataclass

from asyncbroker.protocol.schema import BOOL, FLOAT64, INT8, INT16, INT32, STRING, array, wire


@dataclass(slots=True)
class ComponentData:
    """What an entity must be: of this type, and (match type 0) of this name, (1) the default one,
    or (2) any."""

    entity_type: str = wire(STRING)
    match_type: int = wire(INT8)
    match: str | None = wire(STRING, nullable="0+")


@dataclass(slots=True)
class DescribeClientQuotasRequest:
    """The filter; a strict one passes no entities that have parts besides those named."""

    components: list[ComponentData] = wire(array(ComponentData))
    strict: bool = wire(BOOL)


@dataclass(slots=True)
class EntityData:
    """A part of an entity; a null name is the default one."""

    entity_type: str = wire(STRING)
    entity_name: str | None = wire(STRING, nullable="0+")


@dataclass(slots=True)
class ValueData:
    """A limit."""

    key: str = wire(STRING)
    value: float = wire(FLOAT64)


@dataclass(slots=True)
class EntryData:
    """An entity with its limits."""

    entity: list[EntityData] = wire(array(EntityData))
    values: list[ValueData] = wire(array(ValueData))


@dataclass(slots=True)
class DescribeClientQuotasResponse:
    """The entities that pass the filter, or an error and null."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+", default=None)
    entries: list[EntryData] | None = wire(array(EntryData), nullable="0+")
