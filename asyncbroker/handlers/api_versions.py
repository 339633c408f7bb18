"""ApiVersions (key 18), versions 0 to 4.

Behaviour: the ranges of `handlers/__init__.py`, whatever was asked before on the connection, and as
often as a client likes to ask. There are no features: none is finalized and none can be raised.

v1   throttle time, always 0 (KIP-124)
v3   flexible, with a response header that is not (KIP-482); the name and version of the client's
     software (KIP-511): one that breaks the rules for them gets INVALID_REQUEST
v4   features that begin at level 0 may be named: there are none

A version that is not served gets UNSUPPORTED_VERSION and the range of this API in a body of v0
(KIP-511). Dispatch answers that: the body of such a request cannot be read.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from asyncbroker.handlers import HANDLERS
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext

CLIENT_SOFTWARE_VERSION: Final = 3
SOFTWARE_NAME: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(
    _broker: Broker, context: RequestContext, request: ApiVersionsRequest
) -> ApiVersionsResponse:
    """Tells what this broker serves."""
    if context.api_version >= CLIENT_SOFTWARE_VERSION and not (
        SOFTWARE_NAME.fullmatch(request.client_software_name)
        and SOFTWARE_NAME.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=int(ErrorCode.INVALID_REQUEST))
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(handler.api.key, handler.advertised.first, handler.advertised.last)
            for handler in HANDLERS.values()
        ]
    )
