"""SCRAM against an independent implementation (scramp), the RFC's example, and what is wrong."""

from __future__ import annotations

import base64
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scramp import ScramClient as TheirClient
from scramp import ScramMechanism

from asyncbroker.protocol.scram import (
    ClientFirst,
    ScramClient,
    ScramError,
    ScramServer,
    credential_of,
    is_password,
    salt_password,
)
from asyncbroker.protocol.scram_credential import SCRAM_MECHANISMS, ScramCredential

SHA_256 = "SCRAM-SHA-256"
SALT = bytes(range(16))
mechanisms = pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS)


def credential(mechanism: str, password: str = "pencil") -> ScramCredential:
    salted = salt_password(mechanism, password.encode(), SALT, 4096)
    return credential_of(mechanism, salted, SALT, 4096)


def server_for(first: bytes, password: str = "pencil", mechanism: str = SHA_256) -> ScramServer:
    return ScramServer(
        mechanism, ClientFirst.parse(first), credential(mechanism, password), "theirs"
    )


def login(user: str, password: str, known: str, mechanism: str = SHA_256) -> None:
    client = ScramClient(mechanism, user, password, "mine")
    server = server_for(client.first, known, mechanism)
    client.check(server.finish(client.final(server.server_first)))


def test_the_example_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = salt_password(SHA_256, b"pencil", salt, 4096)
    client = ScramClient(SHA_256, "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    assert client.first == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    server = ScramServer(
        SHA_256,
        ClientFirst.parse(client.first),
        credential_of(SHA_256, salted, salt, 4096),
        "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
    )
    final = client.final(server.server_first)
    assert final.endswith(b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    last = server.finish(final)
    assert last == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    client.check(last)


@mechanisms
def test_our_server_takes_the_login_of_another_implementation(mechanism: str) -> None:
    theirs = TheirClient([mechanism], "a,b=c", "pencil")
    server = server_for(theirs.get_client_first().encode(), mechanism=mechanism)
    theirs.set_server_first(server.server_first.decode())
    theirs.set_server_final(server.finish(theirs.get_client_final().encode()).decode())


@mechanisms
def test_our_client_logs_in_at_another_implementation(mechanism: str) -> None:
    scram = ScramMechanism(mechanism)
    theirs = scram.make_server({"a,b=c": scram.make_auth_info("pencil")}.get)
    ours = ScramClient(mechanism, "a,b=c", "pencil", "mine")
    theirs.set_client_first(ours.first.decode())
    theirs.set_client_final(ours.final(theirs.get_server_first().encode()).decode())
    ours.check(theirs.get_server_final().encode())


@mechanisms
def test_a_password_is_checked_against_its_credential(mechanism: str) -> None:
    assert is_password(mechanism, credential(mechanism), b"pencil")
    assert not is_password(mechanism, credential(mechanism), b"Pencil")


@given(st.text(min_size=1, alphabet=st.characters(exclude_categories=["Cs"])))
def test_any_name_survives_its_escaping(name: str) -> None:
    first = ScramClient(SHA_256, name, "pencil", "mine").first
    assert ClientFirst.parse(first).user == name


def test_a_wrong_password_is_found_out_by_both_sides() -> None:
    with pytest.raises(ScramError, match="the proof is wrong"):
        login("alice", "pencil", "another")
    client = ScramClient(SHA_256, "alice", "pencil", "mine")
    client.final(server_for(client.first).server_first)
    with pytest.raises(ScramError, match="does not know the password"):
        client.check(b"v=" + base64.b64encode(bytes(32)))


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (b"", "malformed"),
        (b"n,,n=alice", "malformed"),
        (b"n,,n=,r=x", "malformed"),
        (b"n,,r=x,n=alice", "malformed"),
        (b"n,,n=alice,r=a b", "malformed"),
        (b"n,,n=alice,r=x,", "malformed"),
        (b"n,,n=\xff,r=x", "not UTF-8"),
        (b"n,,n=al=ice,r=x", "escaped"),
        (b"n,,n=alice,r=x,m=y", "required"),
        (b"n,,m=y,n=alice,r=x", "malformed"),
        (b"n,,n=alice,r=x,tokenauth=true", "delegation tokens"),
        (b"n,a=bob,n=alice,r=x", "another user"),
        (b"p=tls-unique,,n=alice,r=x", "channel binding"),
        (b"n,,n=alice,r=" + b"x" * 1025, "the nonce is too long"),
        (b"n,,n=alice,r=x" + b",x=1" * 2048, "a message of 8206 bytes is too long"),
    ],
)
def test_a_wrong_first_message_is_refused(first: bytes, reason: str) -> None:
    with pytest.raises(ScramError, match=reason):
        ClientFirst.parse(first)


def test_the_right_of_oneself_may_be_asked_for() -> None:
    assert ClientFirst.parse(b"n,a=alice,n=alice,r=x").user == "alice"


def good_final(server: ScramServer) -> bytes:
    client = ScramClient(SHA_256, "alice", "pencil", "mine")
    return client.final(server.server_first)


@pytest.mark.parametrize(
    ("pattern", "instead", "reason"),
    [
        (b"c=[^,]*", b"c=" + base64.b64encode(b"y,,"), "channel binding"),
        (b"c=[^,]*", b"c=!", "base64"),
        (b"r=[^,]*", b"r=mine", "nonce"),
        (b"r=[^,]*", b"r=minetheirsand", "nonce"),
        (b",p=.*", b"", "malformed"),
        (b"p=.*", b"p=", "malformed"),
        (b"p=.*", b"p=eA==", "proof"),
        (b"p=.*", b"p=" + base64.b64encode(bytes(32)), "proof"),
        (b"p=.*", b"p=" + base64.b64encode(bytes(64)), "proof"),
        (b",p=", b",p=AAAA,p=", "the proof is wrong"),
        (b",p=", b",x=y" * 2048 + b",p=", "too long"),
        # As librdkafka did up to 2.6.0, and Kafka took up to 3.8.0.
        (b"r=", b"r=mine", "nonce"),
    ],
)
def test_a_wrong_last_message_is_refused(pattern: bytes, instead: bytes, reason: str) -> None:
    server = server_for(b"n,,n=alice,r=mine")
    with pytest.raises(ScramError, match=reason):
        server.finish(re.sub(pattern, lambda _: instead, good_final(server), count=1))


def test_a_proof_holds_for_one_login_only() -> None:
    client = ScramClient(SHA_256, "alice", "pencil", "mine")
    heard = client.final(server_for(client.first).server_first)
    other = ScramServer(
        SHA_256, ClientFirst.parse(client.first), credential(SHA_256), "another-nonce"
    )
    with pytest.raises(ScramError, match="the nonce"):
        other.finish(heard)
    with pytest.raises(ScramError, match="the proof"):
        other.finish(heard.replace(b"r=minetheirs", b"r=mineanother-nonce"))


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (b"r=mine,s=AAAA,i=4096", "continue"),
        (b"r=other,s=AAAA,i=4096", "continue"),
        (b"r=minex,s=AAAA,i=1", "1 iterations"),
        (b"r=minex,s=AAAA,i=999999999", "999999999 iterations"),
        (b"r=minex,s=AAAA", "malformed"),
        (b"r=minex,s=!,i=4096", "base64"),
    ],
)
def test_a_client_is_careful_with_what_a_broker_says(first: bytes, reason: str) -> None:
    with pytest.raises(ScramError, match=reason):
        ScramClient(SHA_256, "alice", "pencil", "mine").final(first)


def test_a_credential_shows_no_secret() -> None:
    assert repr(credential(SHA_256)) == "ScramCredential(iterations=4096)"
