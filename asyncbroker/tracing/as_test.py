"""A recording as a pytest file: each request as the object that it is, each answer held against
what was recorded of it.

What a broker gives out (member ids, generations, producer ids, topic ids, fetch sessions) is taken
from the answers of the broker under test, by the name of the variable that holds them. ApiVersions
is left out, as whoever connects asks for it anyway; so are requests that were not recorded whole,
and fetches that only waited.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from asyncbroker.protocol.compression import CorruptBatch
from asyncbroker.protocol.errors import ProtocolError
from asyncbroker.protocol.records import Compression, batches, records_of
from asyncbroker.protocol.schema import defaults_of
from asyncbroker.tracing.api_names import api_name
from asyncbroker.tracing.describe import error_names, topic_ids
from asyncbroker.tracing.frames import (
    API_VERSIONS_KEY,
    Head,
    decode_request,
    decode_response,
    expects_response,
    read_head,
)
from asyncbroker.tracing.plain import record_values
from asyncbroker.tracing.recording import Entry, Kind
from asyncbroker.tracing.unanswered import Unanswered

LINE_LENGTH_MAX: Final = 100
VALUES_SHOWN_MAX: Final = 50

_HEADER: Final = '''"""What clients asked a broker and what it answered, as recorded in {name}.

Made by `asyncbroker replay --as-test`. Runs against BOOTSTRAP_SERVERS, or against a broker of its
own.
"""

import os
from contextlib import ExitStack

import pytest

{imports}from asyncbroker.testing import BrokerThread
from asyncbroker.testing.wire import Wire, {helpers}


@pytest.fixture
def connect():
    """Makes a connection for a client id."""
    servers = os.environ.get("BOOTSTRAP_SERVERS")
    with ExitStack() as stack:
        if servers is None:
            servers = stack.enter_context(BrokerThread()).bootstrap_servers
        yield lambda client_id: stack.enter_context(Wire(servers, client_id))


def test_recorded_requests_are_answered_as_recorded(connect):
'''


@dataclasses.dataclass(slots=True)
class _Asked:
    """A request that is written, or was left out."""

    head: Head
    request: Any
    name: str
    line: int


class _Names:
    """Which expression stands for a value that a broker gave out."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, Any], str] = {}
        self.modules: dict[str, set[str]] = {}
        self.helpers = {"errors"}

    def learn(self, request: Any, response: Any, name: str) -> None:
        """An answer that is held in a variable."""
        kind = type(request).__name__
        if kind == "JoinGroupRequest":
            self._set("member_id", response.member_id, f"{name}.member_id")
            generation = (request.group_id, response.generation_id)
            self._set("generation_id", generation, f"{name}.generation_id")
        elif kind == "InitProducerIdRequest":
            self._set("producer_id", response.producer_id, f"{name}.producer_id")
        elif kind == "FetchRequest" and response.session_id:
            self._set("session_id", response.session_id, f"{name}.session_id")
        for topic, topic_id in topic_ids(response):
            self._set("topic_id", topic_id, f"topic_id({name}, {_literal(topic)})")

    def expression(self, field: str, value: Any, group_id: str) -> str | None:
        """What to write for a field in place of its value."""
        if field in ("generation_id", "generation_id_or_member_epoch"):
            return self._known.get(("generation_id", (group_id, value)))
        found = self._known.get((field, value)) if isinstance(value, (str, bytes, int)) else None
        if found is not None and field == "topic_id":
            self.helpers.add("topic_id")
        return found

    def _set(self, field: str, value: Any, expression: str) -> None:
        if value not in ("", -1):
            self._known.setdefault((field, value), expression)


def source_of_test(entries: Iterable[Entry], file_name: str, connections: frozenset[int]) -> str:
    """The text of the file."""
    names = _Names()
    lines: list[str] = []
    opened: dict[int, str] = {}
    asked: dict[int, Unanswered[_Asked | None]] = {}
    count = 0
    for entry in entries:
        if connections and entry.connection not in connections:
            continue
        if entry.kind is Kind.REQUEST:
            count += 1
            _write_request(entry, count, names, lines, opened, asked)
        elif entry.kind is Kind.RESPONSE:
            _write_response(entry, names, lines, opened, asked)
    text = _HEADER.format(
        name=Path(file_name).name,
        helpers=", ".join(sorted(names.helpers)),
        imports="".join(_import_lines(names.modules)),
    )
    return text + "\n".join(list(filter(None, lines)) or ["    pass"]) + "\n"


def _write_request(
    entry: Entry,
    count: int,
    names: _Names,
    lines: list[str],
    opened: dict[int, str],
    asked: dict[int, Unanswered[_Asked | None]],
) -> None:
    waiting = asked.setdefault(entry.connection, Unanswered())
    try:
        head = read_head(entry.data)
    except ProtocolError:
        return
    request = None
    if not entry.is_cut and head.api_key != API_VERSIONS_KEY:
        with suppress(ProtocolError):
            request = decode_request(head, entry.data)
    if request is None:
        # Left out, and so is its answer.
        waiting.add(head.correlation_id, None)
        return
    wire = opened.get(entry.connection)
    if wire is None:
        wire = opened[entry.connection] = f"wire_{len(opened) + 1}"
        lines.append(f"    {wire} = connect({_literal(head.client_id)})")
    is_answered = expects_response(head, request)
    call = f"{wire}.{'send' if is_answered else 'tell'}("
    argument = _source(request, names, getattr(request, "group_id", ""), 8)
    line = f"    {call}{argument}, {head.version})"
    if len(line) > LINE_LENGTH_MAX or "\n" in argument:
        line = f"    {call}\n        {argument},\n        {head.version},\n    )"
    lines.append(line)
    if is_answered:
        name = f"{_snake(api_name(head.api_key))}_{count}"
        waiting.add(head.correlation_id, _Asked(head, request, name, len(lines) - 1))


