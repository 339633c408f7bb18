"""Entries, of a recording or a packet capture, put together: each request with its answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from asyncbroker.protocol.errors import ProtocolError
from asyncbroker.tracing.describe import learn_names, summarise
from asyncbroker.tracing.exchange import Exchange
from asyncbroker.tracing.frames import (
    Head,
    decode_request,
    decode_response,
    expects_response,
    read_head,
)
from asyncbroker.tracing.recording import Entry, Kind
from asyncbroker.tracing.unanswered import Unanswered

# Of one connection, decoded: a capture may have one direction only.
WAITING_MAX: Final = 1000

_Asked = tuple[Entry, Head, Any, str]
"""A request, as it is and decoded, and what is wrong with it."""


def exchanges(entries: Iterable[Entry], *, is_full: bool) -> Iterator[Exchange]:
    """The requests of a recording with their answers, in the order in which they ended."""
    peers: dict[int, str] = {}
    names: dict[bytes, str] = {}
    waiting: dict[int, Unanswered[_Asked]] = {}

    def ended(asked: _Asked, answer: Entry | None) -> Exchange:
        entry, head, request, problem = asked
        response = None
        if answer is not None and not answer.is_cut:
            try:
                response = decode_response(head, answer.data)
            except ProtocolError as error:
                problem = problem or str(error)
        learn_names(names, response)
        return summarise(
            head,
            request,
            response,
            names.get,
            at=entry.time_us / 1e6,
            milliseconds=0.0 if answer is None else (answer.time_us - entry.time_us) / 1000,
            connection=entry.connection,
            peer=peers.get(entry.connection, ""),
            request_bytes=entry.size,
            response_bytes=None if answer is None else answer.size,
            problem=problem,
            is_full=is_full,
        )

    for entry in entries:
        asked = waiting.get(entry.connection)
        if entry.kind is Kind.OPENED:
            peers[entry.connection] = entry.data.decode("utf-8", "replace")
        elif entry.kind is Kind.REQUEST:
            row = _request_of(entry)
            if not expects_response(row[1], row[2]):
                yield ended(row, None)
                continue
            if asked is None:
                asked = waiting[entry.connection] = Unanswered()
            elif len(asked) == WAITING_MAX and (oldest := asked.oldest()):
                yield ended(oldest, None)
            asked.add(row[1].correlation_id, row)
        elif entry.kind is Kind.RESPONSE and asked is not None:
            passed, found = asked.answered(entry.data)
            yield from (ended(row, None) for row in passed)
            if found is not None:
                yield ended(found, entry)
        elif entry.kind is Kind.CLOSED:
            if asked is not None:
                yield from (ended(row, None) for row in asked.all())
                del waiting[entry.connection]
            peers.pop(entry.connection, None)
    for asked in waiting.values():
        yield from (ended(row, None) for row in asked.all())


def _request_of(entry: Entry) -> _Asked:
    head = Head(-1, -1, -1, "")
    try:
        head = read_head(entry.data)
        if entry.is_cut:
            return entry, head, None, "not recorded whole"
        return entry, head, decode_request(head, entry.data), ""
    except ProtocolError as error:
        return entry, head, None, str(error)
