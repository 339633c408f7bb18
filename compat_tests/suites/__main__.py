"""`scripts/compatibility`: every client against this broker and against Apache Kafka."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from compat_tests.conftest import BrokerProcess, running
from compat_tests.consumer_groups import SETTINGS as QUICK_GROUPS
from compat_tests.kafka import Kafka
from compat_tests.protected import Protected, protected_broker, protected_kafka
from compat_tests.suites.all import SUITES
from compat_tests.suites.features import LOGINS
from compat_tests.suites.install import ROOT, CannotInstall, kafka_classpath, kafka_version
from compat_tests.suites.own.results import section
from compat_tests.suites.report import BROKERS, OURS, Results, report
from compat_tests.suites.run import load, run_suite, save
from compat_tests.suites.suite import Result, Suite

CACHE = ROOT / ".cache" / "compatibility"
# What has run, so that a part of the report can be made anew.
RESULTS = Path(__file__).parent / "results.json"
REPORT = ROOT / "docs" / "compatibility.md"

# Members of the groups of both protocols need not wait long, and offsets expire soon.
SETTINGS = (*QUICK_GROUPS, "offsets.retention.check.interval.ms=1000")


@contextlib.contextmanager
def ours(folder: Path, settings: tuple[str, ...] = SETTINGS) -> Iterator[str]:
    """This broker, on a data directory."""
    with running(BrokerProcess(folder / "asyncbroker", settings)) as broker:
        yield broker.bootstrap_servers


@contextlib.contextmanager
def kafka(folder: Path, settings: tuple[str, ...] = SETTINGS) -> Iterator[str]:
    """Apache Kafka, one node."""
    # Where its process looks for the jars.
    os.environ["ASYNCBROKER_KAFKA_CLASSPATH"] = str(kafka_classpath(kafka_version()))
    broker = Kafka(folder / "kafka", settings=settings)
    broker.start()
    try:
        yield broker.servers
    finally:
        broker.end(signal.SIGTERM)


@contextlib.contextmanager
def kafka_with_logins(folder: Path) -> Iterator[Protected]:
    os.environ["ASYNCBROKER_KAFKA_CLASSPATH"] = str(kafka_classpath(kafka_version()))
    with protected_kafka(folder) as protected:
        yield protected


START = dict(zip(BROKERS, (ours, kafka), strict=True))
START_PROTECTED: dict[str, Callable[[Path], AbstractContextManager[Protected]]] = dict(
    zip(BROKERS, (protected_broker, kafka_with_logins), strict=True)
)


@contextlib.contextmanager
def logins_of(broker: str, suites: list[Suite], folder: Path) -> Iterator[Mapping[str, str]]:
    """What programs are told of a broker where users log in, if one of them asks for it."""
    if not any(feature in LOGINS for suite in suites for feature in suite.features):
        yield {}
        return
    folder.mkdir()
    with START_PROTECTED[broker](folder) as protected:
        yield protected.environment()


def run(suites: list[Suite], brokers: list[str]) -> list[str]:
    """Runs suites against brokers; what became of them that should not, in words."""
    troubles: list[str] = []
    commands: dict[tuple[str, str], list[str]] = {}
    for suite in suites:
        for version in suite.versions:
            print(f"{suite.name} {version}: bringing it here", file=sys.stderr)
            try:
                folder = CACHE / f"{suite.name}-{version}"
                commands[suite.name, version] = suite.prepare(version, folder)
            except CannotInstall as error:
                troubles.append(f"{suite.name} {version} was not tried: {error}")
    for broker in brokers:
        for settings in dict.fromkeys(suite.settings for suite in suites):
            alike = [suite for suite in suites if suite.settings == settings]
            troubles += run_with(settings, alike, commands, broker)
    return troubles


def run_with(
    settings: tuple[str, ...],
    suites: list[Suite],
    commands: Mapping[tuple[str, str], list[str]],
    broker: str,
) -> list[str]:
    """Runs suites against one broker that has some settings besides."""
    troubles: list[str] = []
    with contextlib.ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        servers = opened.enter_context(START[broker](folder, (*SETTINGS, *settings)))
        logins = opened.enter_context(logins_of(broker, suites, folder / "logins"))
        for suite in suites:
            for version in suite.versions:
                if command := commands.get((suite.name, version)):
                    print(f"{suite.name} {version}, {BROKERS[broker]}", file=sys.stderr)
                    results = run_suite(suite, command, servers, logins)
                    save(results, RESULTS, suite.name, version, broker)
                    troubles += unexpected(suite, version, broker, results)
    return troubles


def unexpected(suite: Suite, version: str, broker: str, results: Mapping[str, Result]) -> list[str]:
    """What this broker should have done otherwise."""
    return [
        f"{suite.name} {version}, {feature}: {result.outcome} {result.note}"
        for feature, result in results.items()
        if broker == OURS and not suite.is_expected(version, feature, result)
    ]


def write_report() -> bool:
    """Writes the report, if there is a result of everything."""
    results: Results = {
        (suite.name, version, broker): load(RESULTS, suite.name, version, broker)
        for suite in SUITES
        for version in suite.versions
        for broker in BROKERS
    }
    features = {suite.name: suite.features.keys() for suite in SUITES}
    missing = [
        f"{name} {version} has not met {BROKERS[broker]}"
        for (name, version, broker), found in results.items()
        if found.keys() != features[name]
    ]
    if missing:
        print(f"{REPORT.name} is as it was: {', '.join(missing)}")
        return False
    REPORT.write_text(report(SUITES, results, kafka_version(), section()))
    print(f"written: {REPORT.relative_to(ROOT)}")
    return True


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="scripts/compatibility",
        description="Runs every client against this broker and against Apache Kafka, and writes "
        "docs/compatibility.md from what became of it.",
    )
    names = [suite.name for suite in SUITES]
    again = "only this one; may be given again"
    parser.add_argument("--client", action="append", choices=names, help=again)
    parser.add_argument("--broker", action="append", choices=list(BROKERS), help=again)
    parser.add_argument("--report", action="store_true", help="only write what results there are")
    arguments = parser.parse_args()
    if arguments.report:
        return 0 if write_report() else 1
    # So that what has been started is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    chosen = [suite for suite in SUITES if suite.name in (arguments.client or names)]
    try:
        troubles = run(chosen, arguments.broker or list(BROKERS))
    except CannotInstall as error:
        sys.exit(f"error: there is no Apache Kafka to compare with: {error}")
    write_report()
    for trouble in troubles:
        print(f"not as expected: {trouble}")
    print(f"{len(troubles)} not as expected" if troubles else "all as expected")
    return 1 if troubles else 0


if __name__ == "__main__":
    sys.exit(main())
