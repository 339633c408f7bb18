"""The pytest plugin: brokers as fixtures, settings by marker, requests in the report of a failure.

Fixtures: `kafka_broker` (one for the test), `kafka_broker_session` (one for all tests of this
process; under xdist each worker has its own), `kafka_topic` (a new topic's name, in the session's
broker if the test uses that one). Brokers run in threads, so tests may be of any kind.

Settings: lines of `kafka_settings` in pytest's configuration, for all brokers; over them
`@pytest.mark.kafka(num_partitions=3)` or `@pytest.mark.kafka({"num.partitions": 3})`, the nearest
last, for `kafka_broker`.

pytest loads this at every start, in projects that never ask for a broker too: it imports nothing
of the broker before a fixture is used.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from asyncbroker.testing.thread import BrokerThread

FIXTURES: Final = ("kafka_broker", "kafka_broker_session")
SETTINGS_INI: Final = "kafka_settings"
TRACE_OPTION: Final = "--kafka-trace"
SECTION: Final = "requests of the Kafka broker"

_STARTED: Final = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Settings for all brokers, and the trace."""
    parser.addoption(
        TRACE_OPTION,
        nargs="?",
        const="",
        default=None,
        metavar="CHOICE",
        help="show each request to a Kafka broker and its answer; CHOICE picks some of them, for "
        'example "api=Produce,Fetch errors"',
    )
    parser.addini(
        SETTINGS_INI,
        "settings of the test brokers by Kafka's names, a line of name=value for each",
        type="linelist",
        default=[],
    )


def pytest_configure(config: pytest.Config) -> None:
    """The marker."""
    config.addinivalue_line(
        "markers",
        "kafka(settings={}, **settings): settings of this test's kafka_broker by Kafka's names, "
        "as a dict or as keywords with underscores for dots",
    )


@pytest.fixture
def kafka_broker(request: pytest.FixtureRequest) -> Iterator[BrokerThread]:
    """A Kafka broker for this test alone, in memory (see asyncbroker.testing.BrokerThread)."""
    from asyncbroker.testing.thread import BrokerThread

    settings = _settings_of_ini(request.config)
    for marker in reversed(list(request.node.iter_markers("kafka"))):
        settings.update(_settings_of_marker(marker))
    with BrokerThread(settings, trace=_trace_of(request.config)) as broker:
        yield broker


@pytest.fixture(scope="session")
def kafka_broker_session(pytestconfig: pytest.Config) -> Iterator[BrokerThread]:
    """A Kafka broker that all tests share; use kafka_topic for names of your own. Faults that a
    test sets are gone after it."""
    from asyncbroker.testing.thread import BrokerThread

    settings = _settings_of_ini(pytestconfig)
    with BrokerThread(settings, trace=_trace_of(pytestconfig)) as broker:
        yield broker


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest) -> str:
    """The name of a topic that was made for this test."""
    is_shared = "kafka_broker_session" in request.fixturenames
    name = FIXTURES[1] if is_shared and FIXTURES[0] not in request.fixturenames else FIXTURES[0]
    broker: BrokerThread = request.getfixturevalue(name)
    words = re.sub(r"[^A-Za-z0-9_-]+", "-", request.node.name).strip("-")[:100]
    topic = f"{words}-{uuid.uuid4().hex[:8]}"
    broker.topic(topic).create()
    return topic


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Adds what the brokers of a failed test have seen to its report."""
    outcome = yield
    if call.when == "setup":
        item.stash[_STARTED] = call.start
    report: pytest.TestReport = outcome.get_result()
    used: dict[str, Any] = getattr(item, "funcargs", {})
    if call.when == "teardown":
        if FIXTURES[1] in used:
            # The next test did not ask for them.
            used[FIXTURES[1]].faults.clear()
        return
    if not report.failed:
        return
    for name in FIXTURES:
        if name in used:
            report.sections.append((SECTION, _describe(used[name], item.stash[_STARTED])))


def _describe(broker: BrokerThread, since: float) -> str:
    """The requests since the start of the test, and the groups that they were about."""
    from concurrent.futures import TimeoutError as CallTimedOut

    from asyncbroker.protocol.errors import KafkaError
    from asyncbroker.testing.loop_thread import NotRunning

    text = broker.requests.describe(since=since) or "(there were none)"
    concerned = {
        group for request in broker.requests if request.at >= since for group in request.groups
    }
    try:
        groups = [group for group in broker.groups if group.group_id in concerned]
    except (NotRunning, KafkaError, CallTimedOut) as error:
        return f"{text}\nthe groups cannot be looked at: {error or type(error).__name__}"
    return "\n".join([text, *(group.describe() for group in groups)])


def _trace_of(config: pytest.Config) -> bool | str:
    from asyncbroker.tracing.choice import BadChoice, parse_choice

    text: str | None = config.getoption(TRACE_OPTION)
    try:
        parse_choice(text or "")
    except BadChoice as error:
        raise pytest.UsageError(f"{TRACE_OPTION}: {error}") from error
    return False if text is None else text


def _settings_of_ini(config: pytest.Config) -> dict[str, Any]:
    settings = {}
    for line in config.getini(SETTINGS_INI):
        name, separator, value = line.partition("=")
        if not separator:
            raise pytest.UsageError(f"{SETTINGS_INI}: {line!r} is not name=value")
        settings[name.strip()] = value.strip()
    return settings


def _settings_of_marker(marker: pytest.Mark) -> dict[str, Any]:
    from asyncbroker.testing.profile import by_kafkas_names

    settings: dict[str, Any] = {}
    for argument in marker.args:
        if not isinstance(argument, dict):
            raise pytest.UsageError(
                f"@pytest.mark.kafka takes a dict of settings, not {argument!r}"
            )
        settings.update(argument)
    return {**settings, **by_kafkas_names(marker.kwargs)}
