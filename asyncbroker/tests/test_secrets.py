"""Secrets, and what strangers send in their place, are compared in constant time: a comparison that
ends at the first difference tells by its time how much of a guess is right."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from asyncbroker.protocol.scram import (
    ClientFirst,
    ScramClient,
    ScramError,
    ScramServer,
    credential_of,
    is_password,
    salt_password,
)
from asyncbroker.protocol.scram_credential import ScramCredential

ROOT = Path(__file__).parents[2]
# What has to do with logins has one of these among what it imports.
OF_LOGINS = re.compile(r"\.(scram|scram_credential|sasl|users|security)$")
SECRET = re.compile(
    r"password|proof|signature|stored_key|server_key|client_key|salted|nonce|secret|credential"
)


def modules() -> Iterator[Path]:
    """Those that may get to see a secret."""
    for folder in ("asyncbroker", "protocol", "spark"):
        for path in (ROOT / folder).glob("**/*.py"):
            if "tests" in path.parts or path.parent.is_symlink():
                continue
            imported = (
                node.module or ""
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.ImportFrom)
            )
            if path.stem.startswith("scram") or any(map(OF_LOGINS.search, imported)):
                yield path


def careless(source: str) -> list[str]:
    """Comparisons of secrets that take a time of their own: by `==`, `!=` and `in`, and of how text
    begins and ends. That one is missing, or empty, may be asked for."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Compare(left=left, ops=[ast.In() | ast.NotIn()]):
                compared = [left]
            case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq()], comparators=[right]):
                # What is written in the source is no secret.
                pair = (left, right)
                compared = [] if any(isinstance(each, ast.Constant) for each in pair) else [*pair]
            case ast.Call(func=ast.Attribute(value=text, attr="startswith" | "endswith")):
                compared = [text]
            case _:
                continue
        if any(map(is_secret, compared)):
            found.append(ast.unparse(node))
    return found


def is_secret(side: ast.expr) -> bool:
    """Whether a value is one by its name. Its length, and what is made of it, are not."""
    match side:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Subscript(slice=ast.Constant(name)):
            return bool(SECRET.search(str(name)))
        case ast.Call(func=ast.Name(id="bytes" | "str" | "_decode" | "_hash"), args=[made_of, *_]):
            return is_secret(made_of)
    return False


# A client's own nonce is no secret of the broker's, to whom it was sent.
KNOWN = {"protocol/scram.py": ["nonce.startswith(self._nonce)"]}


def test_no_secret_is_compared_but_in_constant_time() -> None:
    seen = {str(path.relative_to(ROOT)): careless(path.read_text()) for path in modules()}
    assert {"protocol/scram.py", "asyncbroker/users.py", "asyncbroker/sasl.py"} <= seen.keys()
    assert {name: found for name, found in seen.items() if found} == KNOWN


@pytest.mark.parametrize(
    "source",
    [
        "proof == ours",
        "if self._stored_key != other: pass",
        'match["nonce"] == x',
        "password in known",
        "bytes(signature) == x",
        "client.password.startswith(x)",
    ],
)
def test_what_is_careless_is_found(source: str) -> None:
    assert careless(source)


class Watched(bytes):
    """Bytes that nobody may compare in the usual way."""

    def __eq__(self, other: object) -> bool:
        raise AssertionError("a secret was compared by ==")

    __hash__ = bytes.__hash__


@pytest.mark.parametrize("password", ["pencil", "another"])
def test_a_login_compares_no_key_in_the_usual_way(password: str) -> None:
    mechanism, salt = "SCRAM-SHA-256", b"salt"
    made = credential_of(mechanism, salt_password(mechanism, b"pencil", salt, 4096), salt, 4096)
    watched = ScramCredential(
        salt, Watched(made.stored_key), Watched(made.server_key), made.iterations
    )
    client = ScramClient(mechanism, "alice", password, "mine")
    server = ScramServer(mechanism, ClientFirst.parse(client.first), watched, "theirs")
    assert server.is_of(watched)
    final = client.final(server.server_first)
    assert is_password(mechanism, watched, password.encode()) == (password == "pencil")
    if password == "pencil":
        client.check(server.finish(final))
    else:
        with pytest.raises(ScramError):
            server.finish(final)
