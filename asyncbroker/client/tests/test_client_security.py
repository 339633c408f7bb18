"""How a client's properties are read, and that secrets are not shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from asyncbroker.client.connection import Address
from asyncbroker.client.errors import ClientError
from asyncbroker.client.security import PLAINTEXT, Security, security_of

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
    ],
)
def test_what_cannot_be_is_told(properties: dict[str, str], reason: str) -> None:
    with pytest.raises(ClientError) as caught:
        security_of(properties)
    assert reason in str(caught.value)


def test_secrets_are_not_shown() -> None:
    security = Security(
        "SASL_SSL", "PLAIN", "alice", password="secret-a", ssl_key_password="secret-b"
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
