"""The mechanisms of a login: PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512, a step at a time.

An exchange gets the client's tokens in turn. It answers with a token of its own and, when the login
is done, the user; or it raises `LoginRefused`, after which it must not be used again. What the
client is told of a refusal says nothing of its cause: not even whether there is such a user.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from asyncbroker.protocol.scram import ClientFirst, ScramError, ScramServer
from asyncbroker.users import Users

PLAIN: Final = "PLAIN"

# Of a name, in the log.
SHOWN_LENGTH_MAX: Final = 64


class LoginRefused(Exception):
    """Nobody is logged in. The text is for the log and has no secret in it."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Our answer to a token, and who has logged in, or None while it goes on."""

    token: bytes
    user: str | None = None


class Exchange(Protocol):
    """One login by one mechanism."""

    async def step(self, users: Users, token: bytes) -> Progress:
        """Takes the client's next token. Raises LoginRefused."""


def new_exchange(mechanism: str) -> Exchange:
    """The beginning of a login; `mechanism` is one of `MECHANISMS` in `listeners.py`."""
    return PlainExchange() if mechanism == PLAIN else ScramExchange(mechanism)


class PlainExchange:
    """One token with everything in it (RFC 4616): the rights asked for, the user, the password."""

    async def step(self, users: Users, token: bytes) -> Progress:
        """Checks the password."""
        parts = token.split(b"\0")
        if len(parts) != 3:
            raise LoginRefused("the token is not of three parts")
        try:
            authzid, user, _ = (str(part, "utf-8") for part in parts)
        except UnicodeDecodeError:
            raise LoginRefused("the token is not UTF-8") from None
        password = parts[2]
        if not user or not password:
            raise LoginRefused("there is no user name or no password")
        if authzid not in ("", user):
            raise LoginRefused(f"user {shown(user)} asks for the rights of another")
        if not await users.is_password(user, password):
            raise LoginRefused(f"no user {shown(user)} with this password")
        return Progress(b"", user)


class ScramExchange:
    """Two tokens (`protocol/scram.py`)."""

    def __init__(self, mechanism: str) -> None:
        self._mechanism = mechanism
        self._user = ""
        self._server: ScramServer | None = None

    async def step(self, users: Users, token: bytes) -> Progress:
        """Shows the salt, then checks the proof."""
        try:
            if self._server is None:
                first = ClientFirst.parse(token)
                self._user = first.user
                credential = users.credential_for_login(first.user, self._mechanism)
                self._server = ScramServer(self._mechanism, first, credential, users.nonce())
                return Progress(self._server.server_first)
            final = self._server.finish(token)
        except ScramError as error:
            user = f"user {shown(self._user)}: " if self._user else ""
            raise LoginRefused(f"{user}{error}") from None
        if not self._server.is_of(users.credential_for_login(self._user, self._mechanism)):
            raise LoginRefused(f"user {shown(self._user)} was altered meanwhile")
        return Progress(final, self._user)


def shown(text: str) -> str:
    """A stranger's text for the log: on one line, and not at any length."""
    rest = "..." if len(text) > SHOWN_LENGTH_MAX else ""
    return ascii(text[:SHOWN_LENGTH_MAX]) + rest
