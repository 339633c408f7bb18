"""Makes `docs/compatibility.md` from the results of all suites. Never edited by hand."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from compat_tests.suites.suite import Result, Suite

Results = Mapping[tuple[str, str, str], Mapping[str, Result]]
"""By suite, version and broker."""

OURS: Final = "asyncbroker"
# Their names for the command line, and in words.
BROKERS: Final = {OURS: OURS, "kafka": "Apache Kafka"}

MARKS = {"passed": "✓", "refused": "refused", "failed": "**failed**", "absent": "–"}

HEAD = """\
# Compatibility

Made by `scripts/compatibility`, never by hand: it runs every client below against asyncbroker and
against Apache Kafka {kafka} on the same machine. Clients come from the package registries of their
languages, in the versions that are named. On a busy machine clients have troubles of their own, so
what fails is tried again, up to twice; the last try counts.

✓: it works. *refused*: the broker says that it does not have it, and the client stops with a clear
error. **failed**: it does not work. –: the client has no such thing, or its test finds nothing to
try. Numbers lead to reasons below each table.

Where a row says "members come and leave": one member has all four partitions; a second joins, and
each has two; all records are read, each once; the second leaves, and the first has them all. Where
it says "members come and go": up to four, at random, while records are sent; at no moment has a
partition two owners, nor is it without one for long.
"""


def report(suites: tuple[Suite, ...], results: Results, kafka: str, own: str) -> str:
    """The whole document; `own` tells of the clients' own suites."""
    parts = [HEAD.format(kafka=kafka), summary(suites, results)]
    parts += [table(suite, results) for suite in suites]
    return "\n".join([*parts, own])


def summary(suites: tuple[Suite, ...], results: Results) -> str:
    lines = ["| client | version | asyncbroker | Apache Kafka |", "|---|---|---|---|"]
    for suite in suites:
        for version in suite.versions:
            counts = [tally(results[suite.name, version, broker]) for broker in BROKERS]
            lines.append(f"| [{suite.name}](#{suite.name}) | {version} | {' | '.join(counts)} |")
    return "\n".join(lines) + "\n"


def tally(results: Mapping[str, Result]) -> str:
    counts = dict.fromkeys(MARKS, 0)
    for result in results.values():
        counts[result.outcome] += 1
    tried = sum(counts.values()) - counts["absent"]
    words = [f"{counts['passed']} of {tried} work"]
    words += [f"{counts[name]} {name}" for name in ("refused", "failed") if counts[name]]
    return ", ".join(words)


def table(suite: Suite, results: Results) -> str:
    """One client: features down, versions and brokers across, reasons below."""
    columns = [(version, broker) for version in suite.versions for broker in BROKERS]
    head = " | ".join(f"{version}, {BROKERS[broker]}" for version, broker in columns)
    lines = [
        f"## {suite.name}\n",
        f"Where its checks come from: {suite.origin}.\n",
        f"| feature | {head} |",
        "|---|" + "---|" * len(columns),
    ]
    notes: dict[str, int] = {}
    for feature, title in suite.features.items():
        cells = []
        for version, broker in columns:
            result = results[suite.name, version, broker][feature]
            cells.append(cell(suite.known(version, feature), result, broker, notes))
        lines.append(f"| {title} | {' | '.join(cells)} |")
    lines += ["", *(f"{number}. {note}" for note, number in notes.items())]
    if suite.without:
        lines += ["", "Left out:", ""]
        lines += [f"- {what}: {why}" for what, why in suite.without.items()]
    return "\n".join(lines).rstrip() + "\n"


def cell(known: Result, result: Result, broker: str, notes: dict[str, int]) -> str:
    mark = MARKS[result.outcome]
    reason = result.note
    # What is not there to try is so with any broker.
    is_known = known.outcome == result.outcome and (broker == OURS or known.outcome == "absent")
    if is_known and known.note != result.note:
        reason = f"{known.note}. The client: {result.note}" if result.note else known.note
    if not reason:
        return mark
    number = notes.setdefault(lasting(reason), len(notes) + 1)
    return f"{mark} ({number})"


def lasting(reason: str) -> str:
    """A reason without what is another in each run: addresses, and names that were made up."""
    reason = re.sub(r"127\.0\.0\.1:\d+", "the broker", reason)
    return re.sub(r"-[0-9a-f]{8}[0-9a-f-]{4,28}", "", reason).replace("|", "\\|")
