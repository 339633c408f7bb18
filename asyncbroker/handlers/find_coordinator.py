"""FindCoordinator (key 10), versions 0 to 5.

Behaviour: this broker coordinates every group, at the address of the listener that the request came
in on. The first group that is looked for creates `__consumer_offsets`, and the answer waits for it;
Kafka answers COORDINATOR_NOT_AVAILABLE meanwhile, which costs each client a retry.

v1   key types (KIP-98): 0 for groups, 1 for transactional ids
v3   flexible (KIP-482)
v4   several keys in one request (KIP-699), each with an error of its own
v5   TRANSACTION_ABORTABLE (KIP-890): not used

Not done: transactions. A transactional id gets TRANSACTIONAL_ID_AUTHORIZATION_FAILED, the one code
that the Java client, librdkafka and the Python clients all take as final; for any other librdkafka
asks again until the application's own timeout. It is refused here and not by InitProducerId alone,
since this response has room for words, which librdkafka shows: "this broker has no transactions".
The price is kafkajs, which makes "Failed to find group coordinator" of every error here, at once
and for good all the same. Share groups (key type 2, v6): INVALID_REQUEST.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from asyncbroker.handlers.each import each
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext

logger = logging.getLogger(__name__)

GROUP: Final = 0
TRANSACTION: Final = 1

BATCHED_FROM: Final = 4


def handle(
    broker: Broker, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse | Coroutine[Any, Any, FindCoordinatorResponse]:
    """Names this broker as the coordinator of each key."""
    is_batched = context.api_version >= BATCHED_FROM
    keys = request.coordinator_keys if is_batched else [request.key]
    found = each(keys, lambda key: _find(broker, context, request.key_type, key), _failed)
    if isinstance(found, list):
        return _response(found, is_batched=is_batched)
    return _answer_later(found, is_batched=is_batched)


def _find(
    broker: Broker, context: RequestContext, key_type: int, key: str
) -> Coordinator | Awaitable[Coordinator]:
    """The coordinator of one key."""
    if key_type == TRANSACTION:
        logger.warning(
            "refused transactional id %r of client id %r: this broker has no transactions",
            key,
            context.client_id,
        )
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "this broker has no transactions"
        )
    if key_type != GROUP:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"no coordinator has the type {key_type}")
    here = Coordinator(
        key=key, node_id=broker.node_id, host=context.listener.host, port=context.listener.port
    )
    creation = broker.groups.find(key)
    return here if creation is None else _after(creation, here)


async def _after(creation: Awaitable[None], here: Coordinator) -> Coordinator:
    await creation
    return here


async def _answer_later(
    found: Awaitable[list[Coordinator]], *, is_batched: bool
) -> FindCoordinatorResponse:
    return _response(await found, is_batched=is_batched)


def _failed(key: str, error: KafkaError) -> Coordinator:
    message = error.message or error.code.name
    return Coordinator(
        key=key, node_id=-1, port=-1, error_code=int(error.code), error_message=message
    )


def _response(found: list[Coordinator], *, is_batched: bool) -> FindCoordinatorResponse:
    if is_batched:
        return FindCoordinatorResponse(coordinators=found)
    only = found[0]
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )
