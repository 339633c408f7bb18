"""Commits the offsets of a stream's finished batches for a group, so that others see its lag.

Nothing in the stream depends on them: it goes on from its checkpoint. So what stands against a
commit for the moment (a coordinator that moves, a group that has members) is a warning, and the
next batch commits as well.
"""

from __future__ import annotations

import logging
from typing import Final

from asyncbroker.client.cluster import Cluster
from asyncbroker.client.errors import BrokerError, ClientError
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.spark.stream_offsets import Offsets

logger = logging.getLogger(__name__)

_HAS_MEMBERS: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)
"""What Kafka answers to a commit of somebody who is no member, while others are."""


class Committer:
    """The commits of one stream for one group."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._committed: Offsets | None = None
        # What was warned of last: a stream may try several times a second.
        self._trouble = ""

    def commit(self, cluster: Cluster, end: Offsets) -> None:
        """Says that everything before `end` is done. Raises ClientError for what will not pass by
        itself, such as a group that this user may not use."""
        # A stream starts in a process of its own, and most of them commit to no group.
        from asyncbroker.client.groups import CommittedOffset, commit_offsets

        if end == self._committed:
            return
        committed = {partition: CommittedOffset(offset) for partition, offset in end.items()}
        try:
            commit_offsets(cluster, self._group, committed)
        except ClientError as error:
            self._warn(_reason(error, cluster))
            return
        self._committed = end
        self._trouble = ""

    def _warn(self, reason: str) -> None:
        if reason != self._trouble:
            self._trouble = reason
            logger.warning("offsets of group '%s' were not committed: %s", self._group, reason)


def _reason(error: ClientError, cluster: Cluster) -> str:
    """Why a commit has failed; raises the error if the next one will fail as well."""
    if isinstance(error, BrokerError) and error.code in _HAS_MEMBERS:
        return (
            "it has members, and Kafka takes commits from nobody else then. The stream goes on and "
            "commits again when they are gone; 'kafka.group.id' should be a group of its own. "
            f"({error})"
        )
    if not cluster.may_pass(error):
        raise error
    return str(error)
