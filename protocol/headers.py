"""Request and response headers: what precedes every body.

    request v1:  int16 api key, int16 api version, int32 correlation id, nullable string client id
    request v2:  the same, then tagged fields              (when the api version is flexible)
    response v0: int32 correlation id
    response v1: the same, then tagged fields              (when the api version is flexible)

Two oddities. The client id is never a compact string, not even in v2, so that a broker can read
the header of a version that it does not know. And the response to ApiVersions always has header v0:
the client cannot know yet which versions the broker speaks, so the broker may answer in an older
one than was asked, and the client has to be able to read that (KIP-511).

The functions are written out by hand, since every request pays for them; `RequestHeader` has a
table all the same, which the tests hold them equal to.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import Final

from asyncbroker.protocol.api import APIS
from asyncbroker.protocol.errors import ProtocolError
from asyncbroker.protocol.primitives import decode_text
from asyncbroker.protocol.schema import INT16, INT32, STRING, Buffer, wire
from asyncbroker.protocol.varints import read_uvarint, skip_tagged_fields

API_VERSIONS_KEY: Final = 18

_REQUEST_START: Final = Struct(">hhih")
_RESPONSE_V0: Final = Struct(">i")
_RESPONSE_V1: Final = Struct(">iB")

_FLEXIBLE_FROM: Final = {api.key: api.flexible_from for api in APIS}


@dataclass(slots=True)
class RequestHeader:
    """Who asks for what. The response carries the same correlation id."""

    api_key: int = wire(INT16)
    api_version: int = wire(INT16)
    correlation_id: int = wire(INT32)
    client_id: str | None = wire(STRING, nullable="0+", default=None, never_compact=True)


def decode_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """The header at the start of a request, and where the body starts.

    The version may be one that we do not serve: the header can be read all the same, and an
    ApiVersions request must be answered even then. Raises ProtocolError for an unknown API, as its
    header might have any form.
    """
    try:
        api_key, api_version, correlation_id, length = _REQUEST_START.unpack_from(frame)
    except StructError:
        raise ProtocolError(f"request of {len(frame)} bytes has no whole header") from None
    flexible_from = _FLEXIBLE_FROM.get(api_key)
    if flexible_from is None:
        raise ProtocolError(f"unknown api key {api_key} (version {api_version})")
    position = _REQUEST_START.size
    client_id = None
    if length >= 0:
        position += length
        if position > len(frame):
            raise ProtocolError(f"client id of {length} bytes does not fit in the request")
        client_id = decode_client_id(frame[position - length : position])
    elif length != -1:
        raise ProtocolError(f"client id has length {length}")
    if api_version >= flexible_from:
        position = _skip_tagged_fields("request header", frame, position)
    return RequestHeader(api_key, api_version, correlation_id, client_id), position


def decode_client_id(data: Buffer) -> str:
    """A client id, whatever its bytes are, if it fits into the records of groups."""
    client_id = decode_text(data)
    if client_id is None:
        raise ProtocolError(f"client id of {len(data)} bytes is not UTF-8")
    return client_id


def encode_request_header(header: RequestHeader) -> bytes:
    """The bytes of a request header, in the version that goes with the API's version."""
    client_id = None if header.client_id is None else header.client_id.encode()
    start = _REQUEST_START.pack(
        header.api_key,
        header.api_version,
        header.correlation_id,
        -1 if client_id is None else len(client_id),
    )
    is_flexible = header.api_version >= _FLEXIBLE_FROM[header.api_key]
    return start + (client_id or b"") + (b"\0" if is_flexible else b"")


def encode_response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    """The bytes of the header of the response to a request of this API and version."""
    if _has_tagged_fields(api_key, api_version):
        return _RESPONSE_V1.pack(correlation_id, 0)
    return _RESPONSE_V0.pack(correlation_id)


def decode_response_header(api_key: int, api_version: int, buffer: Buffer) -> tuple[int, int]:
    """The correlation id at the start of a response, and where the body starts."""
    try:
        (correlation_id,) = _RESPONSE_V0.unpack_from(buffer)
    except StructError:
        raise ProtocolError(f"response of {len(buffer)} bytes has no whole header") from None
    position = _RESPONSE_V0.size
    if _has_tagged_fields(api_key, api_version):
        position = _skip_tagged_fields("response header", buffer, position)
    return correlation_id, position


def _has_tagged_fields(api_key: int, api_version: int) -> bool:
    """Whether a response has header v1."""
    return api_version >= _FLEXIBLE_FROM[api_key] and api_key != API_VERSIONS_KEY


def _skip_tagged_fields(where: str, buffer: Buffer, position: int) -> int:
    """The position after the tagged fields of a header, of which Kafka has defined none so far."""
    try:
        if buffer[position] == 0:
            return position + 1
        count, position = read_uvarint(buffer, position)
        return skip_tagged_fields(where, buffer, position, count)
    except IndexError:
        raise ProtocolError(f"{where} ends early") from None
