"""The options of the source, read and checked: names, defaults and refusals of Spark's connector.

Keys are case-insensitive. What that connector refuses is refused here, with the words that people
search for. What it silently passes over (a name that nobody knows) is passed over here too, with a
warning that offers the nearest name.
"""

from __future__ import annotations

import difflib
import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from asyncbroker.client.cluster import CONNECT_TIMEOUT_MS, TIMEOUT_MS, TopicPartition
from asyncbroker.client.errors import ClientError
from asyncbroker.client.partitions import READ_COMMITTED, READ_UNCOMMITTED
from asyncbroker.client.security import SECURITY_PROPERTIES, Security, security_of
from asyncbroker.spark.formats import Formats, formats_from
from asyncbroker.spark.offset_limits import OffsetLimit, check_order, ending_limit, starting_limit

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Subscribe:
    """All partitions of these topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """All partitions of the topics in whose names the pattern is found, internal ones left out."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Assign:
    """These partitions, as far as they exist."""

    partitions: tuple[TopicPartition, ...]


Strategy = Subscribe | SubscribePattern | Assign

LimitsOf = Callable[[Mapping[str, str]], tuple[OffsetLimit, OffsetLimit]]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a query was asked to read, and how."""

    bootstrap_servers: str
    security: Security
    strategy: Strategy
    starting: OffsetLimit
    ending: OffsetLimit
    # When no record is as young as a starting timestamp: an error, or start at the end.
    starts_at_latest_without_match: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    columns: tuple[str, ...]
    formats: Formats
    include_headers: bool
    fail_on_data_loss: bool
    poll_timeout_ms: int
    isolation_level: int
    client_id: str
    request_timeout_ms: int
    connect_timeout_ms: int
    partition_fetch_bytes_max: int
    check_crcs: bool

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ReadOptions:
        """Reads the options of a batch query; raises ValueError with a text for people."""
        return cls.between(options, _batch_limits)

    @classmethod
    def between(cls, options: Mapping[str, str], limits_of: LimitsOf) -> ReadOptions:
        """Reads the options of a query of any kind, which says where it starts and ends by
        `limits_of` the options with lower-case keys; raises ValueError with a text for people."""
        given = {name.lower(): value for name, value in options.items()}
        strategy = _strategy(given)
        min_partitions = positive(given, "minPartitions")
        max_records_per_partition = _max_records(given)
        _refuse_kafka_options(given)
        starting, ending = limits_of(given)
        return cls(
            bootstrap_servers=given["kafka.bootstrap.servers"],
            security=security_from(given),
            strategy=strategy,
            starting=starting,
            ending=ending,
            starts_at_latest_without_match=_without_match(given),
            min_partitions=min_partitions,
            max_records_per_partition=max_records_per_partition,
            columns=tuple(
                name.strip() for name in given.get("columns", "").split(",") if name.strip()
            ),
            formats=formats_from(given),
            include_headers=flag(given, "includeHeaders", False),
            fail_on_data_loss=flag(given, "failOnDataLoss", True),
            poll_timeout_ms=positive(given, "kafkaConsumer.pollTimeoutMs") or POLL_TIMEOUT_MS,
            isolation_level=_isolation_level(given),
            client_id=given.get("kafka.client.id", CLIENT_ID),
            request_timeout_ms=positive(given, "kafka.request.timeout.ms") or TIMEOUT_MS,
            connect_timeout_ms=(
                positive(given, "kafka.socket.connection.setup.timeout.ms") or CONNECT_TIMEOUT_MS
            ),
            partition_fetch_bytes_max=(
                positive(given, "kafka.max.partition.fetch.bytes") or PARTITION_FETCH_BYTES_MAX
            ),
            check_crcs=flag(given, "kafka.check.crcs", True),
        )


CLIENT_ID: Final = "asyncbroker-spark"
POLL_TIMEOUT_MS: Final = 120_000
# More than Kafka's clients ask for, since a request has its price here and at the broker: the next
# one is under way while a response is decoded.
PARTITION_FETCH_BYTES_MAX: Final = 4 << 20

_STRATEGIES: Final = ("subscribe", "subscribepattern", "assign")

_REFUSED_KAFKA_OPTIONS: Final = {
    "auto.offset.reset": "Instead set the source option 'startingOffsets' to 'earliest' or "
    "'latest' to specify where to start.",
    "key.deserializer": "Keys are deserialized as byte arrays with ByteArrayDeserializer. Use "
    "DataFrame operations to explicitly deserialize the keys.",
    "value.deserializer": "Values are deserialized as byte arrays with ByteArrayDeserializer. Use "
    "DataFrame operations to explicitly deserialize the values.",
    "enable.auto.commit": "The source manages its offsets itself.",
    "interceptor.classes": "Interceptors could change the records.",
}

SOURCE_OPTIONS: Final = (
    *("subscribe", "subscribePattern", "assign", "includeHeaders", "failOnDataLoss", "columns"),
    *("keyFormat", "keySchema", "keySchemaFile", "onDecodeError", "columnNameOfCorruptRecord"),
    *("valueFormat", "valueSchema", "valueSchemaFile", "avroSchema"),
    *("startingOffsets", "startingOffsetsByTimestamp", "startingTimestamp"),
    *("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"),
    *("startingOffsetsByTimestampStrategy", "minPartitions", "maxRecordsPerPartition"),
    *("kafkaConsumer.pollTimeoutMs", "groupIdPrefix"),
    *("fetchOffset.numRetries", "fetchOffset.retryIntervalMs"),
)

_STREAM_OPTIONS: Final = (
    *("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "commitOffsets"),
)

# Consumer settings of Kafka that people pass along. Those that `ReadOptions` does not read have no
# effect: this client needs no group, and has one connection to a broker.
_KAFKA_OPTIONS: Final = (
    *("bootstrap.servers", "isolation.level", "client.id", "client.rack", "group.id"),
    *("request.timeout.ms", "socket.connection.setup.timeout.ms", "check.crcs"),
    *("max.partition.fetch.bytes", "fetch.max.bytes", "fetch.min.bytes", "fetch.max.wait.ms"),
    *("max.poll.records", "max.poll.interval.ms", "session.timeout.ms", "heartbeat.interval.ms"),
    *("receive.buffer.bytes", "send.buffer.bytes", "metadata.max.age.ms", "retry.backoff.ms"),
    *("reconnect.backoff.ms", "reconnect.backoff.max.ms", "connections.max.idle.ms"),
    *("default.api.timeout.ms", "allow.auto.create.topics", "exclude.internal.topics"),
    *("client.dns.lookup", "group.protocol", "partition.assignment.strategy"),
    *SECURITY_PROPERTIES,
)


def warn_of_ineffective(options: Mapping[str, str], *, is_stream: bool = False) -> None:
    """Logs a warning for each option that nobody knows, or that batch queries do not heed."""
    # A view may have a topic beside, which rows are inserted into.
    known = [*SOURCE_OPTIONS, *_STREAM_OPTIONS, "topic"]
    known += [f"kafka.{name}" for name in _KAFKA_OPTIONS]
    warn_of_unknown_among(known, options)
    stream_only = {name.lower(): name for name in _STREAM_OPTIONS}
    for name in options:
        if name.lower() in stream_only and not is_stream:
            logger.warning("%s option is ignored in batch queries", stream_only[name.lower()])


def warn_of_unknown_among(known: Iterable[str], options: Mapping[str, str]) -> None:
    """Logs a warning for each option that is none of the known ones, in any case. Spark gives the
    names in lower case."""
    spelled = {name.lower(): name for name in known}
    for name in options:
        if name.lower() not in spelled:
            nearest = difflib.get_close_matches(name.lower(), spelled, 1)
            hint = f"; did you mean '{spelled[nearest[0]]}'?" if nearest else ""
            logger.warning("option '%s' is not known and has no effect%s", name, hint)


def _batch_limits(given: Mapping[str, str]) -> tuple[OffsetLimit, OffsetLimit]:
    starting, ending = starting_limit(given), ending_limit(given)
    check_order(starting, ending)
    return starting, ending


def _strategy(given: Mapping[str, str]) -> Strategy:
    specified = [name for name in _STRATEGIES if name in given]
    names = ", ".join(_STRATEGIES)
    if not specified:
        raise ValueError(
            f"One of the following options must be specified for Kafka source: {names}. See the "
            "docs for more details."
        )
    if len(specified) > 1:
        raise ValueError(
            f"Only one of the following options can be specified for Kafka source: {names}. See "
            "the docs for more details."
        )
    value = given[specified[0]].strip()
    return _STRATEGY_PARSERS[specified[0]](value)


def _subscribe(value: str) -> Subscribe:
    topics = tuple(dict.fromkeys(topic.strip() for topic in value.split(",") if topic.strip()))
    if not topics:
        raise ValueError(
            f"No topics to subscribe to as specified value for option 'subscribe' is '{value}'"
        )
    return Subscribe(topics)


def _subscribe_pattern(value: str) -> SubscribePattern:
    if not value:
        raise ValueError(
            f"Pattern to subscribe is empty as specified value for option 'subscribePattern' is "
            f"'{value}'"
        )
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"'subscribePattern' is not a regular expression: {error}") from None
    return SubscribePattern(value)


def _assign(value: str) -> Assign:
    if not value.startswith("{"):
        raise ValueError(
            f"No topicpartitions to assign as specified value for option 'assign' is '{value}'"
        )
    try:
        partitions = tuple(
            TopicPartition(topic, int(partition))
            for topic, indexes in json.loads(value).items()
            for partition in indexes
        )
    except (ValueError, TypeError, AttributeError):
        raise ValueError(f'Expected e.g. {{"topicA":[0,1],"topicB":[0,1]}}, got {value}') from None
    return Assign(tuple(dict.fromkeys(partitions)))


_STRATEGY_PARSERS: Final[dict[str, Callable[[str], Strategy]]] = {
    "subscribe": _subscribe,
    "subscribepattern": _subscribe_pattern,
    "assign": _assign,
}


def _refuse_kafka_options(given: Mapping[str, str]) -> None:
    for name, advice in _REFUSED_KAFKA_OPTIONS.items():
        if f"kafka.{name}" in given:
            raise ValueError(f"Kafka option '{name}' is not supported. {advice}")
    if not given.get("kafka.bootstrap.servers", "").strip():
        raise ValueError(
            "Option 'kafka.bootstrap.servers' must be specified for configuring Kafka consumer"
        )


def security_from(given: Mapping[str, str]) -> Security:
    """How to reach the brokers, by options like `kafka.sasl.mechanism`. Raises ValueError."""
    properties = {
        name.removeprefix("kafka."): value
        for name, value in given.items()
        if name.startswith("kafka.")
    }
    try:
        return security_of(properties)
    except ClientError as error:
        raise ValueError(str(error)) from None


def positive(given: Mapping[str, str], name: str) -> int | None:
    """An option that is a number above 0, if it is there. Raises ValueError."""
    text = given.get(name.lower())
    if text is None:
        return None
    try:
        value = int(text)
    except ValueError:
        raise ValueError(f"{name} must be a number, not '{text}'") from None
    if value <= 0:
        raise ValueError(f"{name} must be positive")
    return value


def flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    """An option that is true or false. Raises ValueError."""
    text = given.get(name.lower())
    if text is None:
        return default
    if text.strip().lower() not in ("true", "false"):
        raise ValueError(f"{name} must be true or false, not '{text}'")
    return text.strip().lower() == "true"


def _isolation_level(given: Mapping[str, str]) -> int:
    text = given.get("kafka.isolation.level", "read_uncommitted").strip().lower()
    levels = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}
    if text not in levels:
        raise ValueError(f"kafka.isolation.level must be one of {', '.join(levels)}, not '{text}'")
    return levels[text]


def _max_records(given: Mapping[str, str]) -> int | None:
    # 0 is ours: the connector does not split unless it is told to.
    if given.get("maxrecordsperpartition", "").strip() == "0":
        return 0
    return positive(given, "maxRecordsPerPartition")


def _without_match(given: Mapping[str, str]) -> bool:
    text = given.get("startingoffsetsbytimestampstrategy", "error").strip().lower()
    if text not in ("error", "latest"):
        raise ValueError(
            f"startingOffsetsByTimestampStrategy must be 'error' or 'latest', not '{text}'"
        )
    return text == "latest"
