"""`scripts/compatibility`: every client against this broker and against Apache Kafka."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from compat_tests.conftest import BrokerProcess
from compat_tests.kafka import Kafka
from compat_tests.suites.all import SUITES
from compat_tests.suites.install import ROOT
from compat_tests.suites.report import BROKERS, report
from compat_tests.suites.run import load, run_suite, save
from compat_tests.suites.suite import Suite

CACHE = ROOT / ".cache" / "compatibility"
REPORT = ROOT / "docs" / "compatibility.md"

SETTINGS = ("group.initial.rebalance.delay.ms=0", "offsets.retention.check.interval.ms=1000")


@contextlib.contextmanager
def ours(folder: Path) -> Iterator[str]:
    """This broker, on a data directory."""
    broker = BrokerProcess(folder / "asyncbroker", SETTINGS)
    broker.start()
    try:
        yield broker.bootstrap_servers
    finally:
        broker.stop()


@contextlib.contextmanager
def kafka(folder: Path) -> Iterator[str]:
    """Apache Kafka, one node."""
    broker = Kafka(folder / "kafka", settings=SETTINGS)
    broker.start()
    try:
        yield broker.servers
    finally:
        broker.end(signal.SIGTERM)


START = dict(zip(BROKERS, (ours, kafka), strict=True))


def result_path(suite: Suite, version: str, broker: str) -> Path:
    return CACHE / "results" / f"{suite.name} {version} {broker}.json"


def run(suites: list[Suite], brokers: list[str]) -> int:
    """Runs suites against brokers, and counts what is not as expected of ours."""
    surprises = 0
    for name in brokers:
        with tempfile.TemporaryDirectory() as folder, START[name](Path(folder)) as servers:
            for suite in suites:
                for version in suite.versions:
                    print(f"{suite.name} {version}, {name}", file=sys.stderr)
                    command = suite.prepare(version, CACHE / f"{suite.name}-{version}")
                    results = run_suite(suite, version, command, servers)
                    save(results, result_path(suite, version, name))
                    if name == BROKERS[0]:
                        surprises += sum(
                            not suite.is_expected(feature, result)
                            for feature, result in results.items()
                        )
    return surprises


def write_report() -> None:
    """Writes the report, if there is a result of everything."""
    results = {}
    for suite in SUITES:
        for version in suite.versions:
            for broker in BROKERS:
                path = result_path(suite, version, broker)
                if not path.exists():
                    print(f"no report: {suite.name} {version} has not met {broker}")
                    return
                results[suite.name, version, broker] = load(path)
    REPORT.write_text(report(SUITES, results, os.environ["KAFKA_VERSION"]))
    print(f"written: {REPORT.relative_to(ROOT)}")


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    names = [suite.name for suite in SUITES]
    parser.add_argument("--client", action="append", choices=names, help="only this one")
    parser.add_argument("--broker", action="append", choices=BROKERS, help="only this one")
    parser.add_argument("--report", action="store_true", help="only write what results there are")
    arguments = parser.parse_args()
    surprises = 0
    if not arguments.report:
        chosen = [suite for suite in SUITES if suite.name in (arguments.client or names)]
        surprises = run(chosen, arguments.broker or list(BROKERS))
    write_report()
    print(f"{surprises} results of asyncbroker are not as expected")
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main())