def _write_response(
    entry: Entry,
    names: _Names,
    lines: list[str],
    opened: dict[int, str],
    asked: dict[int, Unanswered[_Asked | None]],
) -> None:
    waiting = asked.get(entry.connection)
    passed, found = ([], None) if waiting is None else waiting.answered(entry.data)
    # Their answers are not in the recording; the broker under test gives them all the same.
    lines.extend(f"    {opened[entry.connection]}.receive()" for each in passed if each is not None)
    if found is None:
        return
    response = None
    if not entry.is_cut:
        with suppress(ProtocolError):
            response = decode_response(found.head, entry.data)
    is_fetch = type(response).__name__ == "FetchResponse"
    values: list[bytes | None] = []
    if is_fetch:
        with suppress(CorruptBatch):
            values = record_values(response)
    if is_fetch and not values and not _says_more(response):
        lines[found.line] = ""
        return
    wire = opened[entry.connection]
    if all(line == "" for line in lines[found.line + 1 :]):
        # Nothing came between: asking is one step.
        lines[found.line] = lines[found.line].replace(
            f"{wire}.send(", f"{found.name} = {wire}.ask(", 1
        )
    else:
        lines.append(f"    {found.name} = {wire}.receive()")
    if response is None:
        return
    names.learn(found.request, response, found.name)
    errors = error_names(response)
    lines.append(f"    assert errors({found.name}) == {_list_source(errors)}")
    if values and len(values) <= VALUES_SHOWN_MAX:
        names.helpers.add("values")
        shown = _wrapped(list(map(_literal, values)), 4)
        lines.append(f"    assert values({found.name}) == {shown}")


def _says_more(response: Any) -> bool:
    """Whether a fetch without records is worth keeping. A broker that stops answers those that wait
    with NOT_LEADER_OR_FOLLOWER."""
    is_stopped = set(error_names(response)) <= {"NOT_LEADER_OR_FOLLOWER"}
    return bool(response.session_id) or not is_stopped


def _source(value: Any, names: _Names, group_id: str, indent: int) -> str:
    """A value as Python, over several lines where one is too short."""
    if dataclasses.is_dataclass(value):
        cls = type(value)
        names.modules.setdefault(cls.__module__, set()).add(cls.__name__)
        group_id = getattr(value, "group_id", "") or group_id
        defaults = defaults_of(cls)
        arguments = []
        for field in dataclasses.fields(value):
            held = getattr(value, field.name)
            if held == defaults[field.name]:
                continue
            known = names.expression(field.name, held, group_id)
            if known is None and field.name == "records" and held is not None:
                known = _records_source(held, names, indent + 4)
            text = known or _source(held, names, group_id, indent + 4)
            arguments.append(f"{field.name}={text}")
        return _wrapped(arguments, indent, f"{cls.__name__}(", ")")
    if isinstance(value, list):
        return _wrapped([_source(item, names, group_id, indent + 4) for item in value], indent)
    return _literal(bytes(value) if isinstance(value, memoryview) else value)


def _records_source(records: Any, names: _Names, indent: int) -> str:
    """Batches as calls of `build_batch`; as they are where that would not give the same."""
    module = "asyncbroker.protocol.records"
    calls = []
    try:
        for header, batch in batches(records):
            items = list(records_of(batch, header))
            rows = []
            for record in items:
                fields = [repr(record.offset), repr(record.timestamp), _literal(record.key)]
                fields += [
                    _literal(record.value),
                    *([repr(record.headers)] if record.headers else []),
                ]
                rows.append(_wrapped(fields, indent + 8, "Record(", ")"))
            arguments = [_wrapped(rows, indent + 4)]
            if header.compression is not Compression.NONE:
                names.modules.setdefault(module, set()).add("Compression")
                arguments.append(f"compression=Compression.{header.compression.name}")
            if header.producer_id >= 0:
                known = names.expression("producer_id", header.producer_id, "")
                arguments.append(f"producer_id={known or header.producer_id}")
                arguments.append(f"producer_epoch={header.producer_epoch}")
                arguments.append(f"base_sequence={header.base_sequence}")
            calls.append(_wrapped(arguments, indent, "build_batch(", ")"))
    except CorruptBatch:
        return repr(bytes(records))
    names.modules.setdefault(module, set()).update(("Record", "build_batch"))
    return " + ".join(calls) or repr(bytes(records))


def _wrapped(items: list[str], indent: int, begin: str = "[", end: str = "]") -> str:
    line = f"{begin}{', '.join(items)}{end}"
    if "\n" not in line and len(line) + indent <= LINE_LENGTH_MAX - 20:
        return line
    blank = " " * indent
    return f"{begin}\n" + "".join(f"{blank}    {item},\n" for item in items) + blank + end


def _literal(value: Any) -> str:
    """A constant, with double quotes where that needs no escapes."""
    text = repr(value)
    if isinstance(value, (str, bytes)) and '"' not in text and "\\'" not in text:
        text = text.replace("'", '"')
    return text


def _list_source(names: Sequence[str]) -> str:
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"


def _import_lines(modules: dict[str, set[str]]) -> Iterable[str]:
    for module in sorted(modules):
        names = sorted(modules[module])
        line = f"from {module} import {', '.join(names)}\n"
        if len(line) > LINE_LENGTH_MAX:
            line = f"from {module} import (\n" + "".join(f"    {n},\n" for n in names) + ")\n"
        yield line


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")
