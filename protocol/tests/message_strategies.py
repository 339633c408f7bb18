"""What the codec tests share: every message of every API and version, and how to generate it.

The strategies are made from the tables. Values are short, but for some whose compact lengths take
two or three bytes; those are left out where a test goes through a message byte by byte.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from asyncbroker.protocol.api import APIS, Api
from asyncbroker.protocol.codec import Codec
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.schema import Array, Field, Nested, Primitive, table_of

IS_LONG: Final = os.environ.get("HYPOTHESIS_PROFILE") == "long"


@dataclass(frozen=True)
class Case:
    """One message in one version."""

    api: Api
    version: int
    kind: str

    def __str__(self) -> str:
        return f"{self.api.name}{self.kind} v{self.version}"

    @property
    def codec(self) -> Codec[Any]:
        of_version = self.api.request_codec if self.kind == "Request" else self.api.response_codec
        return of_version(self.version)

    def messages(self, *, are_short: bool = False) -> st.SearchStrategy[Any]:
        message_class: type = self.codec.message_class
        return messages(message_class, self.version, are_short)


CASES: Final = [
    Case(api, version, kind)
    for api in APIS
    for version in range(api.versions.first, api.versions.last + 1)
    for kind in ("Request", "Response")
]


def check(test: Callable[..., None], *strategies: st.SearchStrategy[Any], examples: int) -> None:
    """Runs a property on so many examples, or thirty times as many under the profile "long"."""
    profile = settings(
        max_examples=examples * 30 if IS_LONG else examples,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    profile(given(*strategies)(test))()


@cache
def messages(message_class: type, version: int, are_short: bool) -> st.SearchStrategy[Any]:
    """Messages whose fields are all of this version."""
    fields = {
        name: _values(name, field, version, are_short)
        for name, field in table_of(message_class).items()
        if version in field.versions
    }
    return st.builds(message_class, **fields)


def _values(name: str, field: Field, version: int, are_short: bool) -> st.SearchStrategy[Any]:
    is_tagged = field.tag is not None and version in field.tagged
    if isinstance(field.type, Array):
        item = field.type.item
        if isinstance(item, Nested):
            values = st.lists(messages(item.message, version, are_short), max_size=2)
        else:
            values = st.lists(_primitives(name, item, are_short), max_size=3)
            values |= _primitives(name, item, True).map(lambda value: [value] * 130)
    elif isinstance(field.type, Nested):
        values = messages(field.type.message, version, are_short)
        if is_tagged:
            # Absent is None here, but a struct of defaults in the other codecs.
            nothing = field.type.message()
            return st.none() | values.filter(lambda value: value != nothing)
    else:
        values = _primitives(name, field.type, are_short)
    return st.none() | values if version in field.nullable else values


def _integers(bits: int, *, is_signed: bool = True) -> st.SearchStrategy[int]:
    if is_signed:
        return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    return st.integers(0, (1 << bits) - 1)


_PRIMITIVES: Final[dict[str, st.SearchStrategy[Any]]] = {
    "bool": st.booleans(),
    "int8": _integers(8),
    "int16": _integers(16),
    "int32": _integers(32),
    "int64": _integers(64),
    "uint16": _integers(16, is_signed=False),
    "uint32": _integers(32, is_signed=False),
    "float64": st.floats(allow_nan=False),
    "uuid": st.binary(min_size=16, max_size=16),
    "string": st.text("ab.é漢😀\0", max_size=4),
    "bytes": st.binary(max_size=4),
    "records": st.binary(max_size=4),
}

_LONG: Final[dict[str, st.SearchStrategy[Any]]] = {
    "string": st.sampled_from(["x" * 126, "x" * 127, "é" * 64, "漢" * 5500]),
    "bytes": st.sampled_from([bytes(126), bytes(127), bytes(16_383)]),
    "records": st.sampled_from([bytes(126), bytes(127), bytes(16_383)]),
}

# kio holds these in types of its own, which have no room for every number.
_ERROR_CODES: Final = st.sampled_from([int(code) for code in ErrorCode])
_MILLISECONDS: Final = st.integers(-1, 4_000_000_000_000)


def _primitives(name: str, primitive: Primitive, are_short: bool) -> st.SearchStrategy[Any]:
    if name == "error_code":
        return _ERROR_CODES
    if primitive.name == "int64" and name.endswith("_ms"):
        return _MILLISECONDS
    if primitive.name in _LONG and not are_short:
        return _PRIMITIVES[primitive.name] | _LONG[primitive.name]
    return _PRIMITIVES[primitive.name]
