"""What the tests of logins share: a broker behind a login, with two users, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from struct import pack
from typing import Any

from asyncbroker.handlers import HANDLERS
from asyncbroker.listeners import SaslRules
from asyncbroker.login import Login, State
from asyncbroker.metadata_store import MemoryMetadataStore
from asyncbroker.metadata_writer import MetadataWriter
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from asyncbroker.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from asyncbroker.protocol.messages.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from asyncbroker.protocol.scram import ScramClient, credential_of, salt_password
from asyncbroker.tests.edge_harness import Edge, Peer, edge, request_frame, stand_ins, until
from asyncbroker.users import Users
from asyncbroker.workers import InlineWorkers

PLAIN, SHA_256, SHA_512 = MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
RULES = SaslRules(MECHANISMS, receive_bytes_max=4096)
FAILED = ErrorCode.SASL_AUTHENTICATION_FAILED
LARGE_CLIENT_ID = "c" * 8000


@dataclass
class Guarded:
    """A broker with alice and bob as its users, behind a login."""

    edge: Edge
    users: Users

    async def connect(self) -> Client:
        return Client(self, await self.edge.connect())

    async def after_the_delay(self) -> None:
        """Lets a refusal that is on its way arrive."""
        connections = list(self.edge.connections._open)

        def has_failed() -> bool:
            logins = [connection.context.login for connection in connections]
            return any(isinstance(each, Login) and each.state is State.FAILED for each in logins)

        await until(has_failed)
        self.edge.advance(0.1)


@dataclass
class Client:
    """One connection."""

    guarded: Guarded
    peer: Peer

    async def ask(self, name: str, version: int, request: Any) -> Any:
        self.peer.send(request_frame(name, version, request))
        return (await self.peer.receive_response(name, version))[1]

    async def handshake(self, mechanism: str, version: int = 1) -> SaslHandshakeResponse:
        request = SaslHandshakeRequest(mechanism)
        response: SaslHandshakeResponse = await self.ask("SaslHandshake", version, request)
        return response

    async def token(self, token: bytes, version: int = 2) -> SaslAuthenticateResponse:
        request = SaslAuthenticateRequest(token)
        response: SaslAuthenticateResponse = await self.ask("SaslAuthenticate", version, request)
        return response

    async def bare(self, token: bytes) -> bytes:
        self.peer.send(pack(">i", len(token)) + token)
        return await self.peer.receive()

    async def log_in(
        self, mechanism: str = SHA_256, user: str = "alice", password: str = "pencil"
    ) -> SaslAuthenticateResponse:
        assert (await self.handshake(mechanism)).error_code == 0
        if mechanism == PLAIN:
            return await self.token(f"\0{user}\0{password}".encode())
        scram = ScramClient(mechanism, user, password, "nonce")
        first = await self.token(scram.first)
        last = await self.token(scram.final(first.auth_bytes))
        if last.error_code == 0:
            scram.check(last.auth_bytes)
        return last

    async def is_served(self) -> bool:
        """Whether another request is answered, a large one at that."""
        self.peer.send(request_frame("Heartbeat", 0, HEARTBEAT, client_id=LARGE_CLIENT_ID))
        _, response = await self.peer.receive_response("Heartbeat", 0)
        return bool(response.error_code == 7)

    async def is_refused(self, token: bytes) -> None:
        """Sends a token that must not be accepted, and waits for the end."""
        self.peer.send(request_frame("SaslAuthenticate", 2, SaslAuthenticateRequest(token)))
        await self.guarded.after_the_delay()
        _, response = await self.peer.receive_response("SaslAuthenticate", 2)
        assert (response.error_code, response.auth_bytes) == (FAILED, b"")
        assert await self.peer.is_closed()


HEARTBEAT = HeartbeatRequest("g", 7, "m")


def heartbeat(_broker: Any, _context: Any, request: HeartbeatRequest) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=request.generation_id)


@asynccontextmanager
async def guarded(
    rules: SaslRules = RULES, *, bytes_in_flight_max: int = 1 << 30
) -> AsyncIterator[Guarded]:
    credentials = {}
    for user in ("alice", "bob"):
        for mechanism in (SHA_256, SHA_512):
            salt = f"the salt of {user}".encode()
            salted = salt_password(mechanism, b"pencil", salt, 4096)
            credentials[user, mechanism] = credential_of(mechanism, salted, salt, 4096)
    workers = InlineWorkers()
    users = Users(
        credentials,
        MetadataWriter(MemoryMetadataStore(), workers),
        workers,
        decoy_key=b"k" * 32,
        random_bytes=lambda count: bytes(count - 1) + bytes([next(numbers)]),
    )
    numbers = iter(range(256))

    @dataclass
    class Broker:
        users: Users

    login_handlers = {key: HANDLERS[key] for key in (17, 18, 36)}
    table = {**stand_ins(Heartbeat=heartbeat), **login_handlers}
    async with edge(
        table, broker=Broker(users), sasl=rules, bytes_in_flight_max=bytes_in_flight_max
    ) as running:
        yield Guarded(running, users)
