"""The results of `scripts/bench spark`: a file that keeps them, a line for each case, and the table
of the docs.

The table is made of the file, with the cases and sessions that are in it, so that a run that was
ended early can be told as well. It stands in the page between two marks, and only what is between
them is written.
"""

from __future__ import annotations

import json
import statistics
import textwrap
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from spark_cases import CASES, CEILING, CONNECTOR, OURS, READERS, TUNED, Case

ONE_PARTITION_CASE: Final = "one partition, by cores"
FIRST_ROW_CASE: Final = "first row of a small topic"
ONE_PARTITION_WANTED: Final = 1.4
# What is kept of the first row beside the whole time, under the reader's name.
SESSION_OF: Final = {reader.name: f"{reader.name}, until its session" for reader in READERS}
LINE_WIDTH: Final = 100
COLUMNS: Final = (OURS.name, CEILING.name, CONNECTOR.name, TUNED.name)

_BEGIN: Final = "<!-- Made by `scripts/bench spark --write-docs` of what a run has kept. -->\n"
_END: Final = "<!-- The end of what the command makes. -->\n"


@dataclass
class Samples:
    """What one reader needed for one case, a round each."""

    rows: int = 0
    seconds: list[float] = field(default_factory=list)
    cpu: list[dict[str, float]] = field(default_factory=list)

    def add(self, rows: int, seconds: float, cpu: dict[str, float]) -> None:
        self.rows = rows
        self.seconds.append(seconds)
        self.cpu.append(cpu)

    @property
    def rate(self) -> float:
        """In M rows/s."""
        return self.rows / 1e6 / statistics.median(self.seconds)

    def cpu_us(self, *kinds: str) -> float:
        """CPU a row, of processes of these kinds, or all."""
        return (
            statistics.median(
                sum(seconds for kind, seconds in one.items() if not kinds or kind in kinds)
                for one in self.cpu
            )
            / self.rows
            * 1e6
        )


@dataclass
class Result:
    """A case as each reader ran it."""

    case: Case
    samples: dict[str, Samples]

    def times(self, other: str) -> float:
        """How many times as fast as another reader ours is."""
        return self.samples[OURS.name].rate / self.samples[other].rate


@dataclass
class Run:
    """What a run was asked for, and what it has found so far: cases, and the seconds of sessions of
    their own by name."""

    rounds: int
    records: int
    results: list[Result] = field(default_factory=list)
    sessions: dict[str, dict[str, float]] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Writes all of it."""
        path.parent.mkdir(exist_ok=True)
        cases = {
            result.case.name: {name: asdict(found) for name, found in result.samples.items()}
            for result in self.results
        }
        told = {"rounds": self.rounds, "records": self.records, "cases": cases}
        path.write_text(json.dumps({**told, "sessions": self.sessions}, indent=1))


def load(path: Path) -> Run:
    """What `save` has written."""
    told: dict[str, Any] = json.loads(path.read_text())
    results = [
        Result(case, {name: Samples(**found) for name, found in told["cases"][case.name].items()})
        for case in CASES
        if case.name in told["cases"]
    ]
    return Run(told["rounds"], told["records"], results, told["sessions"])


def line(result: Result) -> str:
    """A case, when it is done."""
    parts = []
    for reader in (*READERS, CEILING):
        if reader.name not in result.samples:
            continue
        found = result.samples[reader.name]
        kinds = "+".join(f"{found.cpu_us(kind):.2f}" for kind in ("jvm", "python", "broker"))
        parts.append(f"{reader.name} {found.rate:.2f} M/s ({kinds} us)")
    return (
        f"{result.case.name:24} {', '.join(parts)}: {_times(result, CONNECTOR.name)}, tuned "
        f"{_times(result, TUNED.name)}"
    )


def _times(result: Result, other: str) -> str:
    wanted = result.case.wanted if other == CONNECTOR.name else result.case.wanted_of_tuned
    text = f"{result.times(other):.1f}"
    return text if wanted is None else f"{text} (goal {wanted:g})"


def table(run: Run) -> str:
    """The part of the page."""
    lines = [
        *_wrapped(
            f"Medians of {run.rounds} rounds with {run.records:,} records of 100 B, or a quarter "
            "of that of 1 KB, in four partitions without compression; one session of two cores, "
            "which the broker shares. In brackets the CPU of a row, in microseconds, of the JVM, "
            "of Python's workers and of the broker together. Of ours nothing is tuned; the tuned "
            "connector fetches 8 MB, polls 50,000 records, and writes batches of 512 KB. The "
            "ceiling is a source in Python that reads nothing and sends the same columns from "
            "memory: what Spark takes of any such source."
        ),
        "",
        "| query | here, M rows/s | ceiling | connector | tuned | times the connector | times the "
        "tuned |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for result in run.results:
        cells = [
            f"{found.rate:.2f} ({found.cpu_us():.2f})" if found else ""
            for found in map(result.samples.get, COLUMNS)
        ]
        times = [_times(result, other) for other in (CONNECTOR.name, TUNED.name)]
        lines.append("| " + " | ".join([result.case.name, *cells, *times]) + " |")
    if cores := run.sessions.get(ONE_PARTITION_CASE):
        lines += [
            "",
            *_wrapped(
                f"A topic of one partition, values only, everything pinned: {cores['1']:.2f} s "
                f"with one core, {cores['2']:.2f} s with two, {cores['1'] / cores['2']:.2f} times "
                f"as fast (goal {ONE_PARTITION_WANTED:g})."
            ),
        ]
    if first := run.sessions.get(FIRST_ROW_CASE):
        lines += [
            "",
            *_wrapped(
                "From nothing to the count of a small topic, in a new process: "
                f"{first[OURS.name]:.1f} s here, {first[CONNECTOR.name]:.1f} s with the connector, "
                "whose jars were there already. Until there is a session, "
                f"{first[SESSION_OF[OURS.name]]:.1f} s of that pass here, and "
                f"{first[SESSION_OF[CONNECTOR.name]]:.1f} s there."
            ),
        ]
    return "\n".join(lines)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, LINE_WIDTH)


def put_into(page: Path, text: str) -> None:
    """Writes the text between the marks of a page."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise RuntimeError(f"{page} has no place for the table")
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")
