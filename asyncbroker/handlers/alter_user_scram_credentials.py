"""AlterUserScramCredentials (key 51), version 0.

Behaviour: adds, replaces and deletes credentials (KIP-554). They are durable before the answer, and
hold from the next login on; who has logged in stays so. Each user changes as a whole or not at all:

- an empty or very long name, an empty salt or password, or iterations that are not from 4096 to
  16384 (as Kafka has it): UNACCEPTABLE_CREDENTIAL
- a mechanism that is not SCRAM-SHA-256 or SCRAM-SHA-512: UNSUPPORTED_SASL_MECHANISM
- the same mechanism twice for one user: DUPLICATE_RESOURCE
- the deletion of what is not there: RESOURCE_NOT_FOUND
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from asyncbroker.protocol.scram import credential_of
from asyncbroker.protocol.scram_credential import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SCRAM_NUMBERS,
    ScramCredential,
)

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext
    from asyncbroker.users import CredentialKey, Users

_Item = ScramCredentialDeletion | ScramCredentialUpsertion

NAME_BYTES_MAX: Final = 1024
SALT_BYTES_MAX: Final = 1024


def handle(
    broker: Broker, _context: RequestContext, request: AlterUserScramCredentialsRequest
) -> Coroutine[Any, Any, AlterUserScramCredentialsResponse]:
    """Changes who can log in."""
    return _alter(broker.users, request)


async def _alter(
    users: Users, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    wanted: dict[CredentialKey, ScramCredential | None] = {}
    errors: dict[str, KafkaError | None] = {}
    items: list[_Item] = [*request.deletions, *request.upsertions]
    for item in items:
        errors.setdefault(item.name, None)
        try:
            mechanism, credential = _checked(users, item)
            if (item.name, mechanism) in wanted:
                raise KafkaError(
                    ErrorCode.DUPLICATE_RESOURCE, "a credential is altered twice in one request"
                )
            wanted[item.name, mechanism] = credential
        except KafkaError as error:
            errors[item.name] = errors[item.name] or error
    accepted = {key: value for key, value in wanted.items() if errors[key[0]] is None}
    if accepted:
        try:
            await users.alter(accepted)
        except KafkaError as error:
            errors |= {name: error for name, _ in accepted}
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(
                user=name,
                error_code=0 if error is None else int(error.code),
                error_message=None if error is None else error.message,
            )
            for name, error in errors.items()
        ]
    )


def _checked(users: Users, item: _Item) -> tuple[str, ScramCredential | None]:
    """The mechanism and what becomes of it; raises KafkaError."""
    if not 0 < len(item.name.encode()) <= NAME_BYTES_MAX:
        raise KafkaError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL, f"a user name has 1 to {NAME_BYTES_MAX} bytes"
        )
    mechanism = SCRAM_NUMBERS.get(item.mechanism)
    if mechanism is None:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"there is no SCRAM mechanism {item.mechanism}"
        )
    if isinstance(item, ScramCredentialDeletion):
        if not users.is_known(item.name, mechanism):
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"the user has no {mechanism}")
        return mechanism, None
    if not ITERATIONS_MIN <= item.iterations <= ITERATIONS_MAX:
        raise KafkaError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"iterations are from {ITERATIONS_MIN} to {ITERATIONS_MAX}",
        )
    salt, salted_password = bytes(item.salt), bytes(item.salted_password)
    if not 0 < len(salt) <= SALT_BYTES_MAX or not salted_password:
        raise KafkaError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"a salt has 1 to {SALT_BYTES_MAX} bytes, and a salted password is not empty",
        )
    return mechanism, credential_of(mechanism, salted_password, salt, item.iterations)
