"""DescribeAcls (key 29), versions 1 to 3.

Behaviour: SECURITY_DISABLED, as a Kafka broker without an authorizer answers (KIP-140), which is
how consoles learn that there is nothing to show.

v2   flexible (KIP-482)
v3   users as resources (KIP-373)

Not done: access control.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext


def handle(
    _broker: Broker, _context: RequestContext, _request: DescribeAclsRequest
) -> DescribeAclsResponse:
    """Says that there is no access control."""
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED,
        # Tools show it as it is, and some look for Kafka's words.
        error_message="No Authorizer is configured on the broker",
    )
