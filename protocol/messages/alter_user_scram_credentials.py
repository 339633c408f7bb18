"""AlterUserScramCredentials (key 51), version 0: adds, replaces and deletes what users log in by
(KIP-554). The password itself is not sent: the client salts and iterates it."""

from __future__ import annotations

from dataclasses import dataclass

from asyncbroker.protocol.schema import BYTES, INT8, INT16, INT32, STRING, array, wire


@dataclass(slots=True)
class ScramCredentialDeletion:
    """A credential to delete: mechanism 1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512."""

    name: str = wire(STRING)
    mechanism: int = wire(INT8)


@dataclass(slots=True)
class ScramCredentialUpsertion:
    """A credential to add, or to put in the place of the one that is there."""

    name: str = wire(STRING)
    mechanism: int = wire(INT8)
    iterations: int = wire(INT32)
    salt: bytes = wire(BYTES)
    salted_password: bytes = wire(BYTES)


@dataclass(slots=True)
class AlterUserScramCredentialsRequest:
    """Several at once; each user changes as a whole or not at all."""

    deletions: list[ScramCredentialDeletion] = wire(array(ScramCredentialDeletion))
    upsertions: list[ScramCredentialUpsertion] = wire(array(ScramCredentialUpsertion))


@dataclass(slots=True)
class AlterUserScramCredentialsResult:
    """What came of one user."""

    user: str = wire(STRING)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+", default=None)


@dataclass(slots=True)
class AlterUserScramCredentialsResponse:
    """All users that were named."""

    throttle_time_ms: int = wire(INT32)
    results: list[AlterUserScramCredentialsResult] = wire(array(AlterUserScramCredentialsResult))
