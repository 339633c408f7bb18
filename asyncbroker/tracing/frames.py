"""Frames as they went over the wire, decoded from outside: by whoever is neither client nor broker.

A frame here is without its length field. Any bytes may come: what cannot be decoded is a
`ProtocolError` that says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import Any, Final

from asyncbroker.protocol.api import API_BY_KEY
from asyncbroker.protocol.errors import ErrorCode, ProtocolError
from asyncbroker.protocol.headers import decode_request_header, decode_response_header
from asyncbroker.tracing.api_names import api_name

FRAME_BYTES_MAX: Final = 8 * 1024 * 1024
"""Larger frames are neither decoded nor kept; only their sizes are told."""

ITEMS_MAX: Final = 250_000
"""How many array items a message may have in all to be decoded."""

API_VERSIONS_KEY: Final = 18

TEXT_BEGINS_AT: Final = 32
"""Neither an old API's key nor any version is as large, and no character that is seen is smaller:
this tells requests from the bare tokens that follow a SaslHandshake of version 0."""

_HEAD: Final = Struct(">hhih")
_INT16: Final = Struct(">h")


@dataclass(frozen=True, slots=True)
class Head:
    """How every request begins. What of a client id is not UTF-8 is replaced."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str

    def __str__(self) -> str:
        return f"{api_name(self.api_key)} v{self.version}"


def read_head(frame: bytes | bytearray | memoryview) -> Head:
    """The head of a request, whether its API is known or not. Raises ProtocolError without a word
    of what the bytes are if they may be a secret."""
    try:
        api_key, version, correlation_id, length = _HEAD.unpack_from(frame)
    except StructError:
        raise ProtocolError(f"a request of {len(frame)} bytes has no header") from None
    if not (0 <= version < TEXT_BEGINS_AT or 0 <= api_key < TEXT_BEGINS_AT):
        raise ProtocolError("no request: a token of SASL, perhaps")
    client_id = bytes(frame[_HEAD.size : _HEAD.size + max(0, length)])
    return Head(api_key, version, correlation_id, client_id.decode("utf-8", "replace"))


def decode_request(head: Head, frame: bytes | bytearray | memoryview) -> Any:
    """The request itself."""
    api = API_BY_KEY.get(head.api_key)
    if api is None or head.version not in api.versions:
        raise ProtocolError(f"there is no schema of {head}")
    _, position = decode_request_header(frame)
    message, _ = api.request_codec(head.version).decode_prefix(frame, position, items_max=ITEMS_MAX)
    return message


def decode_response(head: Head, frame: bytes | bytearray | memoryview) -> Any:
    """The response to a request with this head. To an ApiVersions request in a version that the
    broker lacks it is in version 0 (KIP-511)."""
    api = API_BY_KEY.get(head.api_key)
    version = head.version
    if head.api_key == API_VERSIONS_KEY and _is_unsupported_version(frame):
        version = 0
    if api is None or version not in api.versions:
        raise ProtocolError(f"there is no schema of {head}")
    _, position = decode_response_header(head.api_key, version, frame)
    message, _ = api.response_codec(version).decode_prefix(frame, position, items_max=ITEMS_MAX)
    return message


def expects_response(head: Head, request: Any) -> bool:
    """Whether there will be a response: not to a Produce with acks=0."""
    return head.api_key != 0 or request is None or bool(request.acks != 0)


def _is_unsupported_version(frame: bytes | bytearray | memoryview) -> bool:
    if len(frame) < 6:
        return False
    (code,) = _INT16.unpack_from(frame, 4)
    return bool(code == ErrorCode.UNSUPPORTED_VERSION)
