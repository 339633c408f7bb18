"""SCRAM (RFC 5802, RFC 7677) as Kafka speaks it, for both sides, on hashlib and hmac.

SCRAM-SHA-256 and SCRAM-SHA-512 without channel binding. Neither side sends the password, and the
broker does not have it: it keeps a salt, a count of iterations, and two keys that were derived from
the password, by which it can check a proof and give one of its own, and cannot make the client's.

    client                                          broker
    n,,n=USER,r=NONCE                          ->
                                               <-   r=NONCE+MORE,s=SALT,i=ITERATIONS
    c=biws,r=NONCE+MORE,p=PROOF                ->
                                               <-   v=SIGNATURE

Pure: nonces and salts come in as arguments. Names and passwords are UTF-8 as they are, as in Kafka,
which does not prepare them (RFC 4013); so a client's salted password gives the same keys here.
Proofs and keys are compared in constant time.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from dataclasses import dataclass
from typing import Final

from asyncbroker.protocol.scram_credential import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SCRAM_MECHANISMS,
    ScramCredential,
)

# What clients send here is short; a nonce of the length of a frame would only be sent back.
NONCE_LENGTH_MAX: Final = 1024
# To read a message takes longer than to receive it, so that a long one would keep others waiting.
MESSAGE_BYTES_MAX: Final = 8192

# Compiled when the first message comes.
_NONCE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_FIRST: Final = (
    rf"(?P<header>(?P<binding>[^,]*),(?:a=(?P<authzid>[^,]*))?,)"
    rf"(?P<bare>n=(?P<name>[^,]+),r=(?P<nonce>{_NONCE})(?P<extensions>(?:,[^,]+)*))"
)
_FINAL: Final = (
    rf"(?P<bare>c=(?P<binding>[^,]+),r=(?P<nonce>{_NONCE})(?:,[^,]+)*),p=(?P<proof>[^,]+)"
)
_SERVER_FIRST: Final = (
    rf"r=(?P<nonce>{_NONCE}),s=(?P<salt>[^,]+),i=(?P<iterations>[0-9]{{1,9}})(?:,[^,]+)*"
)
_SERVER_FINAL: Final = r"v=(?P<signature>[^,]+)(?:,[^,]+)*"
_BAD_ESCAPE: Final = r"=(?!2C|3D)"


class ScramError(Exception):
    """The other side's message is wrong, or it does not know the password. The text may be logged:
    it has no secret in it."""


def salt_password(mechanism: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    """The slow step: takes milliseconds, by intent."""
    return hashlib.pbkdf2_hmac(SCRAM_MECHANISMS[mechanism], password, salt, iterations)


def credential_of(
    mechanism: str, salted_password: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """What to keep of a salted password."""
    client_key = _sign(mechanism, salted_password, b"Client Key")
    return ScramCredential(
        salt=salt,
        stored_key=_hash(mechanism, client_key),
        server_key=_sign(mechanism, salted_password, b"Server Key"),
        iterations=iterations,
    )


def is_password(mechanism: str, credential: ScramCredential, password: bytes) -> bool:
    """Whether a password is the one that a credential was made of. As slow as `salt_password`."""
    salted = salt_password(mechanism, password, credential.salt, credential.iterations)
    found = credential_of(mechanism, salted, credential.salt, credential.iterations)
    return hmac.compare_digest(found.stored_key, credential.stored_key)


@dataclass(frozen=True, slots=True)
class ClientFirst:
    """The first message of a client."""

    user: str
    nonce: str
    header: str
    bare: str

    @classmethod
    def parse(cls, token: bytes) -> ClientFirst:
        """Reads it; raises ScramError."""
        match = re.fullmatch(_FIRST, _text_of_client(token))
        if match is None:
            raise ScramError("the first message is malformed")
        if match["binding"] not in ("n", "y"):
            raise ScramError("channel binding is asked for")
        if len(match["nonce"]) > NONCE_LENGTH_MAX:
            raise ScramError("the nonce is too long")
        for extension in filter(None, match["extensions"].split(",")):
            if extension.startswith("m="):
                raise ScramError("an extension is required")
            if extension == "tokenauth=true":
                raise ScramError("delegation tokens are not served")
        user = _unescape(match["name"])
        authzid = match["authzid"]
        if authzid and _unescape(authzid) != user:
            raise ScramError("another user's rights are asked for")
        return cls(user, match["nonce"], match["header"], match["bare"])


class ScramServer:
    """The broker's side of one login, from the client's first message on."""

    __slots__ = ("_credential", "_first", "_mechanism", "_nonce", "server_first")

    def __init__(
        self, mechanism: str, first: ClientFirst, credential: ScramCredential, nonce: str
    ) -> None:
        """`nonce` is ours, and must never have been used before."""
        self._mechanism = mechanism
        self._credential = credential
        self._first = first
        self._nonce = first.nonce + nonce
        salt = base64.b64encode(credential.salt).decode()
        self.server_first = f"r={self._nonce},s={salt},i={credential.iterations}".encode()

    def is_of(self, credential: ScramCredential) -> bool:
        """Whether this login is checked against that very credential."""
        return self._credential is credential

    def finish(self, token: bytes) -> bytes:
        """Checks the client's proof and returns ours; raises ScramError."""
        match = re.fullmatch(_FINAL, _text_of_client(token))
        if match is None:
            raise ScramError("the last message is malformed")
        # The header again, so that nobody between the two can have weakened it.
        if _decode(match["binding"]) != self._first.header.encode():
            raise ScramError("the channel binding differs from that of the first message")
        if not hmac.compare_digest(match["nonce"], self._nonce):
            raise ScramError("the nonce is not that of this login")
        mechanism, credential = self._mechanism, self._credential
        signed = b",".join((self._first.bare.encode(), self.server_first, match["bare"].encode()))
        signature = _sign(mechanism, credential.stored_key, signed)
        proof = _decode(match["proof"])
        if len(proof) != len(signature):
            raise ScramError("the proof is wrong")
        client_key = _xor(proof, signature)
        if not hmac.compare_digest(_hash(mechanism, client_key), credential.stored_key):
            raise ScramError("the proof is wrong")
        return b"v=" + base64.b64encode(_sign(mechanism, credential.server_key, signed))


