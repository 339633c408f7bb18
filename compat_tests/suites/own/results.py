"""What has become of the clients' own suites: read from JUnit's files, kept, and told.

`results.json` is written by the command alone, and holds for every suite and broker how many tests
ran, how many passed, and the names of those that failed.
"""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from compat_tests.suites.own.suites import SUITES, OwnSuite
from compat_tests.suites.report import BROKERS

KEPT: Final = Path(__file__).parent / "results.json"
BEGIN, END = "<!-- own suites: begin -->", "<!-- own suites: end -->"

HEAD: Final = """\
## The clients' own suites

Made by `python -m compat_tests.suites.own`: the tests that clients have for themselves, from clones
of their repositories, against this broker; against Apache Kafka only the files in which a test
failed. A test that fails has a reason, or the command ends with an error. Tests that a suite skips
by itself, for what it is not told of (users, certificates, other brokers), are counted apart.

| client | version | what of it | asyncbroker | Apache Kafka |
|---|---|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run of a suite."""

    passed: int
    skipped: int
    failed: list[str]

    @property
    def ran(self) -> int:
        """How many tests were not skipped."""
        return self.passed + len(self.failed)


def read(path: Path) -> Outcome:
    """An outcome from a file in JUnit's format."""
    passed, skipped, failed = 0, 0, set()
    # Our own programs wrote it.
    for case in ElementTree.parse(path).iter("testcase"):
        kinds = {child.tag for child in case}
        name = re.sub(r"\s+", " ", f"{case.get('classname', '')} {case.get('name', '')}").strip()
        if kinds & {"failure", "error"}:
            failed.add(name)
        elif "skipped" in kinds:
            skipped += 1
        else:
            passed += 1
    return Outcome(passed, skipped, sorted(failed))


def load() -> dict[str, dict[str, Outcome]]:
    """All outcomes, by client and broker."""
    if not KEPT.exists():
        return {}
    kept = json.loads(KEPT.read_text())
    return {
        client: {broker: Outcome(**outcome) for broker, outcome in outcomes.items()}
        for client, outcomes in kept.items()
    }


def keep(client: str, broker: str, outcome: Outcome) -> None:
    """Adds an outcome to those that are kept."""
    outcomes = load()
    outcomes.setdefault(client, {})[broker] = outcome
    plain = {
        client: {broker: asdict(each) for broker, each in sorted(of_client.items())}
        for client, of_client in sorted(outcomes.items())
    }
    KEPT.write_text(json.dumps(plain, indent=1) + "\n")


def section() -> str:
    """The part of the report about these suites, between two marks."""
    outcomes = load()
    rows = [_row(suite, outcomes.get(suite.client, {})) for suite in SUITES]
    reasons = [_reasons(suite, outcomes.get(suite.client, {})) for suite in SUITES]
    return f"{BEGIN}\n{HEAD}{''.join(rows)}\n{''.join(reasons)}{END}\n"


def _row(suite: OwnSuite, outcomes: dict[str, Outcome]) -> str:
    cells = [_cell(outcomes.get(broker)) for broker in BROKERS]
    return f"| {suite.client} | {suite.version} | {suite.part} | {' | '.join(cells)} |\n"


def _cell(outcome: Outcome | None) -> str:
    if outcome is None:
        return "not run"
    failed = f", {len(outcome.failed)} failed" if outcome.failed else ""
    skipped = f", {outcome.skipped} skipped" if outcome.skipped else ""
    return f"{outcome.passed} of {outcome.ran} pass{failed}{skipped}"


def _reasons(suite: OwnSuite, outcomes: dict[str, Outcome]) -> str:
    """A line for each reason, and for each test that has none."""
    counts = {
        broker: Counter(suite.reason(test) or f"**no reason**: {test}" for test in outcome.failed)
        for broker, outcome in outcomes.items()
    }
    reasons = sorted({reason for count in counts.values() for reason in count})
    if not reasons:
        return ""
    lines = [f"Of {suite.client}:\n\n"]
    for reason in reasons:
        tests = (
            f"{counts[broker][reason]} with {name}"
            for broker, name in BROKERS.items()
            if broker in counts and counts[broker][reason]
        )
        lines.append(f"- {reason}: {', '.join(tests)}\n")
    return "".join(lines) + "\n"
