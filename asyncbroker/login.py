"""The login of one connection (KIP-43, KIP-152, KIP-368): who may be served, and until when.

A `Login` stands in front of the dispatcher. Until a user has logged in it lets through ApiVersions,
SaslHandshake and SaslAuthenticate, each in its turn, and closes at anything else without looking
into it. Then it steps aside: requests go to the dispatcher as on a listener without a login. Where
logins end after a time (`connections.max.reauth.ms`) it stays and looks at the clock.

    HANDSHAKE     nobody has logged in. ApiVersions; SaslHandshake -> AUTHENTICATE
    AUTHENTICATE  a mechanism was chosen. SaslAuthenticate, until OPEN
    OPEN          a user has logged in. Everything; SaslHandshake -> AUTHENTICATE, for the same user
    FAILED        nothing more: the last answer leaves, then the connection closes

After a SaslHandshake of version 0 the tokens come bare, without Kafka's headers. They are dressed
as SaslAuthenticate on their way in, and its answers undressed on their way out, so that there is
one way to log in. A refusal is answered after `connection.failed.authentication.delay.ms`, and says
the same whatever its cause; the log has the cause.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import Enum
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, Protocol

from asyncbroker.clock import Clock, Pause
from asyncbroker.dispatch import Close, Outcome, Serving, Waiting
from asyncbroker.protocol.api import API_BY_KEY
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from asyncbroker.protocol.messages.sasl_handshake import SaslHandshakeResponse
from asyncbroker.sasl import PLAIN, Exchange, LoginRefused, new_exchange, shown

if TYPE_CHECKING:
    from asyncbroker.context import RequestContext
    from asyncbroker.listeners import SaslRules
    from asyncbroker.users import Users

logger = logging.getLogger(__name__)

SASL_HANDSHAKE_KEY: Final = 17
API_VERSIONS_KEY: Final = 18
SASL_AUTHENTICATE_KEY: Final = 36

# Somebody who logs in again and again would keep the broker busy.
AGAIN_SECONDS_MIN: Final = 1.0

# The header of a SaslAuthenticate v0 with an empty client id, and the size of its token.
_DRESS: Final = Struct(">hhihi")
# Of its answer: size, correlation id, error code, and a null message; then come size and token.
_UNDRESS: Final = Struct(">iihh")


class State(Enum):
    """See the head of this file."""

    HANDSHAKE = 1
    AUTHENTICATE = 2
    OPEN = 3
    FAILED = 4


ALLOWED: Final = {
    State.HANDSHAKE: frozenset({API_VERSIONS_KEY, SASL_HANDSHAKE_KEY}),
    # A second handshake is told that it is one too many.
    State.AUTHENTICATE: frozenset({SASL_HANDSHAKE_KEY, SASL_AUTHENTICATE_KEY}),
    State.FAILED: frozenset[int](),
}


class Guarded(Protocol):
    """The connection, as its login sees it."""

    def guard(self, serving: Serving) -> None:
        """Has requests go through `serving`."""

    def admit(self, serving: Serving) -> None:
        """The same, and lifts the limits for strangers."""

    def end_when_answered(self) -> None:
        """Closes once the answer to the request in hand has left."""


@dataclass(slots=True)
class Attempt:
    """A login that goes on."""

    mechanism: str
    exchange: Exchange
    is_bare: bool


class Login:
    """Of one connection. `user` is None until somebody has logged in."""

    __slots__ = (
        "_attempt",
        "_began_at",
        "_clock",
        "_connection",
        "_expires_at",
        "_inner",
        "_is_admitted",
        "_is_token_bare",
        "_mechanism",
        "_rules",
        "state",
        "user",
    )

    def __init__(self, rules: SaslRules, inner: Serving, clock: Clock, connection: Guarded) -> None:
        self.user: str | None = None
        self._rules = rules
        self._inner = inner
        self._clock = clock
        self._connection = connection
        self.state = State.HANDSHAKE
        self._attempt: Attempt | None = None
        self._began_at = float("-inf")
        self._is_admitted = False
        self._is_token_bare = False
        # Of the last login that succeeded: another one must be by the same.
        self._mechanism = ""
        self._expires_at = float("inf")

    # The dispatcher's side.

    def serve(self, frame: bytearray, context: RequestContext, output: list[bytes]) -> Outcome:
        """Serves a request if it may be made now, and closes otherwise."""
        attempt = self._attempt
        if attempt is not None and attempt.is_bare:
            return self._serve_bare(frame, context, output)
        api_key = int.from_bytes(frame[:2], "big")
        if self.state is not State.OPEN:
            if api_key not in ALLOWED[self.state]:
                return self._refuse(api_key)
        elif api_key != SASL_HANDSHAKE_KEY and self._clock.monotonic() >= self._expires_at:
            self.state = State.FAILED
            return Close("the login has expired")
        return self._inner.serve(frame, context, output)

    def finish(
        self,
        waiting: Waiting,
        response: Any | BaseException,
        context: RequestContext,
        output: list[bytes],
    ) -> Outcome:
        """Answers a request that had to wait."""
        outcome = self._inner.finish(waiting, response, context, output)
        if self._is_token_bare and output:
            outcome = _undress(output)
        self._is_token_bare = False
        if self.state is State.OPEN and not self._is_admitted:
            self._attempt = None
            self._is_admitted = True
            expires = self._expires_at < float("inf")
            self._connection.admit(self if expires else self._inner)
        return outcome

    def _serve_bare(
        self, token: bytearray, context: RequestContext, output: list[bytes]
    ) -> Outcome:
        if self.state is not State.AUTHENTICATE:
            return Close(None)
        self._is_token_bare = True
        client_id = context.client_id
        head = _DRESS.pack(SASL_AUTHENTICATE_KEY, 0, 0, 0, len(token))
        outcome = self._inner.serve(bytearray(head) + token, context, output)
        context.client_id = client_id
        return outcome

    def _refuse(self, api_key: int) -> Close:
        if self.state is State.FAILED:
            return Close(None)
        self.state = State.FAILED
        api = API_BY_KEY.get(api_key)
        return Close(f"{api.name if api else f'API key {api_key}'} before the login is done")

    # The handlers' side.

    async def handshake(self, context: RequestContext, mechanism: str) -> SaslHandshakeResponse:
        """Begins a login, the first or another one."""
        rules, now = self._rules, self._clock.monotonic()
        response = SaslHandshakeResponse(mechanisms=list(rules.mechanisms))
        if self.state is State.OPEN and now - self._began_at < AGAIN_SECONDS_MIN:
            response.error_code = int(ErrorCode.ILLEGAL_SASL_STATE)
            return response
        if self.state not in (State.HANDSHAKE, State.OPEN):
            response.error_code = int(ErrorCode.ILLEGAL_SASL_STATE)
            await self._fail(context, "a second SaslHandshake")
            return response
        if mechanism not in rules.mechanisms:
            response.error_code = int(ErrorCode.UNSUPPORTED_SASL_MECHANISM)
            await self._fail(context, f"mechanism {shown(mechanism)} is not enabled")
            return response
        self._attempt = Attempt(
            mechanism, new_exchange(mechanism), is_bare=context.api_version == 0
        )
        self._began_at = now
        self.state = State.AUTHENTICATE
        self._is_admitted = False
        self._connection.guard(self)
        return response

    async def authenticate(
        self, users: Users, context: RequestContext, token: bytes
    ) -> SaslAuthenticateResponse:
        """Takes a login one step further."""
        attempt = self._attempt
        if self.state is not State.AUTHENTICATE or attempt is None:
            raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, "there is no login in progress")
        try:
            if len(token) > self._rules.receive_bytes_max:
                raise LoginRefused(f"a token of {len(token)} bytes")
            if self._mechanism not in ("", attempt.mechanism):
                raise LoginRefused(f"logged in by {self._mechanism}, again by {attempt.mechanism}")
            progress = await attempt.exchange.step(users, token)
            if progress.user is not None and self.user not in (None, progress.user):
                raise LoginRefused(f"user {shown(str(self.user))} becomes {shown(progress.user)}")
        except LoginRefused as refused:
            await self._fail(context, f"{attempt.mechanism}: {refused}")
            return SaslAuthenticateResponse(
                error_code=int(ErrorCode.SASL_AUTHENTICATION_FAILED),
                error_message=_message_of(attempt.mechanism),
            )
        response = SaslAuthenticateResponse(auth_bytes=progress.token)
        if progress.user is not None:
            self._open(attempt, progress.user, context)
            response.session_lifetime_ms = self._rules.session_ms_max
        return response

    def _open(self, attempt: Attempt, user: str, context: RequestContext) -> None:
        self.user = user
        self._mechanism = attempt.mechanism
        self.state = State.OPEN
        if self._rules.session_ms_max > 0:
            self._expires_at = self._clock.monotonic() + self._rules.session_ms_max / 1000
        logger.debug(
            "%s:%d logged in as %s by %s",
            context.client_host,
            context.client_port,
            shown(user),
            attempt.mechanism,
        )

    async def _fail(self, context: RequestContext, reason: str) -> None:
        """Ends the connection: the caller's answer is its last, and comes late."""
        self.state = State.FAILED
        logger.warning(
            "failed login from %s:%d: %s", context.client_host, context.client_port, reason
        )
        due = self._clock.monotonic() + self._rules.failed_delay_ms / 1000
        await Pause(self._clock, due).wait()
        self._connection.end_when_answered()


def _message_of(mechanism: str) -> str:
    """As Kafka says it: some clients show it."""
    if mechanism == PLAIN:
        return "Authentication failed: Invalid username or password"
    return (
        "Authentication failed during authentication due to invalid credentials "
        f"with SASL mechanism {mechanism}"
    )


def _undress(output: list[bytes]) -> Outcome:
    """Makes a bare token of the SaslAuthenticate response in `output`; bare errors do not exist."""
    frame = output.pop()
    _, _, error_code, _ = _UNDRESS.unpack_from(frame)
    if error_code != ErrorCode.NONE:
        return Close(None)
    output.append(frame[_UNDRESS.size :])
    return len(output[0])
