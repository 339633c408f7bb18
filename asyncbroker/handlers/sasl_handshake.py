"""SaslHandshake (key 17), versions 0 to 1.

Behaviour: chooses the mechanism of the login that follows (KIP-43); every answer has the mechanisms
that are enabled. One that is not gets UNSUPPORTED_SASL_MECHANISM, and the connection is closed. On
a connection that has logged in it begins another login (KIP-368), at most once a second. Out of
turn, or on a listener without a login, ILLEGAL_SASL_STATE.

v0   the tokens that follow are bare, without Kafka's headers
v1   the tokens that follow are in SaslAuthenticate (KIP-152)

Not done: GSSAPI, OAUTHBEARER. It has no further versions, and must not get any (KAFKA-9577).
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from asyncbroker.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext


def handle(
    _broker: Broker, context: RequestContext, request: SaslHandshakeRequest
) -> Coroutine[Any, Any, SaslHandshakeResponse]:
    """Begins a login."""
    return context.login_steps().handshake(context, request.mechanism)
