"""What is made of the results of the clients' own suites; the suites themselves are run by
`python -m compat_tests.suites.own`."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from compat_tests.suites.own import librdkafka_tests, results
from compat_tests.suites.own.__main__ import NotRun, files_of, files_that_failed, without_reason
from compat_tests.suites.own.kafkajs import LATER
from compat_tests.suites.own.results import BEGIN, END, Outcome, keep, load, read, section
from compat_tests.suites.own.suite import NO_TRANSACTIONS, OwnSuite
from compat_tests.suites.own.suites import SUITES

JUNIT = """<testsuites><testsuite>
<testcase classname="tests.test_a.TestA" name="test_one" />
<testcase classname="tests.test_a.TestA" name="test_two"><failure>why</failure></testcase>
<testcase classname="tests.test_a.TestA" name="test_two"><failure>why</failure></testcase>
<testcase classname="tests.test_b" name="test_three"><error message="no" /></testcase>
<testcase classname="tests.test_b" name="test_four"><skipped message="no&#10;Kerberos" /></testcase>
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
    skipped = {"tests.test_b test_four": "no Kerberos"}
    said = dict(zip(FAILED, ("why", "no"), strict=True))
    assert outcome == Outcome(passed=1, skipped=skipped, failed=FAILED, said=said)
    assert outcome.ran == 3


def test_the_last_words_of_a_failure_are_bounded_and_the_same_in_each_run(tmp_path: Path) -> None:
    file = tmp_path / "results.xml"
    words = (
        f"first\n localhost:40123 /tmp/one/two.py gone {'x' * 300}\n    at Object.run (a.js:1:2)"
    )
    file.write_text(f'<t><testcase name="a"><failure>{words}</failure></testcase></t>')
    said = read(file).last_words("a")
    assert said.startswith("localhost PATH gone xxx")
    assert len(said) == 200


def test_a_failure_with_other_last_words_than_its_reason_asks_for_has_none() -> None:
    (suite,) = (suite for suite in SUITES if suite.client == "librdkafka-sasl")
    test = "0142_reauthentication do_test_txn_producer"
    assert suite.reason(test) == suite.reason(test, "this broker has no transactions")
    assert suite.reason(test) == NO_TRANSACTIONS
    assert suite.reason(test, "the broker is gone") is None
    keep(suite.client, "asyncbroker", Outcome(0, {}, [test], {test: "the broker is gone"}))
    assert without_reason(suite) == [f"without a known reason failed: {test}"]
    assert "- **no reason**: 1 fails: `do_test_txn_producer`\n" in section()


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
    ran = Outcome(
        8, {"tests.test_a test_k": "it needs Kerberos of a broker", "tests.test_a test_y": ""}, []
    )
    keep("aiokafka", "asyncbroker", replace(ran, failed=[known, FAILED[0]]))
    keep("aiokafka", "kafka", Outcome(2, {}, [FAILED[0]]))
    assert load()["aiokafka"]["asyncbroker"].ran == 10
    told = section()
    assert told.startswith(BEGIN)
    assert told.endswith(f"{END}\n")
    assert "| 8 of 10 pass, 2 failed, 2 skipped | 2 of 3 pass, 1 failed |" in told
    assert told.count("| not run | not run |") == len(SUITES) - 1
    transactions = f"- {NO_TRANSACTIONS}: 1 fails, not so with Apache Kafka: `test_x`\n"
    assert transactions in told
    assert "- **no reason**: 1 fails, with Apache Kafka too: `test_two`\n" in told
    assert "- **no reason**: 1 is skipped\n" in told


def test_where_nothing_fails_there_is_nothing_to_compare() -> None:
    keep("aiokafka", "asyncbroker", Outcome(3, {}, []))
    assert "| 3 of 3 pass | nothing to compare |" in section()


