"""The TLS of a listener: reads its PEM files and makes the context that connections begin with.

Imported when a listener has TLS, as `ssl` takes a while to import. It knows no sockets.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final

from asyncbroker.settings import InvalidSetting

if TYPE_CHECKING:
    from asyncbroker.listeners import TlsRules

VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


def server_context(rules: TlsRules) -> ssl.SSLContext:
    """What a listener shows and asks for. Raises InvalidSetting when its files cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    versions = [VERSIONS[name] for name in rules.versions]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    # A client could have us work for it again and again.
    context.options |= ssl.OP_NO_RENEGOTIATION
    try:
        # Without a password for it, a key that has one is an error, and not a question to whoever
        # sits at the terminal.
        context.load_cert_chain(rules.keystore_location, password=rules.key_password or "")
    except (OSError, ValueError) as error:
        raise InvalidSetting(
            f"ssl.keystore.location={rules.keystore_location}: {_reason(error)}"
        ) from error
    context.verify_mode = CLIENT_AUTH[rules.client_auth]
    if context.verify_mode is not ssl.CERT_NONE:
        try:
            context.load_verify_locations(rules.truststore_location)
        except (OSError, ValueError) as error:
            raise InvalidSetting(
                f"ssl.truststore.location={rules.truststore_location}: {_reason(error)}"
            ) from error
    return context


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
