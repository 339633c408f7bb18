"""The last requests of a broker in a test: what each was about, and what came of it.

A request is noted when it is handled, with the names that people look for: API, client, topics and
groups, errors, time taken, faults. How the requests of each API name these is found by field names,
which are Kafka's; so nothing here lists the APIs. The requests themselves are not kept: they hold
on to the bytes that came from the socket.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, is_dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from asyncbroker.protocol.api import API_BY_NAME
from asyncbroker.protocol.errors import KafkaError
from asyncbroker.settings import nearest
from asyncbroker.testing.arguments import checked
from asyncbroker.tracing.describe import error_names, groups_of
from asyncbroker.tracing.text import printable

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext

REQUESTS_KEPT: Final = 1000

NO_PARTITION: Final = -1
PARTITIONS_SHOWN_MAX: Final = 6

_TOPICS: Final = ("topics", "topic_data", "topic_names")
_TOPIC_NAME: Final = ("name", "topic")
_PARTITIONS: Final = ("partitions", "partition_data", "partition_indexes")
_PARTITION_INDEX: Final = ("index", "partition", "partition_index")

TopicPartition = tuple[str, int]


@dataclass(slots=True)
class Request:
    """One request. `message` is the decoded request while a fault may look at it, None later.
    `milliseconds` is None as long as there is no answer; a partition of -1 is the whole topic;
    `node` is the id of the node that it came to. Faults that are about no request leave a line of
    their own, whose text is `note` and whose `api` is empty."""

    at: float
    api: str
    version: int
    client_id: str
    partitions: tuple[TopicPartition, ...]
    groups: tuple[str, ...]
    node: int = 1
    is_one_of_several: bool = False
    note: str = ""
    message: Any = None
    errors: tuple[str, ...] = ()
    milliseconds: float | None = None
    faults: list[str] = field(default_factory=list)
    _began: float = field(default_factory=time.perf_counter)

    @property
    def topics(self) -> frozenset[str]:
        """The names of the topics that the request is about."""
        return frozenset(topic for topic, _ in self.partitions)

    def answered(self, response: Any) -> None:
        """It has a response, or needs none."""
        self.errors = error_names(response)
        self._end()

    def failed(self, error: BaseException) -> None:
        """The handler has raised this."""
        name = error.code.name if isinstance(error, KafkaError) else type(error).__name__
        self.errors = (name,)
        self._end()

    def _end(self) -> None:
        self.milliseconds = (time.perf_counter() - self._began) * 1000
        self.message = None

    def subject(self) -> str:
        """API, client, and what it is about."""
        if self.note:
            return f"[{self.note}]"
        names = [
            printable(topic) + (f"-{index}" if index >= 0 else "")
            for topic, index in self.partitions
        ]
        if len(names) > PARTITIONS_SHOWN_MAX:
            more = len(names) - PARTITIONS_SHOWN_MAX
            names = [*names[:PARTITIONS_SHOWN_MAX], f"and {more} more"]
        node = f" at {self.node}" if self.is_one_of_several else ""
        api = f"{self.api} v{self.version}{node}"
        client = printable(self.client_id) or "(no client id)"
        parts = [api, client, *map(printable, self.groups)]
        return "  ".join([*parts, ", ".join(names)] if names else parts)

    def outcome(self) -> str:
        """What came of it, without the time."""
        parts = [", ".join(self.errors)] if self.errors else []
        parts += [f"[fault: {fault}]" for fault in self.faults]
        if self.milliseconds is None and not self.note:
            parts.append("not answered")
        return " ".join(parts)

    def __str__(self) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(self.at))
        taken = "" if self.milliseconds is None else f"  {self.milliseconds:.1f} ms"
        outcome = self.outcome()
        arrow = f"  -> {outcome}" if outcome else ""
        return f"{clock}.{int(self.at * 1000) % 1000:03}  {self.subject()}{taken}{arrow}"


class Requests:
    """The last requests, oldest first. May be read from any thread."""

    def __init__(self, kept: int = REQUESTS_KEPT, *, nodes: int = 1) -> None:
        self._nodes = nodes
        self._last: Request | None = None
        self._ring: deque[Request] = deque(maxlen=kept)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._ring.copy())

    def __len__(self) -> int:
        return len(self._ring)

    @checked
    def of(self, api: str | None = None, topic: str | None = None) -> list[Request]:
        """Those of one API, about one topic. Raises ValueError for an API that Kafka does not have,
        of which none would ever be found."""
        if api is not None:
            check_api(api)
        return [
            request
            for request in self
            if (api is None or request.api == api) and (topic is None or topic in request.topics)
        ]

    def clear(self) -> None:
        """Forgets them."""
        self._ring.clear()

    def begin(
        self, api: str, node_id: int, broker: Broker, context: RequestContext, message: Any
    ) -> Request:
        """Notes a request that is about to be handled."""
        request = Request(
            at=time.time(),
            api=api,
            version=context.api_version,
            client_id=context.client_id,
            partitions=tuple(_partitions_of(api, broker, message)),
            groups=tuple(groups_of(message)),
            node=node_id,
            is_one_of_several=self._nodes > 1,
            message=message,
        )
        self._ring.append(request)
        self._last = request
        return request

    def last_faults(self) -> list[str]:
        """The faults of the request that was begun last, which are written to the list that this
        returns."""
        return self._last.faults if self._last is not None else []

    def add_note(self, text: str) -> None:
        """Notes something that happened to no request in particular; from any thread."""
        self._ring.append(
            Request(
                at=time.time(),
                api="",
                version=-1,
                client_id="",
                partitions=(),
                groups=(),
                note=text,
            )
        )

    def describe(self, *, since: float = 0.0, lines_max: int = 40) -> str:
        """The last of them as text, a line each; equal ones that follow each other share one."""
        lines = []
        recent = (request for request in self if request.at >= since)
        for _, equal in groupby(recent, lambda request: (request.subject(), request.outcome())):
            run = list(equal)
            lines.append(f"{run[-1]}  ({len(run)} times)" if len(run) > 1 else str(run[0]))
        if len(lines) > lines_max:
            lines = [f"... {len(lines) - lines_max} lines before these", *lines[-lines_max:]]
        return "\n".join(lines)


def check_api(name: str) -> None:
    """Raises ValueError, with the name that may be meant, unless Kafka has this API."""
    if name not in API_BY_NAME:
        raise ValueError(f"Kafka has no API {name}{nearest(name, API_BY_NAME)}")


def _first_of(item: Any, names: Iterable[str]) -> Any:
    """The first of these attributes that there is; None without one."""
    return next((getattr(item, name) for name in names if hasattr(item, name)), None)


def _partitions_of(api: str, broker: Broker, message: Any) -> Iterator[TopicPartition]:
    """The partitions that a request names; those of its session if that is how a fetch asks."""
    holders = [message, *(group for group in getattr(message, "groups", ()) if is_dataclass(group))]
    for holder in holders:
        for name in _TOPICS:
            for topic in getattr(holder, name, None) or ():
                yield from _partitions_of_topic(broker, topic)
    session = broker.fetch_sessions.get(message.session_id) if api == "Fetch" else None
    if session is not None and message.session_epoch > 0:
        for fetched in session.partitions.values():
            yield _topic_name(broker, fetched), fetched.wanted.partition


def _partitions_of_topic(broker: Broker, topic: Any) -> Iterator[TopicPartition]:
    if isinstance(topic, str):
        yield topic, NO_PARTITION
        return
    partitions = _first_of(topic, _PARTITIONS)
    name = _topic_name(broker, topic)
    if not isinstance(partitions, (list, tuple)):
        yield name, NO_PARTITION
        return
    for partition in partitions:
        index = partition if isinstance(partition, int) else _first_of(partition, _PARTITION_INDEX)
        yield name, NO_PARTITION if index is None else index


def _topic_name(broker: Broker, topic: Any) -> str:
    """By name, or by the id that newer versions have in its place."""
    name = _first_of(topic, _TOPIC_NAME)
    if name:
        return str(name)
    found = broker.topics.by_id(getattr(topic, "topic_id", b""))
    return "(unknown topic)" if found is None else found.name
