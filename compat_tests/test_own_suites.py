"""What is made of the results of the clients' own suites; the suites themselves are run by
`python -m compat_tests.suites.own`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from compat_tests.suites.own import results
from compat_tests.suites.own.__main__ import NotRun, files_of, files_that_failed
from compat_tests.suites.own.results import BEGIN, END, Outcome, keep, load, read, section
from compat_tests.suites.own.suites import SUITES

JUNIT = """<testsuites><testsuite>
<testcase classname="tests.test_a.TestA" name="test_one" />
<testcase classname="tests.test_a.TestA" name="test_two"><failure>why</failure></testcase>
<testcase classname="tests.test_a.TestA" name="test_two"><failure>why</failure></testcase>
<testcase classname="tests.test_b" name="test_three"><error message="no" /></testcase>
<testcase classname="tests.test_b" name="test_four"><skipped /></testcase>
</testsuite></testsuites>
"""

# That of the repository, which tests have no part in.
KEPT = results.KEPT
FAILED = ["tests.test_a.TestA test_two", "tests.test_b test_three"]


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "KEPT", tmp_path / "results.json")


def test_results_are_read_and_each_test_counts_once(tmp_path: Path) -> None:
    file = tmp_path / "results.xml"
    file.write_text(JUNIT)
    outcome = read(file)
    assert outcome == Outcome(passed=1, skipped=1, failed=FAILED)
    assert outcome.ran == 3


def test_files_are_found_by_paths_and_by_names_of_modules(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").touch()
    (tmp_path / "tests" / "test_b.py").touch()
    assert files_of(FAILED, tmp_path) == ("tests/test_a.py", "tests/test_b.py")
    assert files_of(["src/a/b.spec.js A b", "src/a/b.spec.js A c"], tmp_path) == (
        "src/a/b.spec.js",
    )


def test_failures_are_told_with_their_reasons_and_those_without_stand_out() -> None:
    known = "tests.test_transactional_producer.T test_x"
    keep("aiokafka", "asyncbroker", Outcome(passed=8, skipped=2, failed=[known, FAILED[0]]))
    keep("aiokafka", "kafka", Outcome(passed=2, skipped=0, failed=[]))
    assert load()["aiokafka"]["asyncbroker"].ran == 10
    told = section()
    assert told.startswith(BEGIN)
    assert told.endswith(f"{END}\n")
    assert "| 8 of 10 pass, 2 failed, 2 skipped | 2 of 2 pass |" in told
    assert told.count("| not run | not run |") == len(SUITES) - 1
    assert "- it needs transactions, which this broker does not have: 1 with asyncbroker\n" in told
    assert f"- **no reason**: {FAILED[0]}: 1 with asyncbroker\n" in told


def test_what_has_failed_has_a_reason_and_no_reason_is_left_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(results, "KEPT", KEPT)
    for suite in SUITES:
        outcomes = load().get(suite.client, {}).values()
        failed = [test for outcome in outcomes for test in outcome.failed]
        assert [test for test in failed if suite.reason(test) is None] == []
        for pattern, _ in suite.known if failed else ():
            assert any(re.search(pattern, test) for test in failed), pattern


def test_tests_of_kafkajs_that_need_no_other_broker_must_pass() -> None:
    (suite,) = (suite for suite in SUITES if suite.client == "kafkajs")
    for test in (
        "src/broker/saslAuthenticator/plain.spec.js Broker > SASL Authenticator > plain it works",
        "src/broker/__tests__/metadata.spec.js Broker > Metadata can create topics",
        "src/cluster/__tests__/brokerPool.spec.js Cluster > BrokerPool #disconnect disconnects",
        "src/producer/eosManager/index.spec.js Producer > eosManager adding to transaction",
        "src/consumer/__tests__/filterAbortedMessages.spec.js filter messages of transactions",
    ):
        assert suite.reason(test) is None


def test_a_comparison_without_a_test_that_failed_here_is_refused(tmp_path: Path) -> None:
    suite = SUITES[0]
    with pytest.raises(NotRun, match="no test of aiokafka has failed here"):
        files_that_failed(suite, tmp_path)
    keep(suite.client, "asyncbroker", Outcome(passed=1, skipped=0, failed=[]))
    with pytest.raises(NotRun):
        files_that_failed(suite, tmp_path)
    keep(suite.client, "asyncbroker", Outcome(passed=1, skipped=0, failed=["src/a.spec.js A b"]))
    assert files_that_failed(suite, tmp_path) == ("src/a.spec.js",)
