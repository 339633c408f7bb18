"""ListGroups (key 16), versions 0 to 5.

Behaviour: all groups that this broker coordinates, also those that only store offsets (their
protocol type is empty). Raises COORDINATOR_LOAD_IN_PROGRESS as long as any are being loaded.

v3   flexible (KIP-482)
v4   states, and a filter by them (KIP-518)
v5   types, and a filter by them (KIP-848): "classic" and "consumer"
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncbroker.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext


def handle(
    broker: Broker, context: RequestContext, request: ListGroupsRequest
) -> ListGroupsResponse:
    """Lists the groups that pass the filters."""
    groups = broker.groups.list_groups(request.states_filter, request.types_filter)
    return ListGroupsResponse(groups=groups)
