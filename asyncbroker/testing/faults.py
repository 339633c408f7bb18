"""Which requests fail, and how: rules that a test sets, and that each request is held against.

    broker.faults.on(api="Produce", topic="t", nth=3).error(ErrorCode.NOT_LEADER_OR_FOLLOWER)

`on` says which requests, and what follows the dot says what becomes of them. Rules are looked at in
the order in which they were set: every delay and throttling that fits adds up, and of the rest the
first one that fits wins. Rules may be set from any thread; requests are matched in the broker's.
Nothing here does anything to a request: that is `watch.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.testing.arguments import Milliseconds, checked, checked_methods
from asyncbroker.testing.disk import Disk
from asyncbroker.testing.requests import NO_PARTITION, Request, check_api

Predicate = Callable[[Request], bool]


class FaultKind(Enum):
    """What becomes of a request."""

    DELAY = "delay"
    ERROR = "error"
    DROP_CONNECTION_BEFORE = "connection dropped before handling"
    DROP_CONNECTION_AFTER = "connection dropped after handling"
    DROP_RESPONSE = "response dropped"
    CORRUPT = "records corrupted"
    THROTTLE = "throttle"


# These add up, and go along with any other.
TIMES: Final = (FaultKind.DELAY, FaultKind.THROTTLE)

# The APIs that carry record batches.
PRODUCE: Final = "Produce"
FETCH: Final = "Fetch"

# What a rule may be for, in the order of `Faults.on`.
SELECTORS: Final = ("api", "topic", "partition", "group", "client_id", "version", "node", "when")


@dataclass(slots=True, eq=False)
class Fault:
    """One rule, for the requests that `where` tells of. `matched` requests fitted it, and `fired`
    of them had the fault."""

    owner: Faults
    kind: FaultKind
    fits: Predicate
    first: int
    times: int | None
    probability: float
    chance: random.Random
    error_code: ErrorCode = ErrorCode.NONE
    milliseconds: float = 0.0
    byte: int = -1
    where: str = ""
    matched: int = 0
    fired: int = 0

    def __str__(self) -> str:
        if self.kind is FaultKind.ERROR:
            return f"error {self.error_code.name}"
        if self.kind in TIMES:
            return f"{self.kind.value} {self.milliseconds:g} ms"
        return str(self.kind.value)

    def fires_for(self, request: Request) -> bool:
        """Whether this request gets the fault; counts it, unless that is known only later."""
        if (self.times is not None and self.fired >= self.times) or not self.fits(request):
            return False
        return self.is_done_later(request) or self.fires()

    def is_done_later(self, request: Request) -> bool:
        """Whether `fires` is still to be asked, when there is a response: whether there are records
        in it to corrupt."""
        return self.kind is FaultKind.CORRUPT and request.api == FETCH

    def fires(self) -> bool:
        """Whether it is this one's turn; counts it."""
        if self.times is not None and self.fired >= self.times:
            return False
        self.matched += 1
        if self.matched < self.first:
            return False
        if self.probability < 1.0 and self.chance.random() >= self.probability:
            return False
        self.fired += 1
        return True

    def remove(self) -> None:
        """Takes the rule away."""
        self.owner.remove(self)


@checked_methods
class FaultPoint:
    """The requests that a rule is for; each method sets the rule and returns it."""

    def __init__(self, make: Callable[..., Fault], apis: frozenset[str] | None) -> None:
        self._make = make
        self._apis = apis

    def error(self, code: ErrorCode | int) -> Fault:
        """They are not handled, and answered with this error. Raises ValueError for NONE, which
        would say that what was not done was."""
        if code == ErrorCode.NONE:
            raise ValueError("NONE is no error")
        return self._make(FaultKind.ERROR, error_code=ErrorCode(code))

    def delay(self, milliseconds: Milliseconds) -> Fault:
        """They are handled that much later. Those behind them on the connection wait, as ever."""
        return self._make(FaultKind.DELAY, milliseconds=milliseconds)

    def throttle(self, milliseconds: Milliseconds) -> Fault:
        """Their response says that the client is throttled for so long, as with a quota of
        Kafka's, and the next request on that connection is not looked at before (KIP-219)."""
        return self._make(FaultKind.THROTTLE, milliseconds=milliseconds)

    def corrupt(self, *, byte: int = -1) -> Fault:
        """Of each record batch that they carry, this byte is another one (from the end, if it is
        negative): of a Produce before the broker checks it, of a Fetch in the response, as by a
        disk or a network that lies. A Fetch without records does not count. Raises ValueError for
        other APIs.

            faults.on(api="Fetch", topic="orders", times=1).corrupt()
        """
        if self._apis is None or not self._apis <= {PRODUCE, FETCH}:
            raise ValueError('record batches are in api="Produce" and api="Fetch"')
        return self._make(FaultKind.CORRUPT, byte=byte)

    def drop_connection(self, *, before: bool = True) -> Fault:
        """Their connection is closed, before the request is handled, or after it (and without the
        response, so that the client cannot know which)."""
        is_before = FaultKind.DROP_CONNECTION_BEFORE
        return self._make(is_before if before else FaultKind.DROP_CONNECTION_AFTER)

    def drop_response(self) -> Fault:
        """They are handled, and their response never comes; nor does anything else on that
        connection, which stays open until the client gives up."""
        return self._make(FaultKind.DROP_RESPONSE)


