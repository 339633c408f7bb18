"""ConsumerGroupHeartbeat (key 68), versions 0 to 1.

Behaviour: joins a group of the consumer protocol, stays in it, and leaves it; the broker assigns
the partitions (KIP-848). Who may do what is in `coordinator/consumer/heartbeat.py`, who gets which
partitions in `reconcile.py` and `assignors.py` beside it. Waits for the disk when the member's
state changes, and not otherwise. A classic group with members becomes a consumer group when the
first member of this protocol joins, unless `group.consumer.migration.policy` forbids that.

v0   the broker makes an id for a member that joins without one
v1   the member brings its own id (KIP-1082), and may subscribe by a regular expression in the
     syntax of RE2, which needs the package google-re2: INVALID_REGULAR_EXPRESSION without it

Kafka resolves a new regular expression in the background, and a member gets its partitions by a
later heartbeat; here it gets them by the one that brings the expression.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from asyncbroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext


def handle(
    broker: Broker, context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse | Awaitable[ConsumerGroupHeartbeatResponse]:
    """Has the group hear of the member, and the member of the group."""
    return broker.groups.consumer_heartbeat(context, request)
