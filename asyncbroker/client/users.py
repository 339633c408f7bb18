"""Who can log in at a cluster: describing and changing SCRAM credentials (KIP-554)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from asyncbroker.client.cluster import Cluster
from asyncbroker.client.connection import Deadline
from asyncbroker.client.errors import BrokerError
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from asyncbroker.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from asyncbroker.protocol.scram_credential import SCRAM_NUMBERS


@dataclass(frozen=True, slots=True)
class Credential:
    """What a user is to log in by, with one mechanism."""

    user: str
    mechanism: str
    iterations: int
    salt: bytes = field(repr=False)
    salted_password: bytes = field(repr=False)


def describe_users(cluster: Cluster) -> dict[str, dict[str, int]]:
    """All users: the iterations by mechanism, by user. Raises ClientError."""

    def attempt(deadline: Deadline) -> DescribeUserScramCredentialsResponse:
        connection = cluster.connection(cluster.controller(deadline), deadline)
        request = DescribeUserScramCredentialsRequest(users=None)
        response = connection.request(request, DescribeUserScramCredentialsResponse, deadline)
        if response.error_code != ErrorCode.NONE:
            raise BrokerError(
                response.error_code,
                api="DescribeUserScramCredentials",
                message=response.error_message,
            )
        return response

    return {
        result.user: {
            SCRAM_NUMBERS[info.mechanism]: info.iterations
            for info in result.credential_infos
            if info.mechanism in SCRAM_NUMBERS
        }
        for result in cluster.retrying(attempt).results
    }


def alter_users(
    cluster: Cluster,
    *,
    upserted: Sequence[Credential] = (),
    deleted: Sequence[tuple[str, str]] = (),
) -> None:
    """Adds or replaces credentials, and deletes others by user and mechanism. Raises ClientError
    for the first that could not be changed.

    Each has a request of its own: Kafka refuses one that is about a user twice, also if the
    mechanisms differ.
    """
    numbers = {mechanism: number for number, mechanism in SCRAM_NUMBERS.items()}
    requests = [
        AlterUserScramCredentialsRequest([ScramCredentialDeletion(user, numbers[mechanism])], [])
        for user, mechanism in deleted
    ]
    for each in upserted:
        upsertion = ScramCredentialUpsertion(
            each.user, numbers[each.mechanism], each.iterations, each.salt, each.salted_password
        )
        requests.append(AlterUserScramCredentialsRequest([], [upsertion]))
    for request in requests:
        _alter(cluster, request)


def _alter(cluster: Cluster, request: AlterUserScramCredentialsRequest) -> None:
    def attempt(deadline: Deadline) -> None:
        connection = cluster.connection(cluster.controller(deadline), deadline)
        response = connection.request(request, AlterUserScramCredentialsResponse, deadline)
        for result in response.results:
            if result.error_code != ErrorCode.NONE:
                raise BrokerError(
                    result.error_code,
                    api="AlterUserScramCredentials",
                    subject=f"user {result.user}",
                    message=result.error_message,
                )

    cluster.retrying(attempt)
