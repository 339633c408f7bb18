"""The broker's configuration: defaults, then `--config server.properties`, then `--set name=value`.

`BrokerConfig` holds each setting that the broker obeys under an attribute of its name in
snake_case: `num.partitions` is `config.num_partitions` (its table is `settings_broker.py`). What
topics inherit has no attributes: `topic_config.py` makes a `TopicConfig` of it. A configuration
does not change; altering a dynamic setting makes a new one (`with_dynamic`).

All that is wrong is told at once, in one `ConfigError`. Settings of Kafka's that have no effect
here become one line of `warnings`, so that a real broker's file loads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from asyncbroker.listeners import Listener, is_for_one_listener, parse_listeners
from asyncbroker.properties import parse_properties
from asyncbroker.settings import (
    InvalidSetting,
    attribute_of,
    broker_setting,
    broker_settings,
    is_passed_over,
    nearest,
    unused_settings,
)
from asyncbroker.settings_topic import INHERITED_FROM

# Settings that an operator may change while the broker runs, besides those that topics inherit.
DYNAMIC_SETTINGS: Final = frozenset(
    {
        "asyncbroker.scrub.bytes.per.second",
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.threads",
        "max.connections",
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
    }
)


class ConfigError(Exception):
    """The configuration cannot be used; each line of the message is one mistake."""


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """Settings in force. Sizes are bytes, times are in the unit that ends the name."""

    node_id: int
    broker_rack: str | None
    data_directory: str | None
    listeners: tuple[Listener, ...]

    socket_request_max_bytes: int
    socket_listen_backlog_size: int
    socket_send_buffer_bytes: int
    socket_receive_buffer_bytes: int
    connections_max_idle_ms: int
    max_connections: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: Mapping[str, int]
    queued_max_request_bytes: int

    auto_create_topics_enable: bool
    num_partitions: int
    delete_topic_enable: bool

    fetch_max_bytes: int
    max_incremental_fetch_session_cache_slots: int
    producer_id_expiration_ms: int

    group_initial_rebalance_delay_ms: int
    group_min_session_timeout_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    group_consumer_session_timeout_ms: int
    group_consumer_heartbeat_interval_ms: int
    group_consumer_assignment_interval_ms: int
    group_consumer_max_size: int
    group_consumer_assignors: tuple[str, ...]
    group_consumer_migration_policy: str
    offset_metadata_max_bytes: int
    offsets_retention_minutes: int
    offsets_retention_check_interval_ms: int
    offsets_topic_num_partitions: int
    offsets_topic_segment_bytes: int

    log_cleaner_enable: bool
    log_cleaner_threads: int
    log_cleaner_backoff_ms: int
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_io_buffer_load_factor: float
    log_cleaner_io_max_bytes_per_second: float

    log_flush_offset_checkpoint_interval_ms: int
    log_retention_check_interval_ms: int
    log_journal_bytes: int
    log_journal_stretch_max_bytes: int
    num_recovery_threads_per_data_dir: int

    append_inline_max_bytes: int
    batch_decompressed_max_bytes: int
    check_compressed_max_bytes: int
    connection_output_max_bytes: int
    connection_frame_timeout_ms: int
    max_partitions: int
    max_open_files: int
    max_waiting_fetches: int
    replication_factor_cap: bool
    metrics_topics_max: int
    reserve_bytes: int
    scrub_bytes_per_second: int
    scrub_interval_ms: int
    stop_timeout_ms: int
    worker_threads: int
    reader_threads: int
    writeback_bytes: int

    # What was given, by name: in the file or on the command line, and by IncrementalAlterConfigs
    # (of this node, then of all nodes). The rest are defaults.
    # Not shown: passwords are among them.
    static: Mapping[str, str] = dataclasses.field(repr=False)
    dynamic: Mapping[str, str] = dataclasses.field(default_factory=dict)
    dynamic_default: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # What options of the command line gave in place of settings: only told, to those who ask for
    # the settings.
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @classmethod
    def from_settings(cls, settings: Mapping[str, str] | None = None) -> BrokerConfig:
        """The configuration with these settings by name, the rest defaults. Raises ConfigError."""
        static = dict(settings or {})
        mistakes = list(_check(static))
        if mistakes:
            raise ConfigError("\n".join(mistakes))
        try:
            values = _values_of(static)
            warnings = [
                *_warnings_about(static),
                *_warnings_about_listeners(values["listeners"]),
            ]
            return cls(**values, static=static, warnings=tuple(warnings))
        except InvalidSetting as mistake:
            raise ConfigError(str(mistake)) from mistake

    def with_dynamic(
        self, *, dynamic: Mapping[str, str], dynamic_default: Mapping[str, str]
    ) -> BrokerConfig:
        """The same with other dynamic settings, which go before the static ones."""
        if dynamic == self.dynamic and dynamic_default == self.dynamic_default:
            return self
        values = _values_of({**self.static, **dynamic_default, **dynamic})
        changed = {attribute_of(name) for name in DYNAMIC_SETTINGS}
        return dataclasses.replace(
            self,
            **{name: values[name] for name in changed},
            dynamic=dict(dynamic),
            dynamic_default=dict(dynamic_default),
        )


def load_config(path: str | None = None, assignments: Iterable[str] = ()) -> BrokerConfig:
    """Reads a properties file, then `name=value` texts over it. Raises ConfigError."""
    settings: dict[str, str] = {}
    if path is not None:
        try:
            # With the mark that editors on Windows put before it.
            with open(path, encoding="utf-8-sig") as file:
                settings.update(parse_properties(file.read()))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: {error}") from error
    for assignment in assignments:
        name, separator, value = assignment.partition("=")
        if not separator:
            raise ConfigError(f"{assignment}: must be NAME=VALUE")
        settings[name.strip()] = value.strip()
    return BrokerConfig.from_settings(settings)


def _check(settings: Mapping[str, str]) -> Iterable[str]:
    """The mistakes in names and values, each a line."""
    for name, text in settings.items():
        setting = broker_setting(name)
        if setting is not None:
            try:
                setting.parse(text)
            except InvalidSetting as mistake:
                yield str(mistake)
        elif not is_passed_over(name):
            yield f"{name}: there is no such setting{_hint(name)}"


def _hint(name: str) -> str:
    if name in INHERITED_FROM:
        return f"; {name} is a topic's, the broker's is {INHERITED_FROM[name]}"
    return nearest(name, [*broker_settings(), *unused_settings()])


def _warnings_about(settings: Mapping[str, str]) -> Iterable[str]:
    """What an operator should know of settings that are valid and not obeyed as in Kafka."""
    unused = sorted(
        name for name in settings if name not in broker_settings() and not is_for_one_listener(name)
    )
    if unused:
        yield f"settings of Kafka's without an effect here: {', '.join(unused)}"
    for name in ("default.replication.factor", "offsets.topic.replication.factor"):
        if int(settings.get(name, 1)) > 1:
            yield f"{name}={settings[name]}: this is one node, topics get one replica"
    if int(settings.get("min.insync.replicas", 1)) > 1:
        yield (
            f"min.insync.replicas={settings['min.insync.replicas']}: there is one replica, so "
            "writes with acks=all are refused with NOT_ENOUGH_REPLICAS"
        )


def _warnings_about_listeners(listeners: Iterable[Listener]) -> Iterable[str]:
    for listener in listeners:
        if (
            listener.sasl is not None
            and listener.tls is None
            and "PLAIN" in listener.sasl.mechanisms
        ):
            yield f"listener {listener.name}: PLAIN without TLS sends passwords in the clear"


def _values_of(settings: Mapping[str, str]) -> dict[str, Any]:
    """The constructor's arguments. Raises InvalidSetting for values that do not go together."""
    table = broker_settings()
    parsed: dict[str, Any] = {
        name: table[name].parse(text) if (text := settings.get(name)) is not None else default
        for name, default in ((name, setting.default_value()) for name, setting in table.items())
    }
    values = {
        attribute: parsed[name]
        for name in table
        if (attribute := attribute_of(name)) in BrokerConfig.__dataclass_fields__
    }
    if "node.id" not in settings and parsed["broker.id"] >= 0:
        values["node_id"] = parsed["broker.id"]
    values["data_directory"] = _data_directory(parsed["log.dirs"] or parsed["log.dir"] or ())
    values["listeners"] = parse_listeners(settings)
    _check_consumer_groups(parsed)
    values["max_connections_per_ip_overrides"] = _parse_counts_by_address(
        parsed["max.connections.per.ip.overrides"]
    )
    return values