def test_what_fails_with_apache_kafka_only_is_told() -> None:
    keep("kafkajs", "asyncbroker", Outcome(1, {}, []))
    known = "src/cluster/__tests__/brokerPool.spec.js Cluster > BrokerPool #disconnect"
    keep("kafkajs", "kafka", Outcome(1, {}, ["src/unknown.spec.js A", known]))
    assert f"- {LATER}: 1 fails with Apache Kafka only: `cluster/__tests__/brokerPool" in section()
    assert "- **no reason**: 1 fails with Apache Kafka only: `unknown A`\n" in section()


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.client)
def test_what_has_failed_has_a_reason_and_no_reason_is_left_over(
    suite: OwnSuite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "KEPT", KEPT)
    outcomes = load().get(suite.client, {})
    if "asyncbroker" not in outcomes:
        return
    assert without_reason(suite) == []
    here = outcomes["asyncbroker"]
    failed_there = outcomes["kafka"].failed if "kafka" in outcomes else []
    skipped = [f"{test}: {said}" for test, said in here.skipped.items()]
    for reasons, found in (
        (suite.known, here.failed),
        (suite.there, [test for test in failed_there if test not in here.failed]),
        (suite.skips, skipped),
    ):
        for pattern, _ in reasons:
            assert any(re.search(pattern, about) for about in found), pattern


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.client)
def test_words_are_asked_for_by_reasons_that_there_are(suite: OwnSuite) -> None:
    assert {why for why, _ in suite.says} <= {why for _, why in suite.known}


def test_tests_of_kafkajs_that_need_no_other_broker_must_pass() -> None:
    (suite,) = (suite for suite in SUITES if suite.client == "kafkajs")
    assert suite.reason("src/broker/__tests__/connect.spec.js Broker > connect PLAIN") is None
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
    keep(suite.client, "asyncbroker", Outcome(passed=1, skipped={}, failed=[]))
    with pytest.raises(NotRun):
        files_that_failed(suite, tmp_path)
    keep(suite.client, "asyncbroker", Outcome(passed=1, skipped={}, failed=["src/a.spec.js A b"]))
    assert files_that_failed(suite, tmp_path) == ("src/a.spec.js",)


LIBRDKAFKA = """
struct test tests[] = {
    {.name = "<MAIN>", .flags = TEST_F_LOCAL},
    _TEST(0001_multiobj, 0),
    _TEST(0004_conf, TEST_F_LOCAL),
    _TEST(0045_subscribe_update,
          0,
          TEST_BRKVER(0, 9, 0, 0),
          .scenario = "noautocreate"),
#if WITH_SOCKEM
    _TEST(0049_consume_conn_close, TEST_F_SOCKEM, TEST_BRKVER(0, 9, 0, 0)),
#endif
    _TEST(0103_transactions,
          0,
          .scenario = "default,ak23"),
    _TEST(0170_share_consumer_subscription, 0, TEST_BRKVER(4, 2, 0, 0)),
    _TEST(8000_idle, TEST_F_MANUAL),
    {NULL}};
"""


def test_tests_of_librdkafka_that_want_a_broker_are_found_by_their_scenario() -> None:
    default = ["0001_multiobj", "0049_consume_conn_close", "0103_transactions"]
    assert librdkafka_tests.wanted(LIBRDKAFKA, "default") == default
    assert librdkafka_tests.wanted(LIBRDKAFKA, "noautocreate") == ["0045_subscribe_update"]


def test_what_became_of_tests_of_librdkafka_is_read_from_its_summary(tmp_path: Path) -> None:
    printed = "| 0097_ssl_verify  |    SKIPPED |   0.000s | it wants SSL\n"
    skipped = librdkafka_tests.became("SKIPPED", "0097_ssl_verify", printed)
    assert skipped.said == "it wants SSL"
    crashed = librdkafka_tests.became(None, "0001_multiobj", "one\nlast words \x1b\n")
    failed = librdkafka_tests.became("FAILED", "0081_admin", '### Test "0081_admin (x)"\nwhy\n')
    assert failed.said == "why"
    passed = librdkafka_tests.became("PASSED", "0002_unkpart", "")
    found = {
        "0097_ssl_verify": skipped,
        "0001_multiobj": crashed,
        "0081_admin do_test_A": failed,
        "0002_unkpart": passed,
    }
    librdkafka_tests.write(tmp_path / "results.xml", found.items())
    outcome = read(tmp_path / "results.xml")
    said = {"0001_multiobj": "last words ?", "0081_admin do_test_A": "why"}
    assert outcome == Outcome(1, {"0097_ssl_verify": "it wants SSL"}, sorted(said), said)
