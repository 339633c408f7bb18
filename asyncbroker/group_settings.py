"""The settings that single groups have of their own: kept with the metadata, checked before.

A group need not exist to have some, and keeps them when it is deleted, as in Kafka. What a consumer
group goes by follows from them in `groups.py`; settings of other kinds of groups are kept only.

Each of them lies in a range that the broker's settings give, as
`group.consumer.min.session.timeout.ms` does. When that has become narrower since, the group goes by
the nearest value that is left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from asyncbroker.config_entries import broker_entry, group_entry
from asyncbroker.metadata_store import SetGroupConfigs
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.settings import InvalidSetting, broker_setting, group_settings, nearest

if TYPE_CHECKING:
    from asyncbroker.config import BrokerConfig
    from asyncbroker.metadata_writer import MetadataWriter

# Kinds of groups, each of whose sessions must be longer than the time between two heartbeats.
KINDS: Final = ("consumer", "share", "streams")

# Bounds that are not named like the others.
BOUNDS: Final = {"streams.num.standby.replicas": (None, "group.streams.max.standby.replicas")}


class GroupSettings:
    """What is set for groups; all methods are for the event loop's thread."""

    def __init__(
        self,
        stored: Mapping[str, Mapping[str, str]],
        metadata: MetadataWriter,
        on_changed: Callable[[str], None],
    ) -> None:
        self._settings = dict(stored)
        self._metadata = metadata
        self._on_changed = on_changed

    def group_ids(self) -> list[str]:
        """The groups that have settings of their own."""
        return list(self._settings)

    def of(self, group_id: str) -> Mapping[str, str]:
        """What is set for a group."""
        return self._settings.get(group_id, {})

    async def set(self, group_id: str, settings: Mapping[str, str]) -> None:
        """Replaces a group's settings, which have been checked. Raises KafkaError when that could
        not be made durable; otherwise they hold from the next request of a member on."""
        change = SetGroupConfigs(group_id, dict(settings))
        await self._metadata.write(change, then=lambda: self._follow(change))

    def _follow(self, change: SetGroupConfigs) -> None:
        if change.configs:
            self._settings[change.group_id] = change.configs
        else:
            self._settings.pop(change.group_id, None)
        self._on_changed(change.group_id)


def check_group_id(group_id: str) -> None:
    """Raises KafkaError(INVALID_REQUEST) for the name of no group."""
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "groups have no settings in common")


def check_group_settings(settings: Mapping[str, str], config: BrokerConfig) -> dict[str, str]:
    """The settings, if a group can have them; KafkaError(INVALID_CONFIG) otherwise."""
    checked: dict[str, str] = {}
    for name, text in settings.items():
        setting = group_settings().get(name)
        if setting is None:
            raise _invalid(f"{name}: a group has no such setting{nearest(name, group_settings())}")
        try:
            value = setting.parse(text)
        except InvalidSetting as mistake:
            raise _invalid(str(mistake)) from mistake
        if isinstance(value, int):
            _check_range(name, value, config)
        checked[name] = text.strip()
    for kind in KINDS:
        _check_session(kind, checked, config)
    return checked


def value_in_force(name: str, settings: Mapping[str, str], config: BrokerConfig) -> int:
    """A number that a group goes by: what is set, as near to it as the broker allows today."""
    value = int(group_entry(name, settings, config).value or "")
    _, low, _, high = _range_of(name, config)
    if low is not None:
        value = max(value, low)
    return value if high is None else min(value, high)


def _check_range(name: str, value: int, config: BrokerConfig) -> None:
    low_name, low, high_name, high = _range_of(name, config)
    if low is not None and value < low:
        raise _invalid(f"{name}={value}: must not be less than {low_name}={low}")
    if high is not None and value > high:
        raise _invalid(f"{name}={value}: must not be more than {high_name}={high}")


def _range_of(
    name: str, config: BrokerConfig
) -> tuple[str | None, int | None, str | None, int | None]:
    """The broker's settings between which a group's has to be, with their values."""
    kind, _, rest = name.partition(".")
    bounds = BOUNDS.get(name, (f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}"))
    low_name, high_name = bounds
    return low_name, _bound(low_name, config), high_name, _bound(high_name, config)


def _bound(name: str | None, config: BrokerConfig) -> int | None:
    if name is None or broker_setting(name) is None:
        return None
    value = broker_entry(name, config).value
    return None if value is None else int(value)


def _check_session(kind: str, settings: Mapping[str, str], config: BrokerConfig) -> None:
    session_name, heartbeat_name = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
    session = value_in_force(session_name, settings, config)
    heartbeat = value_in_force(heartbeat_name, settings, config)
    if session <= heartbeat:
        raise _invalid(f"{session_name}={session}: must be more than {heartbeat_name}={heartbeat}")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)
