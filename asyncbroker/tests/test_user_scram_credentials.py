"""Describing and altering SCRAM credentials: who can log in, and what is refused."""

from __future__ import annotations

import pytest

from asyncbroker.metadata_store import MemoryMetadataStore
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from asyncbroker.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from asyncbroker.protocol.scram import salt_password
from asyncbroker.tests.data_path_harness import UnderTest, under_test

SHA_256, SHA_512 = 1, 2


def upsertion(
    name: str = "alice",
    mechanism: int = SHA_256,
    iterations: int = 4096,
    salt: bytes = b"salt",
    password: str = "pencil",
) -> ScramCredentialUpsertion:
    known = "SCRAM-SHA-512" if mechanism == SHA_512 else "SCRAM-SHA-256"
    salted = salt_password(known, password.encode(), salt, 4096) if password else b""
    return ScramCredentialUpsertion(name, mechanism, iterations, salt, salted)


async def alter(
    test: UnderTest, *items: ScramCredentialUpsertion | ScramCredentialDeletion
) -> dict[str, int]:
    request = AlterUserScramCredentialsRequest(
        [item for item in items if isinstance(item, ScramCredentialDeletion)],
        [item for item in items if isinstance(item, ScramCredentialUpsertion)],
    )
    response = await test.ask(request, 0)
    return {result.user: result.error_code for result in response.results}


async def describe(test: UnderTest, *names: str) -> dict[str, object]:
    users = [UserName(name) for name in names] or None
    response = await test.ask(DescribeUserScramCredentialsRequest(users), 0)
    return {
        result.user: result.error_code
        or [(info.mechanism, info.iterations) for info in result.credential_infos]
        for result in response.results
    }


async def test_users_are_added_changed_and_deleted() -> None:
    async with under_test() as test:
        assert await describe(test) == {}
        added = [upsertion(), upsertion("alice", SHA_512), upsertion("bob", SHA_512, 5000)]
        assert await alter(test, *added) == {"alice": 0, "bob": 0}
        assert await describe(test) == {
            "alice": [(SHA_256, 4096), (SHA_512, 4096)],
            "bob": [(SHA_512, 5000)],
        }
        deletion = ScramCredentialDeletion("alice", SHA_256)
        assert await alter(test, deletion, upsertion("alice", SHA_512, 6000)) == {"alice": 0}
        assert await describe(test, "alice") == {"alice": [(SHA_512, 6000)]}
        assert await alter(test, ScramCredentialDeletion("bob", SHA_512)) == {"bob": 0}
        assert await describe(test) == {"alice": [(SHA_512, 6000)]}


async def test_users_are_there_after_a_restart() -> None:
    metadata = MemoryMetadataStore()
    async with under_test(metadata=metadata) as test:
        await alter(test, upsertion())
        stranger = test.broker.users.credential_for_login("nobody", "SCRAM-SHA-256")
    async with under_test(metadata=metadata) as test:
        assert await describe(test) == {"alice": [(SHA_256, 4096)]}
        assert await test.broker.users.is_password("alice", b"pencil")
        # Otherwise a restart would tell users from strangers.
        assert test.broker.users.credential_for_login("nobody", "SCRAM-SHA-256") == stranger


@pytest.mark.parametrize(
    ("item", "code"),
    [
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("x" * 1025), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(iterations=-1), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(salt=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(password=""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion(mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (ScramCredentialDeletion("alice", 3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (ScramCredentialDeletion("alice", SHA_256), ErrorCode.RESOURCE_NOT_FOUND),
    ],
)
async def test_a_user_with_a_mistake_stays_as_it_is_and_others_change(
    item: ScramCredentialUpsertion | ScramCredentialDeletion, code: ErrorCode
) -> None:
    async with under_test() as test:
        along = upsertion(item.name, SHA_512)
        assert await alter(test, item, along, upsertion("bob")) == {item.name: code, "bob": 0}
        assert list(await describe(test)) == ["bob"]


async def test_the_same_credential_twice_in_one_request_is_refused() -> None:
    async with under_test() as test:
        await alter(test, upsertion())
        deletion = ScramCredentialDeletion("alice", SHA_256)
        for pair in ((upsertion(), upsertion()), (deletion, deletion), (deletion, upsertion())):
            assert await alter(test, *pair) == {"alice": ErrorCode.DUPLICATE_RESOURCE}
        assert await describe(test) == {"alice": [(SHA_256, 4096)]}


async def test_who_is_no_user_and_who_is_asked_for_twice() -> None:
    async with under_test() as test:
        await alter(test, upsertion())
        assert await describe(test, "alice", "bob", "carol", "carol") == {
            "alice": [(SHA_256, 4096)],
            "bob": ErrorCode.RESOURCE_NOT_FOUND,
            "carol": ErrorCode.DUPLICATE_RESOURCE,
        }


async def test_what_cannot_be_stored_is_not_answered_as_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with under_test() as test:

        async def fail(changes: object) -> None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")

        monkeypatch.setattr(test.broker.users, "alter", fail)
        bad = upsertion("bob", 7)
        assert await alter(test, upsertion(), bad) == {
            "alice": ErrorCode.KAFKA_STORAGE_ERROR,
            "bob": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        }


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
async def test_a_password_is_checked_against_what_there_is(mechanism: int) -> None:
    async with under_test() as test:
        users = test.broker.users
        assert not await users.is_password("alice", b"pencil")
        await alter(test, upsertion(mechanism=mechanism))
        assert await users.is_password("alice", b"pencil")
        assert not await users.is_password("alice", b"Pencil")
        assert not await users.is_password("nobody", b"pencil")
