"""The results of `scripts/bench spark` for people: a line for each case, and the table of the docs.

The table stands in the page between two marks, and only what is between them is written.
"""

from __future__ import annotations

import statistics
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from spark_cases import CONNECTOR, OURS, READERS, TUNED, Case

ONE_PARTITION_CASE: Final = "one partition, by cores"
FIRST_ROW_CASE: Final = "first row of a small topic"
ONE_PARTITION_WANTED: Final = 1.4
LINE_WIDTH: Final = 100

_BEGIN: Final = "<!-- Made by `scripts/bench spark --write-docs`. -->\n"
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

    def as_json(self) -> Any:
        return {
            name: {"rows": found.rows, "seconds": found.seconds, "cpu": found.cpu}
            for name, found in self.samples.items()
        }


def line(result: Result) -> str:
    """A case, when it is done."""
    parts = []
    for reader in READERS:
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


def table(
    results: list[Result], sessions: dict[str, dict[str, float]], rounds: int, records: int
) -> str:
    """The part of the page."""
    lines = [
        *_wrapped(
            f"Medians of {rounds} rounds with {records:,} records of 100 B, or a quarter of that "
            "of 1 KB, in four partitions without compression; one session of two cores, which the "
            "broker shares. In brackets the CPU of a row, in microseconds, of the JVM, of Python's "
            "workers and of the broker together. Of ours nothing is tuned; the tuned connector "
            "fetches 8 MB, polls 50,000 records, and writes batches of 512 KB."
        ),
        "",
        "| query | here, M rows/s | connector | tuned | times the connector | times the tuned |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for result in results:
        cells = [
            f"{found.rate:.2f} ({found.cpu_us():.2f})"
            for found in (result.samples[reader.name] for reader in READERS)
        ]
        times = [_times(result, other) for other in (CONNECTOR.name, TUNED.name)]
        lines.append("| " + " | ".join([result.case.name, *cells, *times]) + " |")
    cores, first = sessions[ONE_PARTITION_CASE], sessions[FIRST_ROW_CASE]
    lines += [
        "",
        *_wrapped(
            f"A topic of one partition, values only, everything pinned: {cores['1']:.2f} s with "
            f"one core, {cores['2']:.2f} s with two, {cores['1'] / cores['2']:.2f} times as fast "
            f"(goal {ONE_PARTITION_WANTED:g}). The first count of a small topic in a new session: "
            f"{first[OURS.name]:.1f} s here, {first[CONNECTOR.name]:.1f} s with the connector, "
            "whose jars were there already."
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