def _check_consumer_groups(parsed: Mapping[str, Any]) -> None:
    """Each of these times has a range, which groups with settings of their own have to keep to, and
    the broker's as well."""
    for name in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms"):
        value = parsed[f"group.consumer.{name}"]
        low, high = (parsed[f"group.consumer.{bound}.{name}"] for bound in ("min", "max"))
        if not low <= value <= high:
            raise InvalidSetting(
                f"group.consumer.{name}={value}: must be from group.consumer.min.{name}={low} to "
                f"group.consumer.max.{name}={high}"
            )
    session, heartbeat = (
        parsed[f"group.consumer.{name}"] for name in ("session.timeout.ms", "heartbeat.interval.ms")
    )
    if session <= heartbeat:
        raise InvalidSetting(
            f"group.consumer.session.timeout.ms={session}: must be more than "
            f"group.consumer.heartbeat.interval.ms={heartbeat}"
        )
    if not parsed["group.consumer.assignors"]:
        raise InvalidSetting("group.consumer.assignors: must have one at least")


def _data_directory(directories: tuple[str, ...]) -> str | None:
    if len(directories) > 1:
        raise InvalidSetting(f"log.dirs={','.join(directories)}: one directory is served, no more")
    return directories[0] if directories else None


def _parse_counts_by_address(text: str) -> dict[str, int]:
    counts = {}
    for item in filter(None, text.split(",")):
        address, colon, count = item.strip().rpartition(":")
        if not colon or not count.isdecimal():
            raise InvalidSetting(
                f"max.connections.per.ip.overrides={text}: must be a list of ADDRESS:COUNT"
            )
        counts[address.removeprefix("[").removesuffix("]")] = int(count)
    return counts
