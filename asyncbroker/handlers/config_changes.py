"""For requests that change settings: which resources have some, and how a change comes into force.

Not a handler: what AlterConfigs and IncrementalAlterConfigs have in common. They differ in what the
settings of a resource are to be, given what they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from asyncbroker.config_entries import broker_entry, group_entry, is_dynamic, topic_entry
from asyncbroker.group_settings import check_group_id, check_group_settings
from asyncbroker.handlers.describe_configs import BROKER, GROUP, TOPIC, check_broker_name
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.settings import (
    Setting,
    broker_setting,
    group_settings,
    topic_settings,
    unused_dynamic_settings,
)
from asyncbroker.topic_config import check_overrides
from asyncbroker.topic_names import check_topic_name

if TYPE_CHECKING:
    from asyncbroker.broker import Broker


class Present(NamedTuple):
    """What is set for a resource; `in_force` has the value of a setting wherever it comes from."""

    settings: Mapping[str, str]
    setting_of: Callable[[str], Setting | None]
    in_force: Callable[[str], str | None]


class ResourceChange(NamedTuple):
    """A change of one resource: the settings it names, and what is set when it is made."""

    resource_type: int
    resource_name: str
    setting_names: list[str]
    settings_after: Callable[[Present], dict[str, str]]


async def change_resources(
    broker: Broker, changes: Sequence[ResourceChange], *, validate_only: bool
) -> list[KafkaError | None]:
    """Makes each change as a whole or not at all; its error, or None when it holds. With
    `validate_only` nothing is changed."""
    outcomes: list[KafkaError | None] = []
    counts = Counter((change.resource_type, change.resource_name) for change in changes)
    for change in changes:
        try:
            if counts[change.resource_type, change.resource_name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the resource is named twice")
            alter = ALTER.get(change.resource_type)
            if alter is None:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"resources of type {change.resource_type} have no settings here",
                )
            # The new settings follow from the present ones, so that another change of them must
            # not come in between.
            async with broker.altering:
                await alter(broker, change, validate_only)
        except KafkaError as error:
            outcomes.append(error)
        else:
            outcomes.append(None)
    return outcomes


async def _alter_topic(broker: Broker, change: ResourceChange, validate_only: bool) -> None:
    name = change.resource_name
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "topics have no settings in common")
    check_topic_name(name)
    topic = broker.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
    overrides = topic.config.overrides
    present = Present(
        overrides,
        topic_settings().get,
        lambda name: topic_entry(name, overrides, broker.config).value,
    )
    changed = check_overrides(_settings_after(change, present), broker.config)
    if not validate_only:
        await broker.topics.set_overrides(topic, changed)


async def _alter_broker(broker: Broker, change: ResourceChange, validate_only: bool) -> None:
    resource = change.resource_name
    if resource:
        check_broker_name(broker, resource)
    for name in change.setting_names:
        if broker_setting(name) is not None and not is_dynamic(name):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"{name} cannot change while the broker runs"
            )
        if not resource and not unused_dynamic_settings().get(name, True):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"{name} is set for a broker, not for all of them"
            )
    present = Present(
        broker.config.dynamic if resource else broker.config.dynamic_default,
        broker_setting,
        lambda name: broker_entry(name, broker.config).value,
    )
    changed = _settings_after(change, present)
    await broker.set_dynamic_settings(resource, changed, validate_only=validate_only)


async def _alter_group(broker: Broker, change: ResourceChange, validate_only: bool) -> None:
    group_id = change.resource_name
    check_group_id(group_id)
    settings = broker.group_settings.of(group_id)
    present = Present(
        settings,
        group_settings().get,
        lambda name: group_entry(name, settings, broker.config).value,
    )
    changed = check_group_settings(_settings_after(change, present), broker.config)
    if not validate_only:
        await broker.group_settings.set(group_id, changed)


def _settings_after(change: ResourceChange, present: Present) -> dict[str, str]:
    if len(set(change.setting_names)) < len(change.setting_names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a setting is named twice")
    return change.settings_after(present)


ALTER: Final[dict[int, Callable[[Broker, ResourceChange, bool], Coroutine[Any, Any, None]]]] = {
    TOPIC: _alter_topic,
    BROKER: _alter_broker,
    GROUP: _alter_group,
}
