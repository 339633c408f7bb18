"""The parts of the command line that need no broker."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from base64 import b64encode
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from asyncbroker import __version__
from asyncbroker.__main__ import COMMANDS, cli
from asyncbroker.client.cluster import TopicPartition
from asyncbroker.commands.common import assignments
from asyncbroker.commands.consume import formatted
from asyncbroker.commands.positions import parse_timestamp
from asyncbroker.commands.produce import lines_of
from asyncbroker.commands.record_json import record_from_json, record_to_json
from asyncbroker.commands.tables import print_table
from asyncbroker.protocol.records import Record

PARTITION = TopicPartition("flights", 3)


def test_the_version_is_printed() -> None:
    result = CliRunner().invoke(cli, ["--version"], prog_name="asyncbroker")
    assert (result.exit_code, result.output) == (0, f"asyncbroker {__version__}\n")


def test_every_command_is_in_the_help() -> None:
    result = CliRunner().invoke(cli, ["--help"])
    assert result.exit_code == 0
    assert all(name in result.output for name in COMMANDS)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_explains_itself(name: str) -> None:
    result = CliRunner().invoke(cli, [name, "--help"])
    assert result.exit_code == 0, result.output
    assert "Usage:" in result.output


def test_an_unknown_command_is_a_usage_error() -> None:
    result = CliRunner().invoke(cli, ["tropics"])
    assert result.exit_code == 2
    assert "No such command" in result.output


def test_the_root_imports_neither_client_nor_broker() -> None:
    script = (
        "import sys, asyncbroker.__main__\n"
        "print([m for m in sys.modules if m.startswith('asyncbroker.')])\n"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, cwd=root
    )
    assert done.stdout == "['asyncbroker.__main__']\n"


def test_a_broker_imports_nothing_of_what_it_may_never_need() -> None:
    script = "import sys, asyncbroker.runner; print(*sys.modules)"
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, cwd=root
    )
    imported = set(done.stdout.split())
    parts = (
        "groups",
        "log.cleaner",
        "log.segment",
        "login",
        "metrics_server",
        "protocol.scram",
        "sasl",
        "tls",
    )
    unneeded = {"prometheus_client", "sqlite3", *(f"asyncbroker.{part}" for part in parts)}
    assert not imported & unneeded
    assert "asyncbroker.broker" in imported


def test_an_address_that_cannot_be_read_is_no_traceback() -> None:
    result = CliRunner().invoke(cli, ["topics", "list", "-b", "host:port"])
    assert result.exit_code == 1
    assert result.output == "Error: 'host:port' is not an address like host:port\n"


@pytest.mark.parametrize(
    ("text", "timestamp"),
    [
        ("1356998400000", 1356998400000),
        ("2013-01-01T00:00:00Z", 1356998400000),
        ("2013-01-01T01:00+01:00", 1356998400000),
        ("2013-01-01T00:00:00.250+00:00", 1356998400250),
    ],
)
def test_times_are_read(text: str, timestamp: int) -> None:
    assert parse_timestamp(text) == timestamp


@pytest.mark.parametrize("text", ["", "tomorrow", "-5", "2013-13-01", "Z"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is neither milliseconds"):
        parse_timestamp(text)


def test_assignments_are_read_and_their_lack_is_told() -> None:
    assert assignments(("a=1", "b=x=y", "c="), "-c") == {"a": "1", "b": "x=y", "c": ""}
    for text in ("a", "=1"):
        with pytest.raises(click.BadParameter, match="is not name=value"):
            assignments((text,), "-c")


nullable_bytes = st.none() | st.binary(max_size=20)


@given(
    value=nullable_bytes,
    key=nullable_bytes,
    headers=st.lists(st.tuples(st.text(max_size=5), nullable_bytes), max_size=3),
)
def test_a_record_survives_json(
    value: bytes | None, key: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    line = record_to_json(PARTITION, Record(7, 1000, key, value, headers))
    read = record_from_json(line.encode())
    assert (read.key, read.value, read.headers) == (key, value, headers)
    assert (read.timestamp_ms, read.partition) == (1000, 3)


def test_json_of_a_record_is_as_documented() -> None:
    record = Record(12, 1356998400000, b"N14228", b"\xff", [("source", b"csv")])
    assert json.loads(record_to_json(PARTITION, record)) == {
        "topic": "flights",
        "partition": 3,
        "offset": 12,
        "timestamp": 1356998400000,
        "key": "N14228",
        "value": {"base64": b64encode(b"\xff").decode()},
        "headers": [["source", "csv"]],
    }


def test_a_line_of_json_needs_only_a_value() -> None:
    assert record_from_json(b'{"value": null}').value is None
    assert record_from_json(b'{"value": "v", "headers": {"a": "b"}}').headers == [("a", b"b")]


@pytest.mark.parametrize(
    "line",
    [
        "nothing",
        "[1]",
        "{}",
        '{"value": 5}',
        '{"value": {"base64": "not!"}}',
        '{"value": "", "headers": ["a"]}',
        '{"value": "", "headers": 5}',
        '{"value": "", "partition": "0"}',
        '{"value": "", "timestamp": true}',
        '{"value": "", "key": ["k"]}',
    ],
)
def test_a_line_that_is_no_record_is_a_value_error(line: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        record_from_json(line.encode())


@pytest.mark.parametrize(
    ("layout", "line"),
    [
        ("value", b"late\n"),
        ("key-value", b"UA\tlate\n"),
        ("full", b"3\t12\t2013-01-01T00:00:00.000+00:00\tsource=csv,empty=null\tUA\tlate\n"),
    ],
)
def test_records_are_printed_as_asked(layout: str, line: bytes) -> None:
    headers = [("source", b"csv"), ("empty", None)]
    record = Record(12, 1356998400000, b"UA", b"late", headers)
    assert formatted(layout, PARTITION, record) == line


class Flushes:
    """Stands for a producer, and counts how often it was told to send."""

    count = 0

    def flush(self) -> None:
        self.count += 1


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"one", [b"one"]),
        (b"one\n", [b"one"]),
        (b"one\r\n\ntwo", [b"one", b"", b"two"]),
        (b"\n", [b""]),
        (b"x" * 600_000 + b"\nend", [b"x" * 600_000, b"end"]),
    ],
)
def test_input_is_cut_into_lines(data: bytes, lines: list[bytes]) -> None:
    assert list(lines_of(io.BytesIO(data), Flushes())) == lines


def test_what_has_been_read_is_sent_while_input_is_waited_for() -> None:
    reading, writing = os.pipe()
    flushes = Flushes()
    with os.fdopen(reading, "rb") as stream:
        os.write(writing, b"first\n")
        lines = lines_of(stream, flushes)
        assert next(lines) == b"first"
        assert flushes.count == 0
        # Nothing more is there: the next look at the input flushes before it waits.

        def write_the_rest() -> None:
            with os.fdopen(writing, "wb") as rest:
                rest.write(b"second\n")

        threading.Timer(0.01, write_the_rest).start()
        assert list(lines) == [b"second"]
        assert flushes.count >= 1


def test_a_table_in_a_pipe_is_plain_columns(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("flights", 12, True, None), ("a b", 3, False, "")]
    print_table(("topic", "end offset", "internal", "owner"), rows)
    assert capsys.readouterr().out.splitlines() == [
        "TOPIC    END-OFFSET  INTERNAL  OWNER",
        "flights          12  yes       -",
        "a b               3  no        -",
    ]


def test_a_table_without_rows_has_a_head(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("topic", "partitions"), [])
    assert capsys.readouterr().out == "TOPIC  PARTITIONS\n"
