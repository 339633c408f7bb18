"""The clients' programs of checks, as `scripts/compatibility` runs them, in the versions that are
installed here. What those programs check is in `suites/features.py`; groups of the clients in
Python have tests of their own beside this one. And what runs them, when things go wrong."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

from compat_tests.suites import __main__ as command
from compat_tests.suites.all import SUITES
from compat_tests.suites.checks import wait_until
from compat_tests.suites.features import LOGINS, NEXT_GENERATION
from compat_tests.suites.install import ROOT, CannotInstall, call
from compat_tests.suites.install import SUITES as PROGRAMS
from compat_tests.suites.run import run_features, run_suite
from compat_tests.suites.suite import Prepare, Result, Suite

PROGRAM_SECONDS_MAX = 120

IN_PYTHON = ("aiokafka", "kafka-python", "confluent-kafka")
# Of the clients in Python: checked by `test_aiokafka.py` and its like.
GROUPS = ("range", "roundrobin", "sticky", "cooperative")
ELSEWHERE = {
    # By `test_go_clients.py` and others, at a broker whose members are quick.
    *NEXT_GENERATION,
    # By the same and `test_security.py`, at a broker where users log in.
    *LOGINS,
    # Waits for a look at all offsets, which is every ten minutes here.
    "offsets that expire",
}

pytestmark = pytest.mark.timeout(300)


def check(
    name: str, program: list[str] | None, servers: str, without: Collection[str] = ()
) -> None:
    """Runs a suite in its newest version; what fails gets a second try, as clients may get stuck on
    a busy machine. Without a program it is the `matrix.py` of the client that is installed here."""
    (suite,) = (suite for suite in SUITES if suite.name == name)
    version = suite.versions[0]
    folder = PROGRAMS / name.replace("-", "_")
    program = program or [sys.executable, str(folder / "matrix.py")]
    features = [feature for feature in suite.present() if feature not in {*ELSEWHERE, *without}]
    results = run_features(program, servers, features, PROGRAM_SECONDS_MAX)
    for feature, result in results.items():
        if not suite.is_expected(version, feature, result):
            again = run_features(program, servers, [feature], PROGRAM_SECONDS_MAX)
            is_expected = suite.is_expected(version, feature, again[feature])
            assert is_expected, (feature, result, again[feature])


@functools.cache
def program_of_client(name: str) -> list[str]:
    """The program of a client in its newest version; no test where that cannot be built. Of the
    clients in Python it is the one that is installed here."""
    (suite,) = (suite for suite in SUITES if suite.name == name)
    if name in IN_PYTHON:
        return [sys.executable, str(PROGRAMS / name.replace("-", "_") / "matrix.py")]
    if name == "kcat" and shutil.which("kcat") is None:
        pytest.skip("kcat is not installed")
    version = suite.versions[0]
    try:
        return suite.prepare(version, command.CACHE / f"{name}-{version}")
    except CannotInstall as missing:
        pytest.skip(f"{name}: {missing}")


@pytest.mark.parametrize("name", IN_PYTHON)
def test_every_feature_of_a_client_in_python_works(bootstrap_servers: str, name: str) -> None:
    check(name, None, bootstrap_servers, without=GROUPS)


def test_old_and_odd_peers_and_consoles_are_answered(bootstrap_servers: str) -> None:
    check("wire", None, bootstrap_servers)


@pytest.mark.parametrize("name", ["kafkajs", "kcat"])
def test_every_feature_of_a_client_works(bootstrap_servers: str, name: str) -> None:
    check(name, program_of_client(name), bootstrap_servers)


def program_of(words: str) -> list[str]:
    return [sys.executable, "-c", f"import json, os, subprocess, sys, time\n{words}"]


SAYS_ONE = 'print(json.dumps({"feature": "one", "outcome": "passed", "note": ""}), flush=True)\n'


def test_what_a_program_does_not_get_to_has_failed_and_says_why() -> None:
    program = program_of(SAYS_ONE + 'print("{half", end="", flush=True)\nimport nowhere')
    results = run_features(program, "", ["one", "two"], PROGRAM_SECONDS_MAX)
    why = "the program ended with status 1: ModuleNotFoundError: No module named 'nowhere'"
    assert results == {"one": Result("passed"), "two": Result("failed", why)}


def test_a_program_that_does_not_end_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    program = program_of(
        'child = subprocess.Popen(["sleep", "600"])\n'
        f'open({str(pids)!r}, "w").write(f"{{os.getpid()}} {{child.pid}}")\n'
        f"{SAYS_ONE}time.sleep(600)"
    )
    results = run_features(program, "", ["one", "two"], 3)
    assert results == {"one": Result("passed"), "two": Result("failed", "not done in 3 s")}
    program_pid, child_pid = map(int, pids.read_text().split())
    with pytest.raises(ProcessLookupError):
        os.kill(program_pid, 0)
    # It dies when it has its turn, and nobody may be there who waits for an orphan.
    state = Path(f"/proc/{child_pid}/stat")
    wait_until(
        lambda: not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z",
        "the child has ended",
    )


OWN_TESTS = """\
#!/bin/sh
case "$*" in
*TestGood*) echo "--- PASS: TestGood (0.00s)" ;;
*TestElsewhere*)
    echo "    a_test.go:1: it is for two"
    echo "    a_test.go:1: deleting topic abc"
    echo "--- SKIP: TestElsewhere (0.00s)" ;;
