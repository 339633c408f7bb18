"""The clients in Go: every feature of theirs, groups of the consumer protocol (KIP-848) with
franz-go, and their logins. What is checked is in the programs below `suites/`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from asyncbroker.tests.long import IS_LONG
from compat_tests.conftest import BrokerProcess
from compat_tests.consumer_groups import broker_of
from compat_tests.protected import (
    Protected,
    protected_broker,
)
from compat_tests.suites.features import AS_SARAMA, LOGINS, NEXT_GENERATION
from compat_tests.suites.run import run_features
from compat_tests.suites.suite import Result
from compat_tests.test_suites import PROGRAM_SECONDS_MAX, check, program_of_client

pytestmark = pytest.mark.timeout(300)
each_client = pytest.mark.parametrize("client", ["franz-go", "sarama", "kafka-go"])
# All of it takes minutes.
OLD_KAFKAS = list(AS_SARAMA) if IS_LONG else [name for name in AS_SARAMA if " 0.11" in name]


def expect_passed(client: str, servers: str, feature: str) -> None:
    result = run_features(program_of_client(client), servers, [feature], PROGRAM_SECONDS_MAX)[
        feature
    ]
    assert result.outcome == "passed", result.note


@pytest.fixture(scope="module")
def protected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Protected]:
    with protected_broker(tmp_path_factory.mktemp("protected")) as broker:
        yield broker


@pytest.fixture(scope="module")
def quick_groups(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with broker_of(tmp_path_factory.mktemp("consumer-groups")) as broker:
        yield broker


@each_client
def test_every_feature_works(bootstrap_servers: str, client: str) -> None:
    check(client, program_of_client(client), bootstrap_servers)


@pytest.mark.parametrize("feature", OLD_KAFKAS)
def test_sarama_works(bootstrap_servers: str, feature: str) -> None:
    expect_passed("sarama-versions", bootstrap_servers, feature)


@pytest.mark.parametrize("feature", NEXT_GENERATION)
def test_groups_of_the_consumer_protocol_with_franz_go(
    quick_groups: BrokerProcess, feature: str
) -> None:
    expect_passed("franz-go", quick_groups.bootstrap_servers, feature)


@each_client
def test_they_log_in(protected: Protected, client: str) -> None:
    features = list(LOGINS if IS_LONG else LOGINS[-1:])
    results = run_features(
        program_of_client(client), "", features, PROGRAM_SECONDS_MAX, protected.environment()
    )
    assert results == dict.fromkeys(features, Result("passed"))
