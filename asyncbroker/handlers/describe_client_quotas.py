"""DescribeClientQuotas (key 48), versions 0 to 1.

Behaviour: no entity has quotas, so that no filter finds any (KIP-546). A filter that Kafka would
refuse is refused: INVALID_REQUEST, or UNSUPPORTED_VERSION for a type of entities that is not
`user`, `client-id` or `ip`.

v1   flexible (KIP-482)

Not done: quotas.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext

USER, CLIENT_ID, IP = "user", "client-id", "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

MATCH_EXACT, MATCH_DEFAULT, MATCH_SPECIFIED = 0, 1, 2


def handle(
    _broker: Broker, _context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """Finds nothing."""
    try:
        _check(request.components)
    except KafkaError as error:
        return DescribeClientQuotasResponse(
            error_code=error.code, error_message=error.message, entries=None
        )
    return DescribeClientQuotasResponse()


def _check(components: list[ComponentData]) -> None:
    """Raises KafkaError for a filter that makes no sense."""
    counts = Counter(component.entity_type for component in components)
    for component in components:
        kind = component.entity_type
        if not kind:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "an entity type is empty")
        if counts[kind] > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"entity type {kind} is named twice")
        if kind not in ENTITY_TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"there is no entity type {kind}")
        if component.match_type not in (MATCH_EXACT, MATCH_DEFAULT, MATCH_SPECIFIED):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"no match type {component.match_type}")
        if (component.match_type == MATCH_EXACT) != (component.match is not None):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "an exact match has a name, and no other match has one"
            )
    if IP in counts and len(counts) > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "ip goes with no other entity type")