*TestMore*) echo "    a_test.go:2: kafka server: The version of API is not supported"; exit 1 ;;
*) echo "    a_test.go:3: expected one"; echo "--- FAIL: TestBad (0.00s)"; exit 1 ;;
esac
"""


def test_what_a_clients_own_tests_say_is_told_apart(tmp_path: Path) -> None:
    tests = tmp_path / "own"
    tests.write_text(OWN_TESTS)
    tests.chmod(0o755)
    program = [sys.executable, str(PROGRAMS / "go" / "own.py"), str(tests)]
    names = ["TestGood", "TestElsewhere", "TestMore", "TestBad"]
    assert run_features(program, "nowhere:9", names, PROGRAM_SECONDS_MAX) == {
        "TestGood": Result("passed"),
        "TestElsewhere": Result("absent", "it is for two"),
        "TestMore": Result("refused", "kafka server: The version of API is not supported"),
        "TestBad": Result("failed", "AssertionError: expected one"),
    }


def suite_of(name: str, prepare: Prepare) -> Suite:
    features = {"one": "one", "two": "two", "three": "three"}
    absent = {"three": "it has none"}
    older = {"0": {"two": Result("absent", "it came later")}}
    return Suite(name, ("1",), "a test", prepare, features=features, absent=absent, older=older)


def test_a_check_that_finds_nothing_to_try_is_not_as_expected_unless_that_is_known() -> None:
    suite = suite_of("there", lambda *_: [])
    skipped = Result("absent", "there is nothing to try")
    assert suite.is_expected("1", "three", skipped)
    assert suite.is_expected("0", "two", skipped)
    assert not suite.is_expected("1", "two", skipped)
    assert not suite.is_expected("0", "two", Result("passed"))


def test_a_client_that_cannot_be_installed_is_told_and_the_others_are_tried(
    bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare(_version: str, _folder: Path) -> list[str]:
        call(program_of('sys.exit("no such version")'))
        raise AssertionError

    program = program_of(SAYS_ONE)
    suites = [suite_of("gone", prepare), suite_of("there", lambda *_: program)]
    monkeypatch.setattr(command, "CACHE", tmp_path)
    monkeypatch.setattr(command, "RESULTS", tmp_path / "results.json")
    first, *others = command.run(suites, ["asyncbroker"])
    assert first.startswith("gone 1 was not tried: ")
    assert first.endswith("ended with status 1: no such version")
    assert others == ["there 1, two: failed the program ended with status 0"]
    assert set(json.loads((tmp_path / "results.json").read_text())) == {"there 1 asyncbroker"}
    assert run_suite(suites[1], program, "")["three"] == Result("absent", "it has none")


def test_a_client_that_nobody_knows_is_refused_with_those_that_there_are() -> None:
    arguments = [sys.executable, "-m", "compat_tests.suites", "--client", "kafka"]
    refused = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True)
    assert refused.returncode == 2
    assert "invalid choice: 'kafka'" in refused.stderr
    for suite in SUITES:
        assert suite.name in refused.stderr
