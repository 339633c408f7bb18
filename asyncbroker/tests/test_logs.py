"""Log lines: for people, for machines, and not too many of a kind."""

from __future__ import annotations

import io
import json
import logging
import os
import select
from collections.abc import Iterator

import pytest

from asyncbroker import logs


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def configured(log_format: str) -> tuple[logging.Logger, io.StringIO]:
    stream = io.StringIO()
    logs.configure(log_format, "info", stream)
    return logging.getLogger("asyncbroker.connection"), stream


def test_text_is_one_line_with_time_level_and_place() -> None:
    logger, stream = configured(logs.TEXT)
    logger.warning("closed %s: %s", "127.0.0.1:4242", "a frame of -5 bytes")
    logger.debug("not this one")
    (line,) = stream.getvalue().splitlines()
    assert line.endswith(" WARNING connection: closed 127.0.0.1:4242: a frame of -5 bytes")


def test_json_is_one_object_a_line_with_fields_and_traceback() -> None:
    logger, stream = configured(logs.JSON)
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        fields = {"peer": "127.0.0.1:4242", "client_id": "é"}
        logger.error("failed: %s", error, exc_info=True, extra={"fields": fields})
    (line,) = stream.getvalue().splitlines()
    parsed = json.loads(line)
    assert parsed["level"] == "ERROR"
    assert parsed["logger"] == "asyncbroker.connection"
    assert parsed["message"] == "failed: two\nlines"
    assert parsed["client_id"] == "é"
    assert "ValueError: two" in parsed["traceback"]
    assert parsed["time"].endswith("Z")


def test_a_flood_of_one_kind_is_held_back_and_counted() -> None:
    logger, stream = configured(logs.TEXT)
    (handler,) = logging.getLogger().handlers
    start = 1_000_000.0

    def say(template: str, argument: int, at: float) -> None:
        record = logger.makeRecord(logger.name, logging.WARNING, "", 0, template, (argument,), None)
        record.created = at
        handler.handle(record)

    for number in range(1000):
        say("closed %d", number, start)
        say(f"another kind {number % 5}: %d", number, start)
    lines = stream.getvalue().splitlines()
    assert len(lines) == logs.LINES_PER_PERIOD_MAX * 6
    say("closed %d", 1000, start + logs.PERIOD_SECONDS)
    lines = stream.getvalue().splitlines()[len(lines) :]
    assert lines[0].endswith(" 980 more lines like this one were held back: closed %d")
    assert lines[-1].endswith("closed 1000")


def test_one_subject_does_not_hide_the_others_and_subjects_are_bounded() -> None:
    logger, stream = configured(logs.TEXT)
    for _ in range(100):
        logger.info("group %s", "loud", extra={"subject": "loud"})
    logger.info("group %s", "quiet", extra={"subject": "quiet"})
    assert stream.getvalue().splitlines()[-1].endswith("group quiet")
    for number in range(10_000):
        logger.info("group %s", number, extra={"subject": str(number)})
    lines = stream.getvalue().splitlines()
    assert len(lines) <= (logs.KINDS_PER_PERIOD_MAX + 1) * logs.LINES_PER_PERIOD_MAX


def test_what_was_held_back_is_told_at_the_end() -> None:
    logger, stream = configured(logs.TEXT)
    for number in range(logs.LINES_PER_PERIOD_MAX + 3):
        logger.warning("closed %d", number)
    (handler,) = logging.getLogger().handlers
    handler.close()
    assert "3 more lines like this one" in stream.getvalue()


@pytest.mark.skipif(not hasattr(select, "poll"), reason="pipes of POSIX")
def test_a_pipe_that_nobody_reads_does_not_stop_the_broker() -> None:
    reader, writer = os.pipe()
    with open(reader, "rb") as unread, open(writer, "w") as stream:
        logs.configure(logs.TEXT, "info", stream)
        for number in range(3000):
            logger = logging.getLogger(f"asyncbroker.number{number}")
            logger.warning("closed %s", "x" * 100)
        os.set_blocking(reader, False)
        assert len(unread.read()) > 4096
        logger.warning("closed %s", "at last")
        assert unread.read().endswith(b" closed at last\n")
