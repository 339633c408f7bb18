"""How a client's properties are read, that secrets are not shown, and logins that expire."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from asyncbroker.client.connection import Address, Connection, Deadline
from asyncbroker.client.errors import AuthenticationFailed, ClientError
from asyncbroker.client.security import (
    PLAINTEXT,
    SECURITY_PROPERTIES,
    Security,
    security_of,
)
from asyncbroker.client.tests.scripted_broker import ScriptedBroker
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from asyncbroker.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from asyncbroker.protocol.messages.sasl_handshake import SaslHandshakeResponse

JAAS = (
    'org.apache.kafka.common.security.scram.ScramLoginModule required username="a\\"b" password={};'
)


def test_properties_without_security_are_plaintext() -> None:
    assert security_of({"acks": "all", "bootstrap.servers": "x:1"}) == PLAINTEXT


@pytest.mark.parametrize("password", ['"pen cil;="', "pencil", '"a\\\\b"'])
def test_kafkas_properties(password: str) -> None:
    security = security_of(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": JAAS.format(password),
            "ssl.truststore.location": "ca.pem",
            "ssl.keystore.location": "me.pem",
            "ssl.key.password": "k",
            "ssl.endpoint.identification.algorithm": "",
        }
    )
    plain = {'"pen cil;="': "pen cil;=", "pencil": "pencil", '"a\\\\b"': "a\\b"}[password]
    assert security == Security(
        "SASL_SSL", "SCRAM-SHA-256", 'a"b', plain, "ca.pem", "me.pem", "k", False
    )


def test_librdkafkas_names_of_user_and_password() -> None:
    security = security_of(
        {
            "security.protocol": "sasl_plaintext",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "pencil",
        }
    )
    assert security == Security("SASL_PLAINTEXT", "PLAIN", "alice", "pencil")
    # Whoever warns of what has no effect goes by these.
    assert {"sasl.mechanisms", "sasl.username", "sasl.password"} <= set(SECURITY_PROPERTIES)


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"security.protocol": "TLS"}, "security.protocol=TLS: must be one of"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism=: must be one of"),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"},
            "sasl.mechanism=GSSAPI: must be one of",
        ),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"},
            "SASL_SSL needs a user",
        ),
        (
            {"ssl.truststore.location": "x", "ssl.truststore.type": "JKS"},
            "ssl.truststore.type=JKS: only PEM",
        ),
        (
            {"ssl.keystore.key": "x", "ssl.keystore.location": "y"},
            "both ssl.keystore.location and ssl.keystore.key",
        ),
        (
            {"ssl.truststore.certificates": "x", "ssl.truststore.location": "y"},
            "both ssl.truststore.location and ssl.truststore.certificates",
        ),
        ({"ssl.keystore.key": "x"}, "ssl.keystore.key needs ssl.keystore.certificate.chain"),
        (
            {"ssl.keystore.certificate.chain": "x"},
            "ssl.keystore.certificate.chain needs ssl.keystore.key",
        ),
        (
            {"ssl.keystore.certificate.chain": "x", "ssl.keystore.type": "JKS"},
            "ssl.keystore.type=JKS: only PEM",
        ),
        ({"ssl.truststore.location": ""}, "ssl.truststore.location is empty"),
        ({"ssl.truststore.certificates": ""}, "ssl.truststore.certificates is empty"),
    ],
)
def test_what_cannot_be_is_told(properties: dict[str, str], reason: str) -> None:
    with pytest.raises(ClientError) as caught:
        security_of(properties)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("security", "reason"),
    [
        ({"ssl_truststore_location": __file__}, "only PEM can be read"),
        ({"ssl_keystore_location": __file__}, "a key that is encrypted needs ssl.key.password"),
        ({"ssl_truststore_location": "/nowhere"}, "ssl.truststore.location=/nowhere: No such file"),
        ({"ssl_truststore_certificates": "no PEM"}, "the PEM text of ssl.truststore"),
        (
            {
                "ssl_truststore_certificates": "-----BEGIN \u00c4-----\nabcd\n-----END \u00c4-----",
            },
            "the PEM text of ssl.truststore",
        ),
        (
            {"ssl_keystore_key": "secret", "ssl_keystore_certificate_chain": "secret"},
            "the PEM text of ssl.keystore",
        ),
    ],
)
def test_stores_that_cannot_be_used_are_told_without_what_they_say(
    security: dict[str, str], reason: str
) -> None:
    with pytest.raises(ClientError) as caught:
        Security("SSL", **security).connect(Address("127.0.0.1", 1), 1)  # type: ignore[arg-type]
    assert reason in str(caught.value)
    assert "secret" not in str(caught.value)


def test_secrets_are_not_shown() -> None:
    security = Security(
        "SASL_SSL",
        "PLAIN",
        "alice",
        password="secret-a",
        ssl_key_password="secret-b",
        ssl_keystore_key="secret-c",
        ssl_keystore_certificate_chain="secret-d",
        ssl_truststore_certificates="secret-e",
    )
    assert "secret" not in repr(security)
    assert "alice" in repr(security)


@pytest.mark.parametrize("store", ["truststore", "keystore"])
def test_a_file_that_cannot_be_used_is_named_before_anything_is_connected(
    tmp_path: Path, store: str
) -> None:
    path = tmp_path / "none.pem"
    security = security_of({"security.protocol": "SSL", f"ssl.{store}.location": str(path)})
    with pytest.raises(ClientError, match=rf"^ssl\.{store}\.location={path}: "):
        security.connect(Address("127.0.0.1", 1), 1.0)


# ---- logging in again (KIP-368)


class MovedTime:
    """`time` of the client's connections, at a moment that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> MovedTime:
    clock = MovedTime()
    monkeypatch.setattr("asyncbroker.client.connection.time", clock)
    return clock


