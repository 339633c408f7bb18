"""Runs a client's own suite against this broker or against Apache Kafka, and tells of it in
docs/compatibility.md:

    python -m compat_tests.suites.own aiokafka --repository CLONE --broker asyncbroker
    python -m compat_tests.suites.own --report

CLONE is a clone of the client's repository with its tags.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from compat_tests.suites.__main__ import CACHE, REPORT
from compat_tests.suites.install import CannotInstall
from compat_tests.suites.own.brokers import START
from compat_tests.suites.own.results import BEGIN, END, Outcome, keep, load, read, section
from compat_tests.suites.own.suite import OwnSuite, take
from compat_tests.suites.own.suites import SUITES
from compat_tests.suites.report import BROKERS, OURS
from compat_tests.suites.run import end_session

SUITE_SECONDS_MAX = 1800


class NotRun(Exception):
    """A suite did not run to its end, and why."""


def run(suite: OwnSuite, repository: Path, broker: str) -> Outcome:
    """Runs a suite to its end; with Kafka only the files with a test that fails here."""
    # Names of tests are told from where they really are.
    folder = CACHE.resolve() / "own" / (suite.shared or suite.client)
    take(suite, repository, folder)
    results = folder.with_name(f"{suite.client} {broker}.xml")
    results.unlink(missing_ok=True)
    tests = suite.tests if broker == OURS else files_that_failed(suite, folder)
    with (
        tempfile.TemporaryDirectory() as data,
        START[broker](Path(data), suite.settings, suite.users) as servers,
    ):
        command, environment = suite.prepare(folder, servers, results, tests)
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        process = subprocess.Popen(
            command, cwd=folder, env={**inherited, **environment}, start_new_session=True
        )
        try:
            status = process.wait(SUITE_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            raise NotRun(f"{suite.client} was not done in {SUITE_SECONDS_MAX} s") from None
        finally:
            end_session(process)
    if not results.exists():
        raise NotRun(f"{suite.client} ended with status {status} and wrote no results")
    return read(results)


def files_that_failed(suite: OwnSuite, checkout: Path) -> tuple[str, ...]:
    """The files with a test that fails here. Without one the suite would run all of its own."""
    here = load().get(suite.client, {}).get(OURS)
    if here is None or not here.failed:
        raise NotRun(f"there is nothing to compare: no test of {suite.client} has failed here")
    return files_of(here.failed, checkout)


def files_of(tests: Iterable[str], checkout: Path) -> tuple[str, ...]:
    """The files that tests are in: named by their paths, or by Python's names of modules."""
    files = set()
    for test in tests:
        name = test.split(" ")[0]
        parts = name.split(".")
        modules = ("/".join(parts[:length]) + ".py" for length in range(len(parts), 0, -1))
        files.add(next((each for each in modules if (checkout / each).is_file()), name))
    return tuple(sorted(files))


def write_section() -> None:
    """Puts what is kept into the report."""
    text = REPORT.read_text()
    if BEGIN not in text:
        text = f"{text}\n{BEGIN}\n{END}\n"
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(f"{END}\n")[2]
    REPORT.write_text(f"{before}{section()}{after}")


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m compat_tests.suites.own")
    parser.add_argument("client", nargs="?", choices=[suite.client for suite in SUITES])
    parser.add_argument("--repository", type=Path, help="a clone of the client's repository")
    parser.add_argument("--broker", choices=list(BROKERS), default=OURS)
    parser.add_argument("--report", action="store_true", help="only write what is kept")
    arguments = parser.parse_args()
    if arguments.report:
        write_section()
        return 0
    if arguments.client is None or arguments.repository is None:
        parser.error("it takes a client and a clone of its repository")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    suite = next(each for each in SUITES if each.client == arguments.client)
    try:
        keep(suite.client, arguments.broker, run(suite, arguments.repository, arguments.broker))
    except CannotInstall as error:
        sys.exit(f"error: {suite.client} cannot be brought here: {error}")
    except NotRun as error:
        sys.exit(f"error: {error}")
    write_section()
    unexpected = without_reason(suite)
    for words in unexpected:
        print(words)
    return 1 if unexpected else 0


def without_reason(suite: OwnSuite) -> list[str]:
    """What is kept of a suite that failed or was skipped and has no known reason, in words."""
    outcomes = load().get(suite.client, {})
    here, there = (outcomes.get(broker, Outcome(0, {}, [])) for broker in BROKERS)
    failed = [
        f"failed: {test}"
        for test in here.failed
        if suite.reason(test, here.last_words(test)) is None
    ]
    failed += [
        f"failed with Apache Kafka: {test}"
        for test in there.failed
        if test not in here.failed and suite.reason_there(test) is None
    ]
    skipped = [
        f"skipped: {test}: {said}"
        for test, said in here.skipped.items()
        if suite.skipped_for(test, said) is None
    ]
    return [f"without a known reason {words}" for words in failed + skipped]


if __name__ == "__main__":
    sys.exit(main())
