"""The pytest plugin: brokers as fixtures, settings by marker, requests in the report of a failure.

Fixtures: `kafka_broker` (one for the test), `kafka_broker_session` (one for all tests of this
process; under xdist each worker has its own), `kafka_prefix` (a beginning for the test's own
names), `kafka_topic` (a new topic's name, in the session's broker if the test uses that one).
Brokers run in threads, so tests may be of any kind.

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
MARKER: Final = "kafka"

# What the marker takes besides settings.
OPTIONS: Final = ("nodes", "kafka_version", "clock")

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
        "kafka(settings={}, nodes=1, kafka_version=None, directory=False, clock='running', "
        "**settings): what this test's kafka_broker is like; settings by Kafka's names, as a dict "
        "or as keywords with underscores for dots",
    )


@pytest.fixture
def kafka_broker(request: pytest.FixtureRequest) -> Iterator[BrokerThread]:
    """A Kafka broker for this test alone, in memory (see asyncbroker.testing.BrokerThread)."""
    from asyncbroker.config import ConfigError
    from asyncbroker.testing.thread import BrokerThread

    settings = _settings_of_ini(request.config)
    options: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers(MARKER))):
        keywords = dict(marker.kwargs)
        options.update({name: keywords.pop(name) for name in OPTIONS if name in keywords})
        if "directory" in keywords:
            is_on_disk = keywords.pop("directory")
            options["directory"] = request.getfixturevalue("tmp_path") / "kafka"
            if not is_on_disk:
                del options["directory"]
        settings.update(_settings_of_marker(marker, keywords))
    try:
        broker = BrokerThread(settings, trace=_trace_of(request.config), **options)
    except (ConfigError, TypeError, ValueError) as error:
        # What the marker says, and nothing that a traceback would explain.
        pytest.fail(f"{FIXTURES[0]} cannot be as it should: {error}", pytrace=False)
    with broker:
        yield broker


@pytest.fixture(scope="session")
def kafka_broker_session(pytestconfig: pytest.Config) -> Iterator[BrokerThread]:
    """A Kafka broker that all tests share; use kafka_topic, or kafka_prefix for names of your own.
    Faults that a test sets are gone after it."""
    from asyncbroker.testing.thread import BrokerThread

    settings = _settings_of_ini(pytestconfig)
    with BrokerThread(settings, trace=_trace_of(pytestconfig)) as broker:
        yield broker


@pytest.fixture
def kafka_prefix(request: pytest.FixtureRequest) -> str:
    """A beginning for names of this test's own: of topics and groups in a broker that is shared."""
    words = re.sub(r"[^A-Za-z0-9_-]+", "-", request.node.name).strip("-")[:100]
    return f"{words}-{uuid.uuid4().hex[:8]}-"


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest, kafka_prefix: str) -> str:
    """The name of a topic that was made for this test, which begins with its prefix."""
    is_shared = FIXTURES[1] in request.fixturenames and FIXTURES[0] not in request.fixturenames
    broker: BrokerThread = request.getfixturevalue(FIXTURES[1] if is_shared else FIXTURES[0])
    topic = f"{kafka_prefix}topic"
    broker.topic(topic).create()
    return topic


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A marker that could have no effect is a mistake of its test. One of a module or a class is
    not: it goes for those tests in it that have a broker of their own."""
    names = getattr(item, "fixturenames", ())
    is_marked = any(marker.name == MARKER for marker in item.own_markers)
    if is_marked and FIXTURES[1] in names and FIXTURES[0] not in names:
        pytest.fail(
            f"@pytest.mark.{MARKER} is about {FIXTURES[0]}, a broker of the test's own; "
            f"{FIXTURES[1]} is shared and has the settings of {SETTINGS_INI}",
            pytrace=False,
        )


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
    seen = getattr(getattr(item, "instance", None), "kafka_seen", "")
    brokers = [used[name] for name in FIXTURES if name in used]
    if not brokers and not seen:
        return
    from asyncbroker.testing.report import SECTION, describe_broker

    report.sections += [
        (SECTION, describe_broker(broker, item.stash[_STARTED])) for broker in brokers
    ]
    if seen:
        report.sections.append((SECTION, seen))


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


def _settings_of_marker(marker: pytest.Mark, keywords: dict[str, Any]) -> dict[str, Any]:
    from asyncbroker.testing.profile import by_kafkas_names

    settings: dict[str, Any] = {}
    for argument in marker.args:
        if not isinstance(argument, dict):
            pytest.fail(
                f"@pytest.mark.{MARKER} takes a dict of settings, not {argument!r}", pytrace=False
            )
        settings.update(argument)
    return {**settings, **by_kafkas_names(keywords)}
