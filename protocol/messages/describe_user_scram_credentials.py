"""DescribeUserScramCredentials (key 50), version 0: who can log in by SCRAM (KIP-554)."""

from __future__ import annotations

from dataclasses import dataclass

from asyncbroker.protocol.schema import INT8, INT16, INT32, STRING, array, wire


@dataclass(slots=True)
class UserName:
    """A user to describe."""

    name: str = wire(STRING)


@dataclass(slots=True)
class DescribeUserScramCredentialsRequest:
    """The users to describe; null or none means all."""

    users: list[UserName] | None = wire(array(UserName), nullable="0+")


@dataclass(slots=True)
class CredentialInfo:
    """A credential without its secrets: mechanism 1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512."""

    mechanism: int = wire(INT8)
    iterations: int = wire(INT32)


@dataclass(slots=True)
class DescribeUserScramCredentialsResult:
    """A user's credentials, or why there are none."""

    user: str = wire(STRING)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+", default=None)
    credential_infos: list[CredentialInfo] = wire(array(CredentialInfo))


@dataclass(slots=True)
class DescribeUserScramCredentialsResponse:
    """The users; or an error for the request as a whole."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable="0+", default=None)
    results: list[DescribeUserScramCredentialsResult] = wire(
        array(DescribeUserScramCredentialsResult)
    )
