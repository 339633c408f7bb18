"""Arguments that are of no use, told at once and by name, before anything is begun.

    @checked
    def topic(self, name: str) -> Topic: ...    # topic(3): TypeError, name=3 is not str

A function says what it takes by its annotations, and `checked` holds each call against these:
TypeError for another type, ValueError for a number that is not `Within` what the annotation says.
What an iterable holds is looked at too, unless it can be gone through only once; what a mapping
holds is not.
"""

from __future__ import annotations

import functools
import inspect
import reprlib
from collections.abc import Callable, Collection, Container, Iterable
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    ParamSpec,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Class = TypeVar("Class", bound=type)


@dataclass(frozen=True, slots=True)
class Within:
    """The limits of a number, both included."""

    first: float
    last: float


# What a response's throttle time has room for, an int32; a delay of more is a mistake.
Milliseconds = Annotated[float, Within(0, 2**31 - 1)]

# No test waits for longer than a day.
Seconds = Annotated[float, Within(0, 86_400)]

# Kafka has no earlier ones, and 64 bits for them.
Timestamp = Annotated[int, Within(0, 2**63 - 1)]

UNIONS: Final = (Union, UnionType)
HOLDERS: Final = (Iterable, Container)


def checked_methods(cls: Class) -> Class:
    """The class, with all its public methods `checked`."""
    for name, method in list(vars(cls).items()):
        if inspect.isfunction(method) and not name.startswith("_"):
            setattr(cls, name, checked(method))
    return cls


def checked(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """The function, whose arguments are looked at first."""
    positional = [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]

    @functools.cache
    def hints() -> dict[str, Any]:
        # Not before they are needed: pytest imports this where no test may need it.
        return get_type_hints(function, include_extras=True)

    @functools.wraps(function)
    def call(*args: Parameters.args, **keywords: Parameters.kwargs) -> Result:
        __tracebackhide__ = True
        known = hints()
        for name, value in (*zip(positional, args, strict=False), *keywords.items()):
            if name in known:
                _check(name, value, known[name])
        return function(*args, **keywords)

    return call


def _check(name: str, value: object, hint: Any) -> None:
    __tracebackhide__ = True
    if not _fits(value, hint):
        raise TypeError(f"{name}={reprlib.repr(value)} is not {_named(hint)}")
    for part in get_args(hint) if get_origin(hint) in UNIONS else (hint,):
        limits = part.__metadata__[0] if get_origin(part) is Annotated else None
        if not isinstance(limits, Within) or not isinstance(value, (int, float)):
            continue
        # Said so that NaN is refused too.
        if not limits.first <= value <= limits.last:
            raise ValueError(f"{name}={value!r}: it is {limits.first} to {limits.last}")


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of the type that an annotation says."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _fits(value, inner[0])
    if origin in UNIONS:
        return any(_fits(value, each) for each in inner)
    if origin is tuple and inner[-1] is not ...:
        return (
            isinstance(value, tuple) and len(value) == len(inner) and all(map(_fits, value, inner))
        )
    if origin in HOLDERS and isinstance(value, Collection) and not isinstance(value, range):
        return all(_fits(each, inner[0]) for each in value)
    if hint is float:
        return isinstance(value, (int, float))
    return hint is Any or isinstance(value, origin or hint)


def _named(hint: Any) -> str:
    """A type as a test's author would write it."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _named(inner[0])
    if origin in UNIONS:
        *others, last = map(_named, inner)
        return f"{', '.join(others)} or {last}"
    if origin is tuple and inner[-1] is not ...:
        return f"({', '.join(map(_named, inner))})"
    if origin in HOLDERS:
        return f"some of {_named(inner[0])}"
    if hint is NoneType:
        return "None"
    return str(getattr(origin or hint, "__name__", hint))
