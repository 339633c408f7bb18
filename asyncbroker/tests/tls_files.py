"""Certificates for tests, made anew: of a server, of a client, and the authority of both."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)


@dataclass(frozen=True)
class TlsFiles:
    """Paths of PEM files: key and certificates in one, as Kafka has them."""

    authority: str
    server: str
    client: str
    strangers_authority: str
    stranger: str


def make_tls_files(directory: Path) -> TlsFiles:
    """For the names localhost and 127.0.0.1."""
    ours, theirs = trustme.CA(), trustme.CA()

    def issue(authority: trustme.CA, name: str) -> str:
        path = directory / f"{name}.pem"
        issued = authority.issue_cert("localhost", "127.0.0.1", common_name=name)
        key = load_pem_private_key(issued.private_key_pem.bytes(), None)
        # PKCS 8 is the one form of a key that Java reads.
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        path.write_bytes(pem + b"".join(cert.bytes() for cert in issued.cert_chain_pems))
        return str(path)

    for authority, name in ((ours, "authority"), (theirs, "other-authority")):
        authority.cert_pem.write_to_path(directory / f"{name}.pem")
    return TlsFiles(
        authority=str(directory / "authority.pem"),
        server=issue(ours, "server"),
        client=issue(ours, "client"),
        strangers_authority=str(directory / "other-authority.pem"),
        stranger=issue(theirs, "stranger"),
    )
