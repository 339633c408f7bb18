"""Makes a classic group of its record: stable, or empty."""

from __future__ import annotations

from asyncbroker.coordinator.group import Group, GroupState
from asyncbroker.coordinator.member import Member
from asyncbroker.coordinator.records import NO_TIMESTAMP, GroupMetadataValue


def restored_group(group_id: str, value: GroupMetadataValue) -> Group:
    """The group in the state that its record describes."""
    since_ms = value.current_state_timestamp
    group = Group(group_id, None if since_ms == NO_TIMESTAMP else since_ms)
    group.generation_id = value.generation
    group.protocol_type = value.protocol_type or None
    group.protocol_name = value.protocol
    for member in value.members:
        # Until version 1 there was no rebalance timeout.
        rebalance_timeout_ms = member.rebalance_timeout
        if rebalance_timeout_ms < 0:
            rebalance_timeout_ms = member.session_timeout
        restored = Member(
            member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            session_timeout_ms=member.session_timeout,
            rebalance_timeout_ms=rebalance_timeout_ms,
            protocols={value.protocol or "": member.subscription},
            assignment=member.assignment,
        )
        group.add(restored, value.protocol_type)
    if group.members:
        # Not along the table: it describes what a group lives through, not how it is loaded.
        group.state = GroupState.STABLE
        if value.leader in group.members:
            group.leader_id = value.leader
    group.refresh_subscribed_topics()
    return group
