"""Settings by Kafka's names: what each one is, which values it takes, where its default stands.

The tables are text, one setting to two lines, so that they can be read as a list and cost a start
nothing but the rows it looks at:

    num.partitions  int  1  1..
        Partitions of a topic that is created without a count.

A row has the name, the type, the default (`-` is none, `""` the empty text) and what is allowed:
`.` anything of the type, `1..` and `0..1` ranges, `a|b` a choice (for lists: of each item),
`-1|1..9` several ranges, `~a|b` a choice in any case. `settings_broker.py` has what the broker
obeys, `settings_topic.py` what a topic can be given and `settings_group.py` what a group can,
`settings_unused.py` and `settings_security.py` what Kafka has and this broker accepts without
effect. This file knows nothing of values in force: that is `config.py` for the broker,
`topic_config.py` for topics and `group_settings.py` for groups.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from asyncbroker.settings_broker import BROKER_SETTINGS
from asyncbroker.settings_group import GROUP_SETTINGS, UNUSED_GROUP_SETTINGS
from asyncbroker.settings_topic import TOPIC_SETTINGS, UNUSED_TOPIC_SETTINGS

Value = bool | int | float | str | tuple[str, ...] | None


class SettingType(IntEnum):
    """Types by their codes in DescribeConfigs (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


BITS: Final = {SettingType.SHORT: 16, SettingType.INT: 32, SettingType.LONG: 64}

# Where a share group begins (KIP-932).
OFFSET_RESET: Final = re.compile(
    r"earliest|latest|by_duration:P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?",
)


class InvalidSetting(Exception):
    """A name that is no setting, or a value that the setting does not take."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of a table."""

    name: str
    type: SettingType
    default: str | None
    allowed: str
    documentation: str
    has_effect: bool

    @property
    def is_sensitive(self) -> bool:
        """Whether its value is never shown."""
        return self.type is SettingType.PASSWORD

    def parse(self, text: str) -> Value:
        """The value that `text` stands for; InvalidSetting says what would have been right."""
        text = text.strip()
        try:
            value = _convert(self.type, text)
        except ValueError:
            value = None
        if value is None or not _is_allowed(self, value):
            shown = "(hidden)" if self.is_sensitive else text
            raise InvalidSetting(f"{self.name}={shown}: must be {self.describe_allowed()}")
        return value

    def default_value(self) -> Value:
        """The default, parsed; None when the setting has none."""
        return None if self.default is None else self.parse(self.default)

    def describe_allowed(self) -> str:
        """What the setting takes, in words: `a whole number from 1 to 9, or -1`."""
        if self.type is SettingType.BOOLEAN:
            return "true or false"
        if self.allowed == "throttled":
            return "* or a list of PARTITION:BROKER"
        if self.allowed == "reset":
            return "latest, earliest or by_duration:DURATION, which is P1D or PT30M"
        choices = self.allowed.removeprefix("~").replace("|", ", ")
        if self.type is SettingType.LIST:
            return "a list" if self.allowed == "." else f"a list of {choices}"
        if self.type in (SettingType.INT, SettingType.SHORT, SettingType.LONG, SettingType.DOUBLE):
            kind = "a number" if self.type is SettingType.DOUBLE else "a whole number"
            return kind + _describe_ranges(self)
        return "a text" if self.allowed == "." else f"one of {choices}"


@functools.cache
def broker_settings() -> dict[str, Setting]:
    """The settings that this broker obeys, by name."""
    return _read_table(BROKER_SETTINGS, has_effect=True)


@functools.cache
def topic_settings() -> dict[str, Setting]:
    """The settings of a topic by name, in the order of their names."""
    table = _read_table(TOPIC_SETTINGS, has_effect=True)
    table.update(_read_table(UNUSED_TOPIC_SETTINGS, has_effect=False))
    return dict(sorted(table.items()))


@functools.cache
def group_settings() -> dict[str, Setting]:
    """The settings of a group by name, in the order of their names."""
    table = _read_table(GROUP_SETTINGS, has_effect=True)
    table.update(_read_table(UNUSED_GROUP_SETTINGS, has_effect=False))
    return dict(sorted(table.items()))


@functools.cache
def unused_settings() -> dict[str, Setting]:
    """Kafka's other broker settings: known, checked, and without effect here."""
    # Imported on the first use: most starts never see one of them.
    from asyncbroker.settings_security import SECURITY_SETTINGS
    from asyncbroker.settings_unused import UNUSED_SETTINGS

    return _read_table(UNUSED_SETTINGS + SECURITY_SETTINGS, has_effect=False)


@functools.cache
def unused_dynamic_settings() -> dict[str, bool]:
    """Those without effect that can be set while the broker runs, as in Kafka, besides what topics
    inherit; with each whether it can be set for all brokers at once."""
    from asyncbroker.settings_unused import (
        DYNAMIC_UNUSED_SETTINGS,
        DYNAMIC_UNUSED_SETTINGS_OF_ONE_BROKER,
    )

    return {
        **dict.fromkeys(DYNAMIC_UNUSED_SETTINGS.split(), True),
        **dict.fromkeys(DYNAMIC_UNUSED_SETTINGS_OF_ONE_BROKER.split(), False),
    }


def broker_setting(name: str) -> Setting | None:
    """The broker setting of this name, with or without effect; None for an unknown name."""
    return broker_settings().get(name) or unused_settings().get(name)


def is_passed_over(name: str) -> bool:
    """Whether Kafka would take this name, though it is no row of a table.

    These are settings of earlier releases, internal ones, and those that Kafka hands on to
    listeners and plug-ins by their prefix.
    """
    from asyncbroker.settings_unused import PLUGIN_PREFIXES, RETIRED_SETTINGS

    return name in RETIRED_SETTINGS.split() or name.startswith(PLUGIN_PREFIXES)


def nearest(name: str, names: Iterable[str]) -> str:
    """A hint for an unknown name, ready to be added to a message; empty without a likely one."""
    import difflib  # Only a mistake needs it, and it takes a while to import.

    found = difflib.get_close_matches(name, names, n=1, cutoff=0.7)
    return f"; did you mean {found[0]}?" if found else ""


def attribute_of(name: str) -> str:
    """The attribute that holds a setting: `num.partitions` is `num_partitions`."""
    return name.removeprefix("asyncbroker.").replace(".", "_")


def text_of(value: Value) -> str | None:
    """A value as Kafka prints it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return None if value is None else str(value)


def _read_table(table: str, *, has_effect: bool) -> dict[str, Setting]:
    return {setting.name: setting for setting in _rows(table, has_effect)}


def _rows(table: str, has_effect: bool) -> Iterator[Setting]:
    lines = iter(table.splitlines())
    for line in lines:
        if not line or line.startswith("#"):
            continue
        name, type_name, default, allowed = line.split()
        yield Setting(
            name=name,
            type=SettingType[type_name.upper()],
            default={"-": None, '""': ""}.get(default, default),
            allowed=allowed,
            documentation=next(lines).strip(),
            has_effect=has_effect,
        )


def _convert(type: SettingType, text: str) -> Value:
    """Reads `text` as the type; ValueError when it is none."""
    if type is SettingType.BOOLEAN:
        return {"true": True, "false": False}.get(text.lower())
    if type in BITS:
        # `int` takes more than Kafka does: 1_000 and digits of other scripts.
        if not text.isascii() or "_" in text:
            raise ValueError(text)
        return int(text)
    if type is SettingType.DOUBLE:
        number = float(text)
        return None if math.isnan(number) else number
    if type is SettingType.LIST:
        return tuple(item.strip() for item in text.split(",")) if text else ()
    return text


def _is_allowed(setting: Setting, value: Value) -> bool:
    if isinstance(value, bool):
        return True
    if isinstance(value, (int, float)):
        return _is_in_ranges(setting, value)
    if setting.allowed == ".":
        return True
    if setting.allowed == "throttled" and isinstance(value, tuple):
        return value == ("*",) or all(_is_replica(item) for item in value)
    if setting.allowed == "reset":
        return OFFSET_RESET.fullmatch(str(value)) is not None
    choices = setting.allowed.removeprefix("~").split("|")
    items = value if isinstance(value, tuple) else (str(value),)
    if setting.allowed.startswith("~"):
        choices = [choice.lower() for choice in choices]
        items = tuple(item.lower() for item in items)
    return len(set(items)) == len(items) and all(item in choices for item in items)


def _is_replica(text: str) -> bool:
    partition, _, broker = text.partition(":")
    return partition.isdecimal() and broker.isdecimal()


def _is_in_ranges(setting: Setting, value: float) -> bool:
    bits = BITS.get(setting.type)
    if bits is not None and not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        return False
    return setting.allowed == "." or any(low <= value <= high for low, high in _ranges(setting))


def _ranges(setting: Setting) -> Iterator[tuple[float, float]]:
    for part in setting.allowed.split("|"):
        low, dots, high = part.partition("..")
        yield float(low), float(high) if high else math.inf if dots else float(low)


def _describe_ranges(setting: Setting) -> str:
    if setting.allowed == ".":
        bits = BITS.get(setting.type)
        return f" of {bits} bits" if bits else ""
    words = []
    for low, high in _ranges(setting):
        if low == high:
            words.append(f"{low:g}")
        else:
            words.append(
                f"of {low:.0f} or more" if high == math.inf else f"from {low:.0f} to {high:g}"
            )
    return " " + ", or ".join(reversed(words))