class Faults:
    """The rules of one broker, and its disk."""

    def __init__(self, note: Callable[[str], None] = lambda text: None) -> None:
        self.disk = Disk(note)
        # Replaced as a whole, so that the broker's thread never sees it change.
        self._rules: tuple[Fault, ...] = ()

    def __len__(self) -> int:
        return len(self._rules) + len(self.disk)

    @checked
    def on(
        self,
        *,
        api: str | Iterable[str] | None = None,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
        client_id: str | None = None,
        version: int | Container[int] | None = None,
        node: int | None = None,
        nth: int = 1,
        times: int | None = None,
        probability: float = 1.0,
        seed: int = 0,
        when: Predicate | None = None,
    ) -> FaultPoint:
        """The requests that fit everything given.

        `partition`: of the topic, or of any; `version`: one, or a range of them; `node`: the id of
        the node that they come to. `nth`: from the n-th of them on (then `times` is 1 unless it is
        said); `times`: so often, and never again; `probability`: of those, this part, by a
        generator that `seed` starts. `when` is called with the `Request` in the broker's thread.
        Raises ValueError for an API that Kafka does not have, and for what could never fire.

            faults.on(api="Produce", topic="t", partition=0, nth=3).drop_connection(before=False)
            faults.on(when=lambda request: request.api != "Fetch", probability=0.1).delay(50)
        """
        _check_numbers(nth, times, probability)
        apis = None if api is None else frozenset([api] if isinstance(api, str) else api)
        _check_names(apis)
        fits = _predicate(apis, topic, partition, group, client_id, version, node, when)
        said = [api, topic, partition, group, client_id, version, node, when]
        where = _described(dict(zip(SELECTORS, said, strict=True)))

        def make(
            kind: FaultKind,
            *,
            error_code: ErrorCode = ErrorCode.NONE,
            milliseconds: float = 0.0,
            byte: int = -1,
        ) -> Fault:
            return self._add(
                Fault(
                    self,
                    kind,
                    fits,
                    first=nth,
                    times=1 if times is None and nth > 1 else times,
                    probability=probability,
                    # Chance that can be repeated is what is wanted here.
                    chance=random.Random(seed),
                    error_code=error_code,
                    milliseconds=milliseconds,
                    byte=byte,
                    where=where,
                )
            )

        return FaultPoint(make, apis)

    def remove(self, fault: Fault) -> None:
        """Takes one rule away; harmless when it is gone."""
        self._rules = tuple(rule for rule in self._rules if rule is not fault)

    def clear(self) -> None:
        """Takes all rules away, and what ails the disk. What is delayed or dropped already stays
        so."""
        self._rules = ()
        self.disk.clear()

    @property
    def never_fired(self) -> list[Fault]:
        """The rules that no request has had its fault from, which may be a mistake in a name."""
        return [rule for rule in self._rules if not rule.fired]

    @property
    def has_rules(self) -> bool:
        """Whether requests have to be looked at."""
        return bool(self._rules)

    def of(self, request: Request) -> tuple[Fault, ...]:
        """What this request gets: delays, throttling, and at most one other fault."""
        fired: list[Fault] = []
        is_decided = False
        for rule in self._rules:
            if rule.kind in TIMES:
                if rule.fires_for(request):
                    fired.append(rule)
            elif not is_decided and rule.fires_for(request):
                fired.append(rule)
                is_decided = True
        return tuple(fired)

    def _add(self, fault: Fault) -> Fault:
        self._rules = (*self._rules, fault)
        return fault


def _predicate(
    apis: frozenset[str] | None,
    topic: str | None,
    partition: int | None,
    group: str | None,
    client_id: str | None,
    version: int | Container[int] | None,
    node: int | None,
    when: Predicate | None,
) -> Predicate:
    """Whether a request fits everything that is given."""
    versions = (version,) if isinstance(version, int) else version

    def fits(request: Request) -> bool:
        return (
            (apis is None or request.api in apis)
            and (topic is None or topic in request.topics)
            and (partition is None or _has_partition(request, topic, partition))
            and (group is None or group in request.groups)
            and (client_id is None or request.client_id == client_id)
            and (versions is None or request.version in versions)
            and (node is None or request.node == node)
            and (when is None or when(request))
        )

    return fits


def _described(wanted: dict[str, object]) -> str:
    """What a rule is for, as it was said."""
    said = (f"{name}={value!r}" for name, value in wanted.items() if value is not None)
    return ", ".join(said) or "every request"


def _has_partition(request: Request, topic: str | None, index: int) -> bool:
    """Whether it is about a partition of this index; a request about a topic is about all."""
    return any(
        asked in (index, NO_PARTITION) and topic in (None, name)
        for name, asked in request.partitions
    )


def _check_numbers(nth: int, times: int | None, probability: float) -> None:
    if nth < 1 or not 0.0 <= probability <= 1.0:
        raise ValueError(f"nth={nth} counts from 1, probability={probability} is 0 to 1")
    if times is not None and times < 1:
        raise ValueError(f"times={times} never fires; remove() takes a fault away")


def _check_names(apis: frozenset[str] | None) -> None:
    if apis is None:
        return
    if not apis:
        raise ValueError("api names no API; without it, all are meant")
    for name in sorted(apis):
        check_api(name)
