"""Logging to standard error: a line an event for people, or a JSON object a line for machines.

The broker logs through the standard library's loggers. A peer's mistake is one WARNING line that
says who and why; a traceback means a bug of ours. Facts that a machine may want apart from the text
go in `extra={"fields": {...}}`. Lines of the same kind are let through at a limited rate, so that a
flood from outside does not become a flood of lines: what was held back is counted and said once the
flood is over or goes on into the next period. A pipe that nobody reads costs lines as well, and
does not stop the broker. A kind is a logger, a template and, if given with
`extra={"subject": ...}`, what the line is about, so that one group, or one reason to close, does
not hide the others.
"""

from __future__ import annotations

import json
import logging
import select
import sys
import time
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    StreamHandler = logging.StreamHandler[TextIO]
else:
    # It cannot be indexed before Python 3.11.
    StreamHandler = logging.StreamHandler

LINES_PER_PERIOD_MAX: Final = 20
# Subjects come from outside as well; beyond so many kinds in a period they no longer count.
KINDS_PER_PERIOD_MAX: Final = 100
PERIOD_SECONDS: Final = 10.0

TEXT: Final = "text"
JSON: Final = "json"


def configure(log_format: str = TEXT, level: str = "INFO", stream: TextIO | None = None) -> None:
    """Sends every logger's lines to `stream` (standard error), and nothing anywhere else."""
    handler = FloodLimitingHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == JSON else TextFormatter())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    # asyncio reports what it swallows at ERROR; its lower levels talk about itself.
    logging.getLogger("asyncio").setLevel(logging.ERROR)


class TextFormatter(logging.Formatter):
    """`2026-11-28 09:30:00.123 WARNING connection: closed 127.0.0.1:4242 ...`"""

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03d %(levelname)s %(area)s: %(message)s")
        self.datefmt = "%Y-%m-%d %H:%M:%S"

    def format(self, record: logging.LogRecord) -> str:
        """One line; an ERROR of ours may carry a traceback below it."""
        record.area = record.name.removeprefix("asyncbroker.")
        return super().format(record)


class JsonFormatter(logging.Formatter):
    """One JSON object: time, level, logger, message, the record's own fields, and the traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever the message contains."""
        whole_seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, object] = {
            "time": f"{whole_seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update(getattr(record, "fields", {}))
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class FloodLimitingHandler(StreamHandler):
    """Writes lines to a stream, of each kind at most `LINES_PER_PERIOD_MAX` a period."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._period_ends = 0.0
        self._counts: dict[tuple[str, str, str], int] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Writes the line, unless too many of its kind came in this period."""
        # The record's own time, so that a test can move it.
        if record.created >= self._period_ends:
            self._begin_period(record.created)
        kind = (record.name, str(record.msg), str(getattr(record, "subject", "")))
        if kind not in self._counts and len(self._counts) >= KINDS_PER_PERIOD_MAX:
            kind = (record.name, str(record.msg), "")
        count = self._counts.get(kind, 0) + 1
        self._counts[kind] = count
        if count <= LINES_PER_PERIOD_MAX and self._has_room():
            super().emit(record)

    def close(self) -> None:
        """Says what was still held back."""
        self._report_held_back(time.time())
        super().close()

    def _has_room(self) -> bool:
        """Whether a line can be written now; a pipe that has room has it for any usual line."""
        try:
            poll = select.poll()
            poll.register(self.stream.fileno(), select.POLLOUT)
            return bool(poll.poll(0))
        except (AttributeError, OSError, ValueError):
            # Nothing to ask, as on Windows, or no file at all.
            return True

    def _begin_period(self, now: float) -> None:
        self._report_held_back(now)
        self._period_ends = now + PERIOD_SECONDS

    def _report_held_back(self, now: float) -> None:
        for (name, template, subject), count in self._counts.items():
            held_back = count - LINES_PER_PERIOD_MAX
            if held_back <= 0:
                continue
            text = f"{held_back} more lines like this one were held back: {template}"
            if subject:
                text += f" ({subject})"
            summary = logging.LogRecord(name, logging.WARNING, "", 0, "%s", (text,), None)
            summary.created = now
            if self._has_room():
                super().emit(summary)
        self._counts.clear()
