"""ConsumerGroupDescribe (key 69), versions 0 to 1.

Behaviour: groups of the consumer protocol with their epochs, members, assignments and targets
(KIP-848). A group that nobody knows, or that is a classic one, is GROUP_ID_NOT_FOUND: clients then
ask DescribeGroups.

v1   whether a member speaks the classic protocol (KIP-1099)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncbroker.authorized_operations import GROUP_OPERATIONS
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
)

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext


def handle(
    broker: Broker, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """Describes groups as they are at this moment."""
    response = ConsumerGroupDescribeResponse()
    for group_id in request.group_ids:
        try:
            if not group_id:
                raise KafkaError(ErrorCode.INVALID_GROUP_ID)
            described = broker.groups.describe_consumer_group(group_id)
        except KafkaError as error:
            described = DescribedConsumerGroup(
                group_id=group_id, error_code=error.code, error_message=error.message
            )
        else:
            if request.include_authorized_operations:
                described.authorized_operations = GROUP_OPERATIONS
        response.groups.append(described)
    return response
