"""Which names topics can have.

Kafka's rules: 1 to 249 of `a-z A-Z 0-9 . _ -`, neither `.` nor `..`. Names that differ only in `.`
and `_` cannot both exist, since metrics and other tools write one for the other.
"""

from __future__ import annotations

import re
from typing import Final

from asyncbroker.protocol.errors import ErrorCode, KafkaError

NAME_LENGTH_MAX: Final = 249
LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")

GROUP_METADATA_TOPIC: Final = "__consumer_offsets"
INTERNAL_TOPICS: Final = frozenset(
    {GROUP_METADATA_TOPIC, "__transaction_state", "__share_group_state"}
)

# The log in which KRaft keeps what our metadata store holds; its directory is never a topic's.
CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"


def check_topic_name(name: str) -> None:
    """Raises KafkaError(INVALID_TOPIC_EXCEPTION) for what cannot be a topic's name."""
    if not name:
        reason = "it is empty"
    elif name in (".", ".."):
        reason = "it may not be . or .."
    elif len(name) > NAME_LENGTH_MAX:
        reason = f"it is longer than {NAME_LENGTH_MAX} characters"
    elif not LEGAL_NAME.fullmatch(name):
        reason = "it has characters other than a-z A-Z 0-9 . _ -"
    else:
        return
    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic name {name[:300]!r}: {reason}")


def collision_key(name: str) -> str:
    """Equal for two names that cannot both exist."""
    return name.replace(".", "_")
