"""Where the value of a setting comes from: its own place, then stand-ins, then the default.

A topic's setting is looked for in the topic, then among the broker's dynamic settings (of this
node, then of all nodes), then among its static ones, then it is the default. At each of these
places of the broker, stand-ins come after the name itself: `log.retention.ms`, then
`log.retention.minutes`, then `log.retention.hours`. What comes first is in force. The list is what
DescribeConfigs calls synonyms, from the first place on that has the name itself: a stand-in alone
is not told, and the setting then seems to have its default, as in Kafka.

A group's setting is looked for in the group, then where the broker's setting of the name with
`group.` before it is.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from asyncbroker.config import DYNAMIC_SETTINGS, BrokerConfig
from asyncbroker.settings import (
    Setting,
    Value,
    broker_setting,
    broker_settings,
    group_settings,
    text_of,
    topic_settings,
    unused_dynamic_settings,
    unused_settings,
)
from asyncbroker.settings_broker import STAND_INS
from asyncbroker.settings_topic import INHERITED_FROM

# The names that stand for one another, by each of them, in the order in which they count.
_FAMILIES: Final = {
    name: family
    for main, stand_ins in STAND_INS.items()
    for family in [(main, *(stand_in for stand_in, _ in stand_ins))]
    for name in family
}


class ConfigSource(IntEnum):
    """Where a value stands, by its code in DescribeConfigs (KIP-226)."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


class Synonym(NamedTuple):
    """One place that has a value."""

    name: str
    value: str
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A setting with the value in force, None for one without any."""

    setting: Setting
    value: str | None
    source: ConfigSource
    synonyms: tuple[Synonym, ...]
    is_read_only: bool


def topic_entry(name: str, overrides: Mapping[str, str], config: BrokerConfig) -> ConfigEntry:
    """A topic's setting, given what was set for the topic itself."""
    setting = topic_settings()[name]
    broker_name = INHERITED_FROM.get(name)
    inherited = tuple(_broker_synonyms(broker_name, config))
    own = overrides.get(name)
    return _entry(setting, own, ConfigSource.TOPIC, broker_name, inherited)


def topic_entries(overrides: Mapping[str, str], config: BrokerConfig) -> Iterator[ConfigEntry]:
    """All settings of a topic."""
    return (topic_entry(name, overrides, config) for name in topic_settings())


def group_entry(name: str, overrides: Mapping[str, str], config: BrokerConfig) -> ConfigEntry:
    """A group's setting, given what was set for the group itself."""
    setting = group_settings()[name]
    broker_name = group_default(name)
    inherited = tuple(_broker_synonyms(broker_name, config))
    if broker_name is None and setting.default is not None:
        # Unlike that of a topic.
        inherited = (Synonym(name, setting.default, ConfigSource.DEFAULT),)
    own = overrides.get(name)
    return _entry(setting, own, ConfigSource.GROUP, broker_name, inherited)


def group_entries(overrides: Mapping[str, str], config: BrokerConfig) -> Iterator[ConfigEntry]:
    """All settings of a group."""
    return (group_entry(name, overrides, config) for name in group_settings())


def group_default(name: str) -> str | None:
    """The broker's setting that groups without this one of their own go by."""
    broker_name = f"group.{name}"
    return None if broker_setting(broker_name) is None else broker_name


def broker_entry(name: str, config: BrokerConfig) -> ConfigEntry:
    """A broker's setting; its name must be one."""
    setting = broker_setting(name)
    assert setting is not None, name
    synonyms = _told(name, _broker_synonyms(name, config))
    value, source = setting.default, ConfigSource.DEFAULT
    if synonyms:
        value, source = synonyms[0].value, synonyms[0].source
    return ConfigEntry(setting, value, source, synonyms, not is_dynamic(name))


def broker_entries(config: BrokerConfig) -> Iterator[ConfigEntry]:
    """All settings of Kafka's and ours, with what is in force on this broker."""
    return (broker_entry(name, config) for name in (*broker_settings(), *unused_settings()))


def dynamic_default_entries(config: BrokerConfig) -> Iterator[ConfigEntry]:
    """What was set for all brokers while they run."""
    for name, value in config.dynamic_default.items():
        synonym = Synonym(name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER)
        entry = broker_entry(name, config)
        yield ConfigEntry(entry.setting, value, synonym.source, (synonym,), is_read_only=False)


def is_dynamic(name: str) -> bool:
    """Whether a broker's setting may be altered while it runs: what topics inherit, a few, and
    those without effect that Kafka takes."""
    return (
        name in DYNAMIC_SETTINGS
        or name in INHERITED_FROM.values()
        or name in unused_dynamic_settings()
    )


def topic_values(
    names: Iterable[str], overrides: Mapping[str, str], config: BrokerConfig
) -> dict[str, Value]:
    """Settings of a topic, parsed. Overrides and configuration have been checked before."""
    values = {}
    for name in names:
        entry = topic_entry(name, overrides, config)
        values[name] = None if entry.value is None else entry.setting.parse(entry.value)
    return values


def _entry(
    setting: Setting,
    own: str | None,
    own_source: ConfigSource,
    broker_name: str | None,
    inherited: tuple[Synonym, ...],
) -> ConfigEntry:
    """Of what a resource has of its own, and what it inherits."""
    if own is not None:
        told = inherited if broker_name is None else _told(broker_name, inherited)
        synonyms = (Synonym(setting.name, own, own_source), *told)
        return ConfigEntry(setting, own, own_source, synonyms, is_read_only=False)
    if not inherited:
        return ConfigEntry(setting, setting.default, ConfigSource.DEFAULT, (), is_read_only=False)
    first = inherited[0]
    if broker_name is None:
        return ConfigEntry(setting, first.value, first.source, inherited, is_read_only=False)
    told = _told(broker_name, inherited)
    source = told[0].source if told else ConfigSource.DEFAULT
    value = _in_units_of(broker_name, first)
    return ConfigEntry(setting, value, source, told, is_read_only=False)


def _told(name: str, synonyms: Iterable[Synonym]) -> tuple[Synonym, ...]:
    """What is told of the places that have a value for a broker's setting."""
    return tuple(itertools.dropwhile(lambda synonym: synonym.name != name, synonyms))


def _broker_synonyms(name: str | None, config: BrokerConfig) -> Iterator[Synonym]:
    """The places of the broker that have a value for one of its settings, or its stand-ins."""
    if name is None:
        return
    names = _FAMILIES.get(name, (name,))
    for source, given in (
        (ConfigSource.DYNAMIC_BROKER, config.dynamic),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, config.dynamic_default),
        (ConfigSource.STATIC_BROKER, {**config.static, **config.options}),
    ):
        for each in names:
            if each in given:
                yield Synonym(each, given[each], source)
    for each in names:
        setting = broker_setting(each)
        if setting is not None and setting.default is not None:
            yield Synonym(each, setting.default, ConfigSource.DEFAULT)


def _in_units_of(name: str, synonym: Synonym) -> str | None:
    """The value of a stand-in, converted: 2 hours are 7200000 ms; negative ones mean no limit."""
    for stand_in, factor in STAND_INS.get(name, ()):
        if synonym.name == stand_in:
            number = int(synonym.value)
            return text_of(-1 if number < 0 else number * factor)
    return synonym.value
