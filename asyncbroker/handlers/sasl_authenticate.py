"""SaslAuthenticate (key 36), versions 0 to 2.

Behaviour: a step of the login that SaslHandshake has begun (KIP-152): one for PLAIN, two for SCRAM.
A login that fails gets SASL_AUTHENTICATION_FAILED after `connection.failed.authentication.delay.ms`
with the same text for every cause, and the connection is closed. Out of turn, or on a listener
without a login, ILLEGAL_SASL_STATE.

v1   how long the login holds (KIP-368): `connections.max.reauth.ms`, or 0 for without end
v2   flexible (KIP-482)
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from asyncbroker.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext


def handle(
    broker: Broker, context: RequestContext, request: SaslAuthenticateRequest
) -> Coroutine[Any, Any, SaslAuthenticateResponse]:
    """Takes the login one step further."""
    return context.login_steps().authenticate(broker.users, context, bytes(request.auth_bytes))
