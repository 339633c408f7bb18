"""How a client reaches a listener that is protected: TLS, and a login by SASL.

A `Security` is made by hand, or by `security_of` from a client's properties as Kafka names them:

    security.protocol=SASL_SSL
    sasl.mechanism=SCRAM-SHA-512
    sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
        username="alice" password="..." ;
    ssl.truststore.type=PEM
    ssl.truststore.location=/etc/kafka/ca.pem

It makes the socket (`connect`) and logs in (`log_in`); `connection.py` calls both. Secrets are left
out of what it prints and of errors.
"""

from __future__ import annotations

import re
import secrets
import socket
import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import permutations
from typing import TYPE_CHECKING, Final

from asyncbroker.client.errors import AuthenticationFailed, ClientError, error_code
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from asyncbroker.protocol.messages.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from asyncbroker.protocol.scram_credential import SCRAM_MECHANISMS

if TYPE_CHECKING:
    import ssl

    from asyncbroker.client.connection import Address, Connection, Deadline

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", *SCRAM_MECHANISMS)

NONCE_BYTES: Final = 24

# The properties of a client that `security_of` heeds.
SECURITY_PROPERTIES: Final = (
    *("security.protocol", "sasl.mechanism", "sasl.jaas.config"),
    *("sasl.mechanisms", "sasl.username", "sasl.password"),
    *("ssl.truststore.type", "ssl.truststore.location", "ssl.truststore.certificates"),
    *("ssl.keystore.type", "ssl.keystore.location", "ssl.keystore.certificate.chain"),
    *("ssl.keystore.key", "ssl.key.password", "ssl.endpoint.identification.algorithm"),
)

# A part of a PEM text, which may have been written into one line.
_PEM_PART: Final = r"(-----BEGIN [A-Z0-9 ]+-----)\s+([A-Za-z0-9+/=\s]+)(-----END [A-Z0-9 ]+-----)"

# How a login is written in `sasl.jaas.config`, after the name of the module.
_JAAS_OPTION: Final = r'(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s";]+))'


@dataclass(frozen=True, slots=True)
class Security:
    """What a listener asks for. Files are PEM, and so are the texts that can be in place of them
    (KIP-651); without a trust store the certificate authorities of the system are trusted. Raises
    ClientError for what does not go together."""

    protocol: str = "PLAINTEXT"
    sasl_mechanism: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    ssl_truststore_location: str | None = None
    ssl_keystore_location: str | None = None
    ssl_key_password: str | None = field(default=None, repr=False)
    ssl_check_hostname: bool = True
    # Kafka takes certificates for passwords as well.
    ssl_truststore_certificates: str | None = field(default=None, repr=False)
    ssl_keystore_certificate_chain: str | None = field(default=None, repr=False)
    ssl_keystore_key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise ClientError(
                f"security.protocol={self.protocol}: must be one of {', '.join(PROTOCOLS)}"
            )
        self._check_stores()
        if not self.has_login:
            return
        if self.sasl_mechanism not in MECHANISMS:
            raise ClientError(
                f"sasl.mechanism={self.sasl_mechanism}: must be one of {', '.join(MECHANISMS)}"
            )
        if not self.username:
            raise ClientError(f"{self.protocol} needs a user: sasl.jaas.config names none")

    def _check_stores(self) -> None:
        given = {
            "ssl.truststore.location": self.ssl_truststore_location,
            "ssl.truststore.certificates": self.ssl_truststore_certificates,
            "ssl.keystore.location": self.ssl_keystore_location,
            "ssl.keystore.certificate.chain": self.ssl_keystore_certificate_chain,
            "ssl.keystore.key": self.ssl_keystore_key,
        }
        for name, text in given.items():
            # `ssl` takes that for none, and would trust the authorities of the system.
            if text == "":
                raise ClientError(f"{name} is empty")
        names = {name for name, text in given.items() if text is not None}
        for file, text in (
            ("ssl.truststore.location", "ssl.truststore.certificates"),
            ("ssl.keystore.location", "ssl.keystore.key"),
        ):
            if {file, text} <= names:
                raise ClientError(f"both {file} and {text} are given")
        for one, other in permutations(("ssl.keystore.key", "ssl.keystore.certificate.chain")):
            if one in names and other not in names:
                raise ClientError(f"{one} needs {other}")

    @property
    def has_login(self) -> bool:
        return self.protocol.startswith("SASL_")

    @property
    def has_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    def connect(self, address: Address, timeout_s: float) -> socket.socket:
        """A connected socket, inside TLS if that is asked for. Raises OSError, or ClientError when
        a file cannot be used: trying again would not help."""
        context = self._tls_context() if self.has_tls else None
        connected = socket.create_connection((address.host, address.port), timeout_s)
        try:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is None:
                return connected
            return context.wrap_socket(connected, server_hostname=address.host)
        except BaseException:
            connected.close()
            raise

    def _tls_context(self) -> ssl.SSLContext:
        import ssl  # Only TLS needs it, and it takes a while to import.

        location, trusted = self.ssl_truststore_location, self.ssl_truststore_certificates
        try:
            context = ssl.create_default_context(
                cafile=location, cadata=None if trusted is None else _pem(trusted)
            )
        except (OSError, ValueError) as error:
            raise _unusable("ssl.truststore", location, error) from error
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = self.ssl_check_hostname
        try:
            self._load_own_certificate(context)
        except (OSError, ValueError) as error:
            raise _unusable("ssl.keystore", self.ssl_keystore_location, error) from error
        return context

    def _load_own_certificate(self, context: ssl.SSLContext) -> None:
        key, chain = self.ssl_keystore_key, self.ssl_keystore_certificate_chain
        password = self.ssl_key_password or ""
        if self.ssl_keystore_location is not None:
            context.load_cert_chain(self.ssl_keystore_location, password=password)
        elif key is not None and chain is not None:
            with _private_file(_pem(key) + _pem(chain)) as path:
                context.load_cert_chain(path, password=password)

    def log_in(self, connection: Connection, deadline: Deadline) -> int:
        """Logs in on a new connection, or again. Returns for how many milliseconds; 0 is without
        end. Raises ClientError."""
        handshake = connection.request(
            SaslHandshakeRequest(self.sasl_mechanism), SaslHandshakeResponse, deadline
        )
        if handshake.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(handshake.mechanisms)
            raise AuthenticationFailed(
                f"broker {connection.address} does not offer {self.sasl_mechanism}, only {offered}"
            )
        self._check(connection, handshake.error_code, None)
        if self.sasl_mechanism == "PLAIN":
            token = f"\0{self.username}\0{self.password}".encode()
            return self._ask(connection, token, deadline).session_lifetime_ms
        return self._log_in_by_scram(connection, deadline)

    def _log_in_by_scram(self, connection: Connection, deadline: Deadline) -> int:
        from asyncbroker.protocol.scram import ScramClient, ScramError

        nonce = secrets.token_hex(NONCE_BYTES)
        scram = ScramClient(self.sasl_mechanism, self.username, self.password, nonce)
        try:
            first = self._ask(connection, scram.first, deadline)
            last = self._ask(connection, scram.final(bytes(first.auth_bytes)), deadline)
            scram.check(bytes(last.auth_bytes))
        except ScramError as error:
            raise AuthenticationFailed(f"{self._what(connection)}: {error}") from error
        return last.session_lifetime_ms

    def _ask(
        self, connection: Connection, token: bytes, deadline: Deadline
    ) -> SaslAuthenticateResponse:
        response = connection.request(
            SaslAuthenticateRequest(token), SaslAuthenticateResponse, deadline
        )
        self._check(connection, response.error_code, response.error_message)
        return response

    def _check(self, connection: Connection, code: int, message: str | None) -> None:
        if code != ErrorCode.NONE:
            reason = message or error_code(code).name
            raise AuthenticationFailed(f"{self._what(connection)}: {reason}")

    def _what(self, connection: Connection) -> str:
        return (
            f"login at broker {connection.address} as {self.username!r} "
            f"by {self.sasl_mechanism} failed"
        )


