"""Who can log in, and by what: the SCRAM credentials of users, and what a stranger is shown.

A user has a credential for each mechanism. PLAIN is checked against the same credentials, so that
no password is kept. That takes milliseconds of work, so it runs in worker threads, and only a few
at a time: a crowd of logins must not take the threads that the disk needs.

Somebody who is no user gets the same answers in the same time as somebody with a wrong password. A
made-up credential stands in for one that is missing. It is derived from the name by a key that is
kept with the metadata, so that asking twice shows the same salt; and it is like those of the users
there are, in the length of its salt and its iterations.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from asyncbroker.metadata_store import Change, DeleteScramCredential, PutScramCredential
from asyncbroker.metadata_writer import MetadataWriter
from asyncbroker.protocol.scram_credential import (
    ITERATIONS_DEFAULT,
    SCRAM_MECHANISMS,
    ScramCredential,
)
from asyncbroker.workers import Workers

# Under this name the key of the made-up credentials is among the metadata.
DECOY_KEY: Final = "scram.decoy.key"
DECOY_KEY_BYTES: Final = 32

# So many passwords are checked at the same time.
CHECKS_MAX: Final = 2

NONCE_BYTES: Final = 24
SALT_BYTES: Final = 32

# A credential's user and the name of its mechanism.
CredentialKey = tuple[str, str]


class Users:
    """The users of one broker; all methods are for its thread."""

    def __init__(
        self,
        credentials: Mapping[CredentialKey, ScramCredential],
        metadata: MetadataWriter,
        workers: Workers,
        *,
        decoy_key: bytes,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._credentials = dict(credentials)
        self._metadata = metadata
        self._workers = workers
        self._decoy_key = decoy_key
        self._random_bytes = random_bytes
        self._checking = asyncio.Semaphore(CHECKS_MAX)

    def names(self) -> list[str]:
        """All users, in order."""
        return sorted({user for user, _ in self._credentials})

    def credentials_of(self, user: str) -> dict[str, ScramCredential]:
        """A user's credentials by mechanism; none for somebody who is no user."""
        return {
            mechanism: credential
            for mechanism in SCRAM_MECHANISMS
            if (credential := self._credentials.get((user, mechanism))) is not None
        }

    def is_known(self, user: str, mechanism: str) -> bool:
        """Whether this user can log in by this mechanism."""
        return (user, mechanism) in self._credentials

    def credential_for_login(self, user: str, mechanism: str) -> ScramCredential:
        """What to check a login against: the user's credential, or one that no proof fits."""
        return self._credentials.get((user, mechanism)) or self._decoy(user, mechanism)

    async def is_password(self, user: str, password: bytes) -> bool:
        """Whether a user has this password."""
        from asyncbroker.protocol.scram import is_password  # See `scram_credential.py`.

        mechanisms = list(self.credentials_of(user)) or [
            mechanism
            for mechanism in SCRAM_MECHANISMS
            if any(used == mechanism for _, used in self._credentials)
        ]
        # The strongest one: the mechanisms are in that order.
        mechanism = mechanisms[-1] if mechanisms else next(iter(SCRAM_MECHANISMS))
        credential = self.credential_for_login(user, mechanism)
        async with self._checking:
            fits = await self._workers.run(is_password, mechanism, credential, password)
        # Looked at again: the user may have been deleted, or have another password, meanwhile.
        return fits and self._credentials.get((user, mechanism)) is credential

    def nonce(self) -> str:
        """One that was never used before."""
        return self._random_bytes(NONCE_BYTES).hex()

    async def alter(self, changes: Mapping[CredentialKey, ScramCredential | None]) -> None:
        """Replaces credentials, or (None) deletes them. Raises KafkaError when that could not be
        made durable; otherwise they hold from the next login on."""
        stored: list[Change] = [
            DeleteScramCredential(user, mechanism)
            if credential is None
            else PutScramCredential(user, mechanism, credential)
            for (user, mechanism), credential in changes.items()
        ]
        await self._metadata.write(*stored, then=lambda: self._follow(changes))

    def _follow(self, changes: Mapping[CredentialKey, ScramCredential | None]) -> None:
        for key, credential in changes.items():
            if credential is None:
                self._credentials.pop(key, None)
            else:
                self._credentials[key] = credential

    def _decoy(self, user: str, mechanism: str) -> ScramCredential:
        import hmac  # Takes a while, and few brokers need it.

        name = f"{mechanism}/{user}".encode("utf-8", "surrogateescape")
        models = (self._credentials[key] for key in self._credentials if key[1] == mechanism)
        model = next(models, None)
        length = SALT_BYTES if model is None else min(len(model.salt), 64)
        key = self._decoy_key
        return ScramCredential(
            salt=hmac.digest(key, b"salt/" + name, "sha512")[:length],
            # No client key has this for its hash but by an accident of 1 in 2^256.
            stored_key=hmac.digest(key, b"stored/" + name, SCRAM_MECHANISMS[mechanism]),
            server_key=hmac.digest(key, b"server/" + name, SCRAM_MECHANISMS[mechanism]),
            iterations=ITERATIONS_DEFAULT if model is None else model.iterations,
        )