class ScramClient:
    """The client's side of one login. `nonce` must never have been used before."""

    __slots__ = ("_bare", "_mechanism", "_nonce", "_password", "_signature", "first")

    def __init__(self, mechanism: str, user: str, password: str, nonce: str) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={nonce}"
        self._signature = b""
        self.first = f"n,,{self._bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        """The proof, in answer to the broker's first message; raises ScramError."""
        match = re.fullmatch(_SERVER_FIRST, _text(server_first))
        if match is None:
            raise ScramError("the broker's first message is malformed")
        nonce, iterations = match["nonce"], int(match["iterations"])
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise ScramError("the broker's nonce does not continue ours")
        if not ITERATIONS_MIN <= iterations <= 100 * ITERATIONS_MAX:
            # Fewer would make the password easy to guess from the proof; many more, busy for long.
            raise ScramError(f"the broker asks for {iterations} iterations")
        password = self._password.encode()
        salt = _decode(match["salt"])
        salted = salt_password(self._mechanism, password, salt, iterations)
        client_key = _sign(self._mechanism, salted, b"Client Key")
        credential = credential_of(self._mechanism, salted, salt, iterations)
        bare = f"c={base64.b64encode(b'n,,').decode()},r={nonce}".encode()
        signed = b",".join((self._bare.encode(), server_first, bare))
        self._signature = _sign(self._mechanism, credential.server_key, signed)
        proof = _xor(client_key, _sign(self._mechanism, credential.stored_key, signed))
        return bare + b",p=" + base64.b64encode(proof)

    def check(self, server_final: bytes) -> None:
        """Whether the broker knows the password as well; raises ScramError if it does not."""
        match = re.fullmatch(_SERVER_FINAL, _text(server_final))
        if match is None:
            raise ScramError("the broker's last message is malformed")
        if not hmac.compare_digest(_decode(match["signature"]), self._signature):
            raise ScramError("the broker does not know the password")


def _sign(mechanism: str, key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, SCRAM_MECHANISMS[mechanism])


def _hash(mechanism: str, data: bytes) -> bytes:
    return hashlib.new(SCRAM_MECHANISMS[mechanism], data).digest()


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def _text_of_client(token: bytes) -> str:
    if len(token) > MESSAGE_BYTES_MAX:
        raise ScramError(f"a message of {len(token)} bytes is too long")
    return _text(token)


def _text(token: bytes) -> str:
    try:
        return str(token, "utf-8")
    except UnicodeDecodeError:
        raise ScramError("a message is not UTF-8") from None


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text.encode(), validate=True)
    except (binascii.Error, ValueError):
        raise ScramError("a value is not base64") from None


def _unescape(name: str) -> str:
    if re.search(_BAD_ESCAPE, name):
        raise ScramError("a name is not escaped as it must be")
    return name.replace("=2C", ",").replace("=3D", "=")
