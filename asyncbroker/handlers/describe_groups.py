"""DescribeGroups (key 15), versions 0 to 6.

Behaviour: the state, members and assignments of each group, as opaque bytes. The members' metadata
and the name of the protocol are there only while the group is Stable, as in Kafka. A group that
nobody knows is "Dead", and so is one of the consumer protocol: that is for ConsumerGroupDescribe.

v3   authorized operations (KIP-430): all that there are, as there is no authorizer
v4   instance ids of static members (KIP-345)
v5   flexible (KIP-482)
v6   a "Dead" group is GROUP_ID_NOT_FOUND as well (KIP-1043), with a message; before it was no error
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from asyncbroker.authorized_operations import GROUP_OPERATIONS
from asyncbroker.coordinator.group import GroupState
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext

UNKNOWN_GROUP_VERSION: Final = 6


def handle(
    broker: Broker, context: RequestContext, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    """Describes groups as they are at this moment."""
    response = DescribeGroupsResponse()
    for group_id in request.groups:
        try:
            described = broker.groups.describe(group_id)
        except KafkaError as error:
            described = DescribedGroup(group_id=group_id, error_code=int(error.code))
        else:
            is_dead = described.group_state == GroupState.DEAD.value
            if is_dead and context.api_version >= UNKNOWN_GROUP_VERSION:
                described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            if request.include_authorized_operations and described.error_code == ErrorCode.NONE:
                described.authorized_operations = GROUP_OPERATIONS
        response.groups.append(described)
    return response
