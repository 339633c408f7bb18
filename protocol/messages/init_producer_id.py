"""InitProducerId (key 22), versions 0 to 5: gives a producer its id and epoch (KIP-98).

v1   on a quota violation the response comes at once and says how long to wait (KIP-219)
v2   flexible (KIP-482)
v3   a producer may name the id and epoch it has, to go on after an error (KIP-360)
v4   PRODUCER_FENCED may be answered (KIP-588)
v5   TRANSACTION_ABORTABLE may be answered (KIP-890)
"""

from __future__ import annotations

from dataclasses import dataclass

from asyncbroker.protocol.schema import INT16, INT32, INT64, STRING, wire


@dataclass(slots=True)
class InitProducerIdRequest:
    """Without a transactional id it asks for a new id; -1 stands for "I have none yet"."""

    transactional_id: str | None = wire(STRING, nullable="0+", default=None)
    transaction_timeout_ms: int = wire(INT32)
    producer_id: int = wire(INT64, "3+", default=-1)
    producer_epoch: int = wire(INT16, "3+", default=-1)


@dataclass(slots=True)
class InitProducerIdResponse:
    """The id, and the epoch to produce with."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    producer_id: int = wire(INT64, default=-1)
    producer_epoch: int = wire(INT16)