def _unusable(store: str, path: str | None, error: OSError | ValueError) -> ClientError:
    """What cannot be used, without what it says."""
    import ssl

    what = f"the PEM text of {store}" if path is None else f"{store}.location={path}"
    reason = getattr(error, "strerror", None) or str(error)
    if isinstance(error, ssl.SSLError | ValueError):
        # OpenSSL says "PEM lib" of a wrong password, too.
        reason += "; only PEM can be read"
        if store == "ssl.keystore":
            reason += ", and a key that is encrypted needs ssl.key.password"
    return ClientError(f"{what}: {reason}")


def _pem(text: str) -> str:
    """A PEM text in lines, as OpenSSL wants it. Raises ValueError if there is nothing in it."""
    parts = re.findall(_PEM_PART, text)
    if not parts:
        raise ValueError("nothing between BEGIN and END")
    return "".join(
        "\n".join([begin, *textwrap.wrap("".join(inside.split()), 64), end, ""])
        for begin, inside, end in parts
    )


@contextmanager
def _private_file(text: str) -> Iterator[str]:
    """A file that nobody else can read, and that is gone afterwards: OpenSSL takes keys from files
    only."""
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(text)
        file.flush()
        yield file.name


PLAINTEXT: Final = Security()


def security_of(properties: Mapping[str, str]) -> Security:
    """What a Kafka client's properties say; those that say nothing of security are passed over.
    `sasl.username` and `sasl.password`, librdkafka's, do as well. Raises ClientError."""
    login = _login_of(properties.get("sasl.jaas.config", ""))
    for store in ("ssl.truststore", "ssl.keystore"):
        kind = properties.get(f"{store}.type", "PEM")
        heeded = {name for name in SECURITY_PROPERTIES if name.startswith(store)}
        if kind != "PEM" and heeded & properties.keys() - {f"{store}.type"}:
            raise ClientError(f"{store}.type={kind}: only PEM can be read")
    return Security(
        protocol=properties.get("security.protocol", "PLAINTEXT").upper(),
        sasl_mechanism=properties.get("sasl.mechanism", properties.get("sasl.mechanisms", "")),
        username=login.get("username", properties.get("sasl.username", "")),
        password=login.get("password", properties.get("sasl.password", "")),
        ssl_truststore_location=properties.get("ssl.truststore.location"),
        ssl_keystore_location=properties.get("ssl.keystore.location"),
        ssl_key_password=properties.get("ssl.key.password"),
        ssl_check_hostname=properties.get("ssl.endpoint.identification.algorithm", "https") != "",
        ssl_truststore_certificates=properties.get("ssl.truststore.certificates"),
        ssl_keystore_certificate_chain=properties.get("ssl.keystore.certificate.chain"),
        ssl_keystore_key=properties.get("ssl.keystore.key"),
    )


def _login_of(jaas: str) -> dict[str, str]:
    return {
        name: re.sub(r"\\(.)", r"\1", quoted) if quoted or not bare else bare
        for name, quoted, bare in re.findall(_JAAS_OPTION, jaas)
    }
