"""What can go wrong for a client, each with a text that a person can act on."""

from __future__ import annotations

from typing import Final

from asyncbroker.protocol.errors import ErrorCode

RETRIABLE: Final = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)
"""Codes that may be gone when asked again, with fresh metadata.

UNKNOWN_TOPIC_OR_PARTITION is not among them: Kafka's clients wait for such a topic to appear, but
whoever sits at a command line, or has planned a Spark job, wants to be told.
"""


class ClientError(Exception):
    """Anything that keeps the client from doing what it was asked to."""


class BrokerUnreachable(ClientError):
    """No connection could be made."""


class AuthenticationFailed(ClientError):
    """The broker did not let us log in, or is not the one that it says it is."""


class ConnectionLost(ClientError):
    """The connection ended before the response was there."""


class RequestTimedOut(ClientError):
    """The deadline passed; whether the broker has acted on the request is not known."""


class UnsupportedVersion(ClientError):
    """The broker and this client have no version of an API in common."""


class BrokerError(ClientError):
    """The broker answered with an error code."""

    def __init__(
        self,
        code: int,
        *,
        api: str,
        subject: str = "",
        broker: str = "",
        message: str | None = None,
        is_retriable: bool | None = None,
    ) -> None:
        self.code = error_code(code)
        self.api = api
        self.subject = subject
        # Whether asking again may help. Some callers know better than the table.
        self.is_retriable = self.code in RETRIABLE if is_retriable is None else is_retriable
        text = f"{self.code.name}: {message}" if message else self.code.name
        about = f" for {subject}" if subject else ""
        place = f" at broker {broker}" if broker else ""
        super().__init__(f"{api}{about} failed{place}: {text}")


def error_code(code: int) -> ErrorCode:
    """The code by name; one that is newer than this client counts as UNKNOWN_SERVER_ERROR."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
