"""The clients' programs of checks, as `scripts/compatibility` runs them, in the versions that are
installed here. What those programs check is in `suites/features.py`; groups, which take long, have
tests of their own beside this one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from compat_tests.suites.all import SUITES
from compat_tests.suites.install import SUITES as PROGRAMS
from compat_tests.suites.install import CannotInstall
from compat_tests.suites.run import run_features
from compat_tests.suites.suite import Suite

PROGRAM_SECONDS_MAX = 120
IN_PYTHON = {
    "aiokafka": "aiokafka",
    "kafka-python": "kafka_python",
    "confluent-kafka": "confluent_kafka",
}

# Checked by `test_aiokafka.py` and its like.
ELSEWHERE = {
    *("range", "roundrobin", "sticky", "cooperative", "static"),
    # Waits for a look at all offsets, which is every ten minutes here.
    "offsets that expire",
}

pytestmark = pytest.mark.timeout(300)


def check(suite: Suite, command: list[str], servers: str) -> None:
    """Runs a suite in its newest version; what fails gets a second try, as clients may get stuck on
    a busy machine."""
    features = [
        feature
        for feature in suite.features
        if feature not in ELSEWHERE and suite.why_absent(suite.versions[0], feature) is None
    ]
    results = run_features(command, servers, features, PROGRAM_SECONDS_MAX)
    for feature, result in results.items():
        if not suite.is_expected(feature, result):
            again = run_features(command, servers, [feature], PROGRAM_SECONDS_MAX)
            assert suite.is_expected(feature, again[feature]), (feature, result, again[feature])


def named(name: str) -> Suite:
    (suite,) = (suite for suite in SUITES if suite.name == name)
    return suite


@pytest.mark.parametrize("name", IN_PYTHON)
def test_every_feature_of_a_client_in_python_works(bootstrap_servers: str, name: str) -> None:
    program = PROGRAMS / IN_PYTHON[name] / "matrix.py"
    check(named(name), [sys.executable, str(program)], bootstrap_servers)


def test_old_and_odd_peers_and_consoles_are_answered(bootstrap_servers: str) -> None:
    command = [sys.executable, str(PROGRAMS / "wire" / "matrix.py")]
    check(named("wire"), command, bootstrap_servers)


def test_every_feature_of_kafkajs_works(bootstrap_servers: str, tmp_path: Path) -> None:
    suite = named("kafkajs")
    try:
        command = suite.prepare(suite.versions[0], tmp_path / "kafkajs")
    except CannotInstall as missing:
        pytest.skip(f"kafkajs {missing}")
    check(suite, command, bootstrap_servers)
