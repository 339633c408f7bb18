"""The DescribeAcls handler: there is no access control."""

from __future__ import annotations

import pytest

from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.describe_acls import DescribeAclsRequest
from asyncbroker.tests.data_path_harness import under_test


@pytest.mark.parametrize("version", range(1, 4))
async def test_access_control_is_disabled(version: int) -> None:
    async with under_test() as test:
        any_kind = DescribeAclsRequest(1, None, 1, None, None, 1, 1)
        response = await test.ask(any_kind, version)
        assert response.error_code == ErrorCode.SECURITY_DISABLED
        assert response.error_message == "No Authorizer is configured on the broker"
        assert response.resources == []
