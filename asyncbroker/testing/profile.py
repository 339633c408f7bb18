"""The settings of a broker for tests: the test profile, then what the test says, by Kafka's names.

A setting may be given by name (`{"num.partitions": 3}`) or as a keyword (`num_partitions=3`, where
every underscore stands for a dot). Values may be what Python has for them.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from asyncbroker.config import BrokerConfig

PORT_MAX: Final = 65535

SettingValue = str | int | float | bool | list[str] | tuple[str, ...]

TEST_PROFILE: Final[Mapping[str, str]] = {
    # A group forms at once, and a member that died is noticed as soon as the test wishes.
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    # Services create their topics with three replicas, and must be able to.
    "asyncbroker.replication.factor.cap": "true",
    # A client that does not take its answers does not hold up the end of a test.
    "asyncbroker.stop.timeout.ms": "4000",
    "asyncbroker.worker.threads": "2",
    # Made at the first acks=all round, by each broker with a directory.
    "log.journal.bytes": "1048576",
}


def make_config(
    settings: Mapping[str, SettingValue] | None,
    keywords: Mapping[str, SettingValue],
    *,
    directory: str | os.PathLike[str] | None,
    host: str,
    port: int,
    nodes: int = 1,
) -> BrokerConfig:
    """The configuration of a broker that listens on one address. Raises ConfigError, which names
    each mistake, or ValueError for a port that is none (the system would take it modulo 65536)."""
    from asyncbroker.config import BrokerConfig
    from asyncbroker.listeners import Listener

    if not 0 <= port <= PORT_MAX - (nodes - 1 if port else 0):
        raise ValueError(f"port={port}: ports are 0 (any free one) to {PORT_MAX}, for each node")
    given = {**(settings or {}), **by_kafkas_names(keywords)}
    texts = {name: text_of(value) for name, value in given.items()}
    # Otherwise one node would coordinate all groups.
    spread = {"offsets.topic.num.partitions": str(nodes)} if nodes > 1 else {}
    config = BrokerConfig.from_settings({**TEST_PROFILE, **spread, **texts})
    return dataclasses.replace(
        config,
        data_directory=None if directory is None else os.fspath(directory),
        listeners=(Listener("PLAINTEXT", host, port),),
    )


def by_kafkas_names(keywords: Mapping[str, SettingValue]) -> dict[str, SettingValue]:
    """`num_partitions` as `num.partitions`."""
    return {name.replace("_", "."): value for name, value in keywords.items()}


def text_of(value: SettingValue) -> str:
    """A value as a properties file has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(value)
    return str(value)
