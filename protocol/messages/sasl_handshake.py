"""SaslHandshake (key 17), versions 0 to 1: by which mechanism a client wants to log in (KIP-43).

v0   the exchange that follows is bare: sizes and tokens, without Kafka's headers
v1   the exchange that follows is SaslAuthenticate (KIP-152)

It is never flexible: a client sends it before it knows the broker's versions (KAFKA-9577).
"""

from __future__ import annotations

from dataclasses import dataclass

from asyncbroker.protocol.schema import INT16, STRING, array, wire


@dataclass(slots=True)
class SaslHandshakeRequest:
    """The mechanism by its name, as in `SCRAM-SHA-256`."""

    mechanism: str = wire(STRING)


@dataclass(slots=True)
class SaslHandshakeResponse:
    """The mechanisms that are enabled, whether the one asked for is among them or not."""

    error_code: int = wire(INT16)
    mechanisms: list[str] = wire(array(STRING))
