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
from collections.abc import Mapping
from dataclasses import dataclass, field
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

# How a login is written in `sasl.jaas.config`, after the name of the module.
_JAAS_OPTION: Final = r'(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s";]+))'


@dataclass(frozen=True, slots=True)
class Security:
    """What a listener asks for. Files are PEM; without `ssl_truststore_location` the certificate
    authorities of the system are trusted. Raises ClientError for what does not go together."""

    protocol: str = "PLAINTEXT"
    sasl_mechanism: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    ssl_truststore_location: str | None = None
    ssl_keystore_location: str | None = None
    ssl_key_password: str | None = field(default=None, repr=False)
    ssl_check_hostname: bool = True

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise ClientError(
                f"security.protocol={self.protocol}: must be one of {', '.join(PROTOCOLS)}"
            )
        if not self.has_login:
            return
        if self.sasl_mechanism not in MECHANISMS:
            raise ClientError(
                f"sasl.mechanism={self.sasl_mechanism}: must be one of {', '.join(MECHANISMS)}"
            )
        if not self.username:
            raise ClientError(f"{self.protocol} needs a user: sasl.jaas.config names none")

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

        truststore, keystore = self.ssl_truststore_location, self.ssl_keystore_location
        try:
            context = ssl.create_default_context(cafile=truststore)
        except (OSError, ValueError) as error:
            raise _unusable("ssl.truststore.location", truststore, error) from error
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = self.ssl_check_hostname
        if keystore is not None:
            try:
                context.load_cert_chain(keystore, password=self.ssl_key_password or "")
            except (OSError, ValueError) as error:
                raise _unusable("ssl.keystore.location", keystore, error) from error
        return context

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


def _unusable(setting: str, path: str | None, error: OSError | ValueError) -> ClientError:
    reason = getattr(error, "strerror", None) or str(error)
    return ClientError(f"{setting}={path}: {reason}")


PLAINTEXT: Final = Security()


def security_of(properties: Mapping[str, str]) -> Security:
    """What a Kafka client's properties say; those that say nothing of security are passed over.
    `sasl.username` and `sasl.password`, librdkafka's, do as well. Raises ClientError."""
    login = _login_of(properties.get("sasl.jaas.config", ""))
    for store in ("ssl.truststore", "ssl.keystore"):
        kind = properties.get(f"{store}.type", "PEM")
        if f"{store}.location" in properties and kind != "PEM":
            raise ClientError(f"{store}.type={kind}: only PEM files can be read")
    return Security(
        protocol=properties.get("security.protocol", "PLAINTEXT").upper(),
        sasl_mechanism=properties.get("sasl.mechanism", properties.get("sasl.mechanisms", "")),
        username=login.get("username", properties.get("sasl.username", "")),
        password=login.get("password", properties.get("sasl.password", "")),
        ssl_truststore_location=properties.get("ssl.truststore.location"),
        ssl_keystore_location=properties.get("ssl.keystore.location"),
        ssl_key_password=properties.get("ssl.key.password"),
        ssl_check_hostname=properties.get("ssl.endpoint.identification.algorithm", "https") != "",
    )


def _login_of(jaas: str) -> dict[str, str]:
    return {
        name: re.sub(r"\\(.)", r"\1", quoted) if quoted or not bare else bare
        for name, quoted, bare in re.findall(_JAAS_OPTION, jaas)
    }
