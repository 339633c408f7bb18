"""InitProducerId (key 22), versions 0 to 5: the idempotent part.

Behaviour: without a transactional id, a producer gets an id that nobody had before, and epoch 0.
That also goes for one that names the id and epoch it has (v3, KIP-360): as in Kafka, a producer
without transactions bumps its epoch itself, and asks again only to begin anew.

v2   flexible
v3   producer id and epoch of the client (KIP-360): not looked at
v4   PRODUCER_FENCED (KIP-588): not used
v5   TRANSACTION_ABORTABLE (KIP-890): not used

Not done: transactions. A transactional id gets TRANSACTIONAL_ID_AUTHORIZATION_FAILED. The response
has no place for words, and this is the one code that the Java client, librdkafka and the Python
clients all take as final: for others, even UNSUPPORTED_VERSION, librdkafka asks again for ever.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext

logger = logging.getLogger(__name__)


async def handle(
    broker: Broker, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """Waits only when a block of ids is used up."""
    if request.transactional_id is not None:
        if not request.transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        logger.warning(
            "refused transactional id %r of client id %r: this broker has no transactions",
            request.transactional_id,
            context.client_id,
        )
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    return InitProducerIdResponse(
        producer_id=await broker.producer_ids.allocate(), producer_epoch=0
    )
