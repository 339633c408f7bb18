"""What a handler may know about where its request came from.

There is one `RequestContext` for each connection. Dispatch sets its request fields (`api_version`,
`client_id`) before each request: a connection has one request at a time, so nobody else is looking.
A handler that keeps one of these values for later copies the value, not the context.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from asyncbroker.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from asyncbroker.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
    from asyncbroker.protocol.messages.sasl_handshake import SaslHandshakeResponse
    from asyncbroker.users import Users


class Address(NamedTuple):
    """Where something listens, or says that it listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ConnectionLife(Protocol):
    """The part of a connection that a waiting request needs."""

    def is_closing(self) -> bool:
        """Whether the peer is gone, or is about to be."""

    def call_when_lost(self, callback: Callable[[], object]) -> None:
        """Calls back if the connection is lost before the request at hand is answered."""


class LoginSteps(Protocol):
    """The login of a connection, as the handlers of its two requests see it (`login.py`)."""

    async def handshake(self, context: RequestContext, mechanism: str) -> SaslHandshakeResponse:
        """Begins a login."""

    async def authenticate(
        self, users: Users, context: RequestContext, token: bytes
    ) -> SaslAuthenticateResponse:
        """Takes it one step further."""


class _Nowhere:
    """The connection of a request that came from none: tests, and the broker's own requests."""

    def is_closing(self) -> bool:
        return False

    def call_when_lost(self, callback: Callable[[], object]) -> None:
        pass


NOWHERE: ConnectionLife = _Nowhere()
DEFAULT_LISTENER = Address("127.0.0.1", 9092)


@dataclass(slots=True)
class RequestContext:
    """Of the request at hand: `api_version`, `client_id` (a null one reads as "", as in Kafka). Of
    its connection: the rest. `listener` is the address that the listener it came in on advertises,
    which is what Metadata, FindCoordinator and DescribeCluster must answer with; `login` is None on
    a listener without one."""

    api_version: int = 0
    client_id: str = ""
    client_host: str = "127.0.0.1"
    client_port: int = 0
    listener: Address = DEFAULT_LISTENER
    connection_id: int = 0
    connection: ConnectionLife = NOWHERE
    login: LoginSteps | None = None

    def login_steps(self) -> LoginSteps:
        """The login of the connection; raises KafkaError on a listener without one."""
        if self.login is None:
            raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, "this listener has no login")
        return self.login

    def is_closing(self) -> bool:
        """Whether an answer would find nobody to read it."""
        return self.connection.is_closing()

    def call_when_lost(self, callback: Callable[[], object]) -> None:
        """Calls back if the connection is lost before this request is answered, so that what waits
        for it (a fetch, a join) can be let go of early. Forgotten once it is answered."""
        self.connection.call_when_lost(callback)
