"""What has become of the clients' own suites: read from JUnit's files, kept, and told.

`results.json` is written by the command alone, and holds for every suite and broker how many tests
passed, and the names of those that failed and of those that were skipped.
"""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from compat_tests.suites.own.suite import OwnSuite
from compat_tests.suites.own.suites import SUITES
from compat_tests.suites.report import BROKERS

KEPT: Final = Path(__file__).parent / "results.json"
WORDS_MAX: Final = 200
BEGIN, END = "<!-- own suites: begin -->", "<!-- own suites: end -->"

HEAD: Final = """\
## The clients' own suites

Made by `python -m compat_tests.suites.own CLIENT --repository CLONE --broker asyncbroker` (or
`kafka`), one client at a time: the tests that clients have for themselves, from a clone of their
repository with its tags, against this broker; Apache Kafka is asked only for the files in which a
test failed here. Both brokers are one node with a listener in plaintext, one in TLS and two for
users who log in. A test that fails has a reason, as has one that is skipped, by the suite itself or
by what stands in the place of its container, or that is not run, or the command ends with an error.

The versions are the newest tags of the clones that were at hand. The tables above are of the newest
packages, which may be newer. Since the last words of a failure are kept, in `results.json`, a
reason can name what must be in them.

| client | version | what of it | asyncbroker | Apache Kafka |
|---|---|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run of a suite: how many tests passed, which were skipped, each with what the suite says
    of it, and which failed, each with its last words; None if they were not kept in that run."""

    passed: int
    skipped: dict[str, str]
    failed: list[str]
    said: dict[str, str] | None = None

    def last_words(self, test: str) -> str:
        """Those of a test that failed; nothing if they were not kept."""
        return (self.said or {}).get(test, "")

    @property
    def ran(self) -> int:
        """How many tests were not skipped."""
        return self.passed + len(self.failed)


def read(path: Path) -> Outcome:
    """An outcome from a file in JUnit's format."""
    passed = 0
    failed: dict[str, str] = {}
    skipped: dict[str, str] = {}
    # Our own programs wrote it.
    for case in ElementTree.parse(path).iter("testcase"):
        kinds = {child.tag: child for child in case}
        name = _words(f"{case.get('classname', '')} {case.get('name', '')}")
        if kinds.keys() & {"failure", "error"}:
            failed[name] = _last_words(kinds.get("failure", kinds.get("error")))
        elif "skipped" in kinds:
            skipped[name] = _words(kinds["skipped"].get("message", ""))
        else:
            passed += 1
    return Outcome(
        passed, dict(sorted(skipped.items())), sorted(failed), dict(sorted(failed.items()))
    )


def _last_words(failure: ElementTree.Element | None) -> str:
    """The last line that is not of a stack, without what is another in each run."""
    if failure is None:
        return ""
    text = failure.get("message") or failure.text or ""
    lines = [line for line in map(_words, text.splitlines()) if line and line[:3] != "at "]
    last = re.sub(r"(/[\w.@+-]+){2,}", "PATH", lines[-1] if lines else "")
    return re.sub(r":\d{2,5}\b", "", last)[:WORDS_MAX]


def _words(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


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
    kept = [
        suite.client
        for suite in SUITES
        if any(each.said is not None for each in outcomes.get(suite.client, {}).values())
    ]
    words = f"The last words of failures are kept from {', '.join(kept)}.\n\n" if kept else ""
    return f"{BEGIN}\n{HEAD}{''.join(rows)}\n{words}{''.join(reasons)}{END}\n"


def _row(suite: OwnSuite, outcomes: dict[str, Outcome]) -> str:
    here, there = (outcomes.get(broker) for broker in BROKERS)
    nothing = here is not None and not here.failed and there is None
    cells = [_cell(here), "nothing to compare" if nothing else _cell(there)]
    return f"| {suite.client} | {suite.version} | {suite.part} | {' | '.join(cells)} |\n"


def _cell(outcome: Outcome | None) -> str:
    if outcome is None:
        return "not run"
    failed = f", {len(outcome.failed)} failed" if outcome.failed else ""
    skipped = f", {len(outcome.skipped)} skipped" if outcome.skipped else ""
    return f"{outcome.passed} of {outcome.ran} pass{failed}{skipped}"


def _reasons(suite: OwnSuite, outcomes: dict[str, Outcome]) -> str:
    """What failed, was skipped or was not run, by its reason."""
    here, there = (outcomes.get(broker) for broker in BROKERS)
    if here is None:
        return ""
    failed = _by_reason(here.failed, lambda test: suite.reason(test, here.last_words(test)))
    lines = [
        f"- {reason}: {_counted(chosen, 'fails', 'fail')}{words}: {_names(chosen)}"
        for reason, tests in failed.items()
        for words, chosen in _there(tests, there)
    ]
    only_there = [test for test in there.failed if test not in here.failed] if there else []
    lines += [
        f"- {reason}: {_counted(tests, 'fails', 'fail')} with Apache Kafka only: {_names(tests)}"
        for reason, tests in _by_reason(only_there, suite.reason_there).items()
    ]
    skipped = _by_reason(here.skipped, lambda test: suite.skipped_for(test, here.skipped[test]))
    lines += [
        f"- {reason}: {_counted(tests, 'is skipped', 'are skipped')}"
        for reason, tests in skipped.items()
    ]
    lines += [f"- {what} is not run: {why}" for what, why in suite.without]
    told = "\n".join(lines)
    return f"### {suite.client}\n\n{told}\n\n" if lines else ""


def _by_reason(tests: Iterable[str], reason: Callable[[str], str | None]) -> dict[str, list[str]]:
    """Tests by their reasons, and those that have none."""
    found: dict[str, list[str]] = {}
    for test in tests:
        found.setdefault(reason(test) or "**no reason**", []).append(test)
    return dict(sorted(found.items()))


def _counted(tests: list[str], one: str, many: str) -> str:
    return f"1 {one}" if len(tests) == 1 else f"{len(tests)} {many}"


def _there(tests: list[str], there: Outcome | None) -> Iterator[tuple[str, list[str]]]:
    """Tests that fail here, by what becomes of them with Apache Kafka."""
    if there is None:
        yield "", tests
        return
    failed = [test for test in tests if test in there.failed]
    skipped = [test for test in tests if test in there.skipped]
    passed = [test for test in tests if test not in failed and test not in skipped]
    for words, chosen in (
        (", not so with Apache Kafka", passed),
        (", with Apache Kafka too", failed),
        (", skipped with Apache Kafka", skipped),
    ):
        if chosen:
            yield words, chosen


def _names(tests: list[str]) -> str:
    return ", ".join(f"`{test}`" for test in sorted({_short(test) for test in tests}))


def _short(test: str) -> str:
    """A test's name without the folders of its file."""
    place, _, name = test.partition(" ")
    if "/" in place:
        return f"{place.removeprefix('src/').removesuffix('.spec.js')} {name}"
    return name or place
