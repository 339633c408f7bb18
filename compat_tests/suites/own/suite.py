"""What a client's own suite is, and what more than one of them needs."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from compat_tests.suites.install import call, kafka_classpath, kafka_version, made_of, need
from compat_tests.suites.own.brokers import Servers, User

OWN: Final = Path(__file__).parent
TEST_SECONDS_MAX: Final = 120

Command = tuple[list[str], dict[str, str]]
"""A program with its arguments, and what is in its environment besides."""

# Groups of tests need not wait for members that will never come.
QUICK_GROUPS: Final = "group.initial.rebalance.delay.ms=0"

NO_TRANSACTIONS: Final = "it needs transactions, which this broker does not have"
NO_ACCESS_LISTS: Final = "it sets access lists (ACLs), which this broker does not have"
NO_SHARE_GROUPS: Final = "it needs share groups (KIP-932), which this broker does not have"
THREE_BROKERS: Final = "it needs a cluster of three brokers"


@dataclass(frozen=True, slots=True)
class OwnSuite:
    """A client's own suite: `prepare` makes a checkout ready, and gives the command that runs it
    against a broker, all of it or some files, and writes its results to a file, in JUnit's format.

    `settings` and `users` are those of the broker in the client's own container. `known` has
    patterns of the names of tests that may fail, each with the reason; `there` the same of tests
    that fail with Apache Kafka alone, which is no matter of this broker; `skips` of tests that the
    suite skips by itself, looked for in their names and in what the suite says of them;
    `says` has the pattern that the last words of a failure must have, by its reason, where they are
    kept; `without` tells what of the suite is not run, and why; `shared` names another suite whose
    checkout this one runs too.
    """

    client: str
    version: str
    tag: str
    part: str
    prepare: Callable[[Path, Servers, Path, tuple[str, ...]], Command]
    tests: tuple[str, ...]
    settings: tuple[str, ...] = ()
    users: tuple[User, ...] = ()
    known: tuple[tuple[str, str], ...] = ()
    there: tuple[tuple[str, str], ...] = ()
    skips: tuple[tuple[str, str], ...] = ()
    without: tuple[tuple[str, str], ...] = ()
    says: tuple[tuple[str, str], ...] = ()
    shared: str = ""

    def reason(self, test: str, said: str = "") -> str | None:
        """Why a test may fail, which said something at last; None if it must not."""
        why = _found(self.known, test)
        must = dict(self.says).get(why) if why and said else None
        return None if must and not re.search(must, said) else why

    def reason_there(self, test: str) -> str | None:
        """Why a test fails with Apache Kafka, which passes here; None if nobody knows."""
        return _found(self.there, test)

    def skipped_for(self, test: str, said: str) -> str | None:
        """Why a test may be skipped, of which the suite said something; None if it must not."""
        return _found(self.skips, f"{test}: {said}")


def _found(reasons: tuple[tuple[str, str], ...], about: str) -> str | None:
    return next((why for pattern, why in reasons if re.search(pattern, about)), None)


def take(suite: OwnSuite, repository: Path, folder: Path) -> None:
    """Puts the version of a suite from a clone into a folder; one that is there stays."""
    stamp = folder / "own-tag"
    if stamp.exists() and stamp.read_text() == suite.tag:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    archive = folder / "archive.tar"
    git = ["git", "-C", str(repository), "archive", "--format=tar", "-o", str(archive), suite.tag]
    call(git)
    call([need("tar"), "-xf", str(archive), "-C", str(folder)])
    archive.unlink()
    stamp.write_text(suite.tag)


def python(folder: Path, *requirements: str) -> str:
    """An interpreter with some packages beside a checkout."""
    python = str(folder / "bin" / "python")

    def make() -> None:
        call([sys.executable, "-m", "venv", str(folder)])
        call([python, "-m", "pip", "install", "--quiet", *requirements])

    made_of([sys.executable, *requirements], folder, make)
    return python


def pytest_command(python: str, checkout: Path, results: Path, *tests: str) -> list[str]:
    """Runs tests without the settings of the checkout, which turn warnings of today into errors."""
    settings = checkout / "own.ini"
    settings.write_text("[pytest]\n")
    return [
        *(python, "-m", "pytest", "-q", "-c", str(settings), "--rootdir", str(checkout)),
        *("-o", "asyncio_mode=auto", "-p", "no:cacheprovider"),
        *("--timeout", str(TEST_SECONDS_MAX), "--junitxml", str(results)),
        *tests,
    ]


def kafka_tools(folder: Path) -> None:
    """Scripts of Kafka's tools that tests start, by the names that they have there."""
    classpath = kafka_classpath(kafka_version())
    folder.mkdir(parents=True, exist_ok=True)
    for name, tool in (("kafka-topics.sh", "TopicCommand"), ("kafka-acls.sh", "AclCommand")):
        script = folder / name
        script.write_text(
            f'#!/bin/sh\nexec java -cp "$(cat {classpath})" org.apache.kafka.tools.{tool} "$@"\n'
        )
        script.chmod(0o755)