def logged_in(broker: ScriptedBroker, *lifetimes_ms: int) -> Connection:
    """A connection to a broker whose logins hold for so long, one after the other."""
    broker.answers["SaslHandshake"] = SaslHandshakeResponse(mechanisms=["PLAIN"])
    broker.answers["SaslAuthenticate"] = [
        SaslAuthenticateResponse(session_lifetime_ms=lifetime) for lifetime in lifetimes_ms
    ]
    broker.answers["Heartbeat"] = HeartbeatResponse()
    security = Security("SASL_PLAINTEXT", "PLAIN", "alice", "pencil")
    address = Address("127.0.0.1", broker.port)
    return Connection.open(address, client_id="test", timeout_s=5, security=security)


def beat(connection: Connection) -> None:
    connection.request(HeartbeatRequest(), HeartbeatResponse, Deadline(5))


def test_a_login_that_expires_is_made_again_before_the_next_request(
    broker: ScriptedBroker, clock: MovedTime
) -> None:
    connection = logged_in(broker, 10_000, 20_000, 0)
    clock.now += 7.9
    beat(connection)
    clock.now += 0.1
    beat(connection)
    # The second one holds for twice as long.
    clock.now += 15.9
    beat(connection)
    clock.now += 0.1
    beat(connection)
    # The third one holds without end.
    clock.now += 1_000_000
    beat(connection)
    connection.close()
    login = ["SaslHandshake", "SaslAuthenticate"]
    beats = ["Heartbeat", *login, "Heartbeat", "Heartbeat", *login, "Heartbeat", "Heartbeat"]
    assert [name for name, _, _ in broker.requests] == ["ApiVersions", *login, *beats]
    assert broker.connection_count == 1


def test_nobody_logs_in_again_while_an_answer_is_awaited(
    broker: ScriptedBroker, clock: MovedTime
) -> None:
    connection = logged_in(broker, 10_000)
    deadline = Deadline(60)
    connection.send(HeartbeatRequest(), deadline)
    clock.now += 9
    connection.send(HeartbeatRequest(), deadline)
    for _ in range(2):
        connection.receive(HeartbeatResponse, deadline)
    assert len(broker.requests_of("SaslAuthenticate")) == 1
    beat(connection)
    assert len(broker.requests_of("SaslAuthenticate")) == 2
    connection.close()


def test_a_login_that_is_refused_the_second_time_ends_the_connection(
    broker: ScriptedBroker, clock: MovedTime
) -> None:
    connection = logged_in(broker, 10_000)
    refusal = SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, "gone")
    broker.answers["SaslAuthenticate"] = refusal
    clock.now += 9
    with pytest.raises(AuthenticationFailed, match="gone"):
        beat(connection)
    assert connection.is_closed


def test_only_tls_needs_the_module_for_it() -> None:
    script = "import sys, asyncbroker.client.connection; print('ssl' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    assert done.stdout == "False\n"
