"""SaslAuthenticate (key 36), versions 0 to 2: one step of a login (KIP-152).

v1   how long the login holds (KIP-368)
v2   flexible (KIP-482)
"""

from __future__ import annotations

from dataclasses import dataclass

from asyncbroker.protocol.schema import BYTES, INT16, INT64, STRING, wire


@dataclass(slots=True)
class SaslAuthenticateRequest:
    """The client's token, in the mechanism's own format."""

    auth_bytes: bytes = wire(BYTES)


@dataclass(slots=True)
class SaslAuthenticateResponse:
    """The broker's token; the first one without an error after the client's last says that the
    login is done, and for how long (0: without end)."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+", default=None)
    auth_bytes: bytes = wire(BYTES)
    session_lifetime_ms: int = wire(INT64, "1+", ignorable=True)
