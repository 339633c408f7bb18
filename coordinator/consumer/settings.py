"""The settings that a group of the consumer protocol may have of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from asyncbroker.coordinator.config import GroupConfig


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """What holds for one group; the name of each setting is in the comment behind it."""

    session_timeout_ms: int  # consumer.session.timeout.ms
    heartbeat_interval_ms: int  # consumer.heartbeat.interval.ms
    assignment_interval_ms: int  # consumer.assignment.interval.ms


SettingsOf = Callable[[str], GroupSettings]
"""The settings of a group by its id."""


def default_settings(config: GroupConfig) -> GroupSettings:
    """The broker's settings, for groups that have none of their own."""
    return GroupSettings(
        config.consumer_session_timeout_ms,
        config.consumer_heartbeat_interval_ms,
        config.consumer_assignment_interval_ms,
    )
