"""The topics in a consumer's metadata: all that the coordinator reads of it.

Metadata is opaque to the protocol of groups. But offsets of topics that nobody in the group reads
any more may expire, and a static member that comes back with other topics needs a rebalance. Both
need the list of topics, which every version of a consumer's subscription begins with. As in Kafka,
only what version 0 has is read, whatever version it says: some clients get later fields wrong.
"""

from __future__ import annotations

from typing import Final

from asyncbroker.protocol.codec import codec_for
from asyncbroker.protocol.consumer_protocol import ConsumerProtocolSubscription
from asyncbroker.protocol.errors import ProtocolError

_VERSION_BYTES: Final = 2


def topics_of(metadata: bytes) -> frozenset[str] | None:
    """The subscribed topics; None when the bytes are not a consumer's subscription."""
    codec = codec_for(ConsumerProtocolSubscription, 0, False)
    try:
        subscription, _ = codec.decode_prefix(metadata, _VERSION_BYTES)
    except ProtocolError:
        return None
    return frozenset(subscription.topics)
