"""DescribeUserScramCredentials (key 50), version 0.

Behaviour: the mechanisms and iterations of the users named, or of all (KIP-554); never salts and
keys. A name that is no user gets RESOURCE_NOT_FOUND, one that is there twice DUPLICATE_RESOURCE.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from asyncbroker.protocol.scram_credential import SCRAM_NUMBERS

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext
    from asyncbroker.users import Users


def handle(
    broker: Broker, _context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Tells which users there are."""
    users = broker.users
    counts = Counter(user.name for user in request.users or ())
    return DescribeUserScramCredentialsResponse(
        results=[_describe(users, name, counts[name]) for name in counts or users.names()]
    )


def _describe(users: Users, name: str, count: int) -> DescribeUserScramCredentialsResult:
    result = DescribeUserScramCredentialsResult(user=name)
    credentials = users.credentials_of(name)
    if count > 1:
        result.error_code = int(ErrorCode.DUPLICATE_RESOURCE)
        result.error_message = f"user {name} is named more than once"
    elif not credentials:
        result.error_code = int(ErrorCode.RESOURCE_NOT_FOUND)
        result.error_message = f"there is no user {name}"
    else:
        result.credential_infos = [
            CredentialInfo(number, credentials[mechanism].iterations)
            for number, mechanism in SCRAM_NUMBERS.items()
            if mechanism in credentials
        ]
    return result
