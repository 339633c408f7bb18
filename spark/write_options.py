"""The options of the sink, read and checked: names, defaults and refusals of Spark's connector.

Settings of Kafka's producer are passed with `kafka.` before them; those that have an effect are in
`WriteOptions`. Others that a producer has are accepted, and what nobody knows is warned of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from asyncbroker.client.cluster import CONNECT_TIMEOUT_MS, TIMEOUT_MS
from asyncbroker.client.producer import BATCH_BYTES
from asyncbroker.client.security import SECURITY_PROPERTIES, Security
from asyncbroker.client.sender import BUFFER_BYTES_MAX, DELIVERY_TIMEOUT_MS, IN_FLIGHT_MAX
from asyncbroker.protocol.records import Compression
from asyncbroker.spark.options import (
    CLIENT_ID,
    SOURCE_OPTIONS,
    flag,
    positive,
    security_from,
    warn_of_unknown_among,
)

ALL_ACKS: Final = -1
BLOCK_MS_MAX: Final = 60_000

_ACKS: Final = {"all": ALL_ACKS, "-1": ALL_ACKS, "1": 1, "0": 0}

_REFUSED_KAFKA_OPTIONS: Final = {
    "key.serializer": "Keys are serialized with ByteArraySerializer. Use DataFrame operations to "
    "explicitly serialize the keys into either strings or byte arrays.",
    "value.serializer": "Values are serialized with ByteArraySerializer. Use DataFrame operations "
    "to explicitly serialize the values into either strings or byte arrays.",
    "transactional.id": "The sink does not write in transactions yet.",
    "interceptor.classes": "Interceptors could change the records.",
    "partitioner.class": "Keys choose partitions as in Kafka's producer; the column 'partition' "
    "chooses any.",
}

_KAFKA_OPTIONS: Final = (
    *("bootstrap.servers", "acks", "enable.idempotence", "compression.type", "batch.size"),
    *("max.in.flight.requests.per.connection", "buffer.memory", "delivery.timeout.ms"),
    *("request.timeout.ms", "socket.connection.setup.timeout.ms", "client.id", "linger.ms"),
    *("max.request.size", "max.block.ms", "retries", "retry.backoff.ms", "metadata.max.age.ms"),
    *("receive.buffer.bytes", "send.buffer.bytes", "connections.max.idle.ms"),
    *("reconnect.backoff.ms", "reconnect.backoff.max.ms", "compression.level"),
    *SECURITY_PROPERTIES,
)

_SINK_OPTIONS: Final = ("topic", "includeHeaders", "checkpointLocation", "path", "queryName")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Where rows go, and how."""

    bootstrap_servers: str
    security: Security
    # Beats the column of that name.
    topic: str | None
    acks: int
    is_idempotent: bool
    compression: Compression
    batch_bytes: int
    in_flight_max: int
    buffer_bytes_max: int
    delivery_timeout_ms: int
    # How long a broker is waited for, at the beginning and to hear of a topic.
    block_ms_max: int
    client_id: str
    request_timeout_ms: int
    connect_timeout_ms: int

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        """Reads the options of a query that writes; raises ValueError with a text for people."""
        given = {name.lower(): value for name, value in options.items()}
        for name, advice in _REFUSED_KAFKA_OPTIONS.items():
            if f"kafka.{name}" in given:
                raise ValueError(f"Kafka option '{name}' is not supported. {advice}")
        if not given.get("kafka.bootstrap.servers", "").strip():
            raise ValueError(
                "Option 'kafka.bootstrap.servers' must be specified for configuring Kafka producer"
            )
        acks = _acks(given)
        is_idempotent = flag(given, "kafka.enable.idempotence", acks == ALL_ACKS)
        if is_idempotent and acks != ALL_ACKS:
            raise ValueError("Must set acks to all in order to use the idempotent producer")
        name = "kafka.max.in.flight.requests.per.connection"
        in_flight = positive(given, name) or IN_FLIGHT_MAX
        if is_idempotent and in_flight > IN_FLIGHT_MAX:
            raise ValueError(
                f"{name} must be at most {IN_FLIGHT_MAX} to use the idempotent producer"
            )
        return cls(
            bootstrap_servers=given["kafka.bootstrap.servers"],
            security=security_from(given),
            topic=given.get("topic", "").strip() or None,
            acks=acks,
            is_idempotent=is_idempotent,
            compression=_compression(given),
            batch_bytes=positive(given, "kafka.batch.size") or BATCH_BYTES,
            in_flight_max=in_flight,
            buffer_bytes_max=positive(given, "kafka.buffer.memory") or BUFFER_BYTES_MAX,
            delivery_timeout_ms=(
                positive(given, "kafka.delivery.timeout.ms") or DELIVERY_TIMEOUT_MS
            ),
            block_ms_max=positive(given, "kafka.max.block.ms") or BLOCK_MS_MAX,
            client_id=given.get("kafka.client.id", CLIENT_ID),
            request_timeout_ms=positive(given, "kafka.request.timeout.ms") or TIMEOUT_MS,
            connect_timeout_ms=(
                positive(given, "kafka.socket.connection.setup.timeout.ms") or CONNECT_TIMEOUT_MS
            ),
        )


def warn_of_unknown(options: Mapping[str, str]) -> None:
    """Logs a warning for each option that nobody knows; a view has those of the source as well."""
    known = [*_SINK_OPTIONS, *SOURCE_OPTIONS, *(f"kafka.{name}" for name in _KAFKA_OPTIONS)]
    warn_of_unknown_among(known, options)


def _acks(given: Mapping[str, str]) -> int:
    text = given.get("kafka.acks", "all").strip().lower()
    if text not in _ACKS:
        raise ValueError(f"kafka.acks must be one of {', '.join(_ACKS)}, not '{text}'")
    return _ACKS[text]


def _compression(given: Mapping[str, str]) -> Compression:
    text = given.get("kafka.compression.type", "none").strip().upper()
    if text not in Compression.__members__:
        names = ", ".join(name.lower() for name in Compression.__members__)
        raise ValueError(f"kafka.compression.type must be one of {names}, not '{text.lower()}'")
    return Compression[text]
