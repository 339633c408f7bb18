"""The DescribeClientQuotas handler: there are no quotas, and filters are those of Kafka."""

from __future__ import annotations

import pytest

from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from asyncbroker.tests.data_path_harness import under_test

EXACT, DEFAULT, ANY = 0, 1, 2


async def ask(
    *components: tuple[str, int, str | None], version: int = 1
) -> DescribeClientQuotasResponse:
    async with under_test() as test:
        request = DescribeClientQuotasRequest([ComponentData(*each) for each in components])
        response: DescribeClientQuotasResponse = await test.ask(request, version)
        return response


@pytest.mark.parametrize("version", range(2))
@pytest.mark.parametrize(
    "components",
    [
        [],
        [("user", EXACT, "alice"), ("client-id", DEFAULT, None)],
        [("user", ANY, None)],
        [("ip", EXACT, "10.0.0.1")],
    ],
)
async def test_no_filter_finds_any(
    components: list[tuple[str, int, str | None]], version: int
) -> None:
    response = await ask(*components, version=version)
    assert (response.error_code, response.error_message, response.entries) == (0, None, [])


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, None), ("user", EXACT, "a")], ErrorCode.INVALID_REQUEST),
        ([("group", ANY, None)], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", DEFAULT, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, "a")], ErrorCode.INVALID_REQUEST),
        ([("ip", ANY, None), ("user", ANY, None)], ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_filter_without_sense_is_refused(
    components: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    response = await ask(*components)
    assert (response.error_code, response.entries) == (code, None)
    assert response.error_message
