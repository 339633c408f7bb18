"""Reads `listeners` and `advertised.listeners` and pairs them, with what protects each of them.

A listener has a name, a place to bind and an address that clients are told. Names map to security
protocols by `listener.security.protocol.map`. How people log in is said for all listeners, or for
one by a prefix: `listener.name.internal.sasl.enabled.mechanisms`. What cannot be served is refused
rather than left out, which would close a door that was meant to be open, or open one that was meant
to be closed. Listeners of KRaft controllers are left out: clients never use them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from asyncbroker.protocol.scram_credential import SCRAM_MECHANISMS
from asyncbroker.settings import InvalidSetting, broker_settings

PORT_MAX: Final = 65535
# As DNS has it; a longer one could not be told to clients.
HOST_LENGTH_MAX: Final = 255
PLAINTEXT: Final = "PLAINTEXT"
PROTOCOLS: Final = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")

PEM: Final = "PEM"

# The mechanisms of `sasl.py`, which is imported where somebody logs in.
MECHANISMS: Final = ("PLAIN", *SCRAM_MECHANISMS)

# Settings that one listener can have for itself, by a prefix with its name.
LISTENER_PREFIX: Final = "listener.name."
LISTENER_SETTINGS: Final = (
    "connections.max.reauth.ms",
    "sasl.enabled.mechanisms",
    "ssl.client.auth",
    "ssl.enabled.protocols",
    "ssl.key.password",
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.truststore.location",
    "ssl.truststore.type",
)


@dataclass(frozen=True, slots=True)
class SaslRules:
    """How people log in through a listener. `session_ms_max`: when they have to again; 0 is never.
    `receive_bytes_max`: the largest request before they have."""

    mechanisms: tuple[str, ...]
    session_ms_max: int = 0
    failed_delay_ms: int = 100
    receive_bytes_max: int = 524288


@dataclass(frozen=True, slots=True)
class TlsRules:
    """How a listener encrypts: PEM files, TLS versions, and whether clients show a certificate."""

    keystore_location: str
    key_password: str | None = field(default=None, repr=False)
    truststore_location: str | None = None
    client_auth: str = "none"
    versions: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")


@dataclass(frozen=True, slots=True)
class Listener:
    """Where to listen (`host` empty: on all addresses; `port` 0: on a free one), and what to tell
    clients. Without an `advertised_host` the host and port that were bound are told."""

    name: str
    host: str
    port: int
    advertised_host: str | None = None
    advertised_port: int | None = None
    sasl: SaslRules | None = None
    tls: TlsRules | None = None


def parse_listeners(settings: Mapping[str, str]) -> tuple[Listener, ...]:
    """The listeners to open. InvalidSetting says which part of which setting is wrong."""
    protocols = _parse_protocol_map(_get(settings, "listener.security.protocol.map"))
    controller_names = _get(settings, "controller.listener.names")
    told = _parse_endpoints("advertised.listeners", _get(settings, "advertised.listeners") or ())
    opened = []
    for name, (host, port) in _parse_endpoints("listeners", _get(settings, "listeners")).items():
        if name in controller_names:
            continue
        protocol = protocols.get(name, name)
        if protocol not in PROTOCOLS:
            raise InvalidSetting(
                f"listeners={name}: listener.security.protocol.map has no protocol for it"
            )
        advertised_host, advertised_port = told.pop(name, (None, None))
        if advertised_host in ("", "0.0.0.0", "::"):
            raise InvalidSetting(
                f"advertised.listeners={name}://{advertised_host}: "
                "clients need an address that they can connect to"
            )
        sasl = _sasl_rules(settings, name) if protocol.startswith("SASL_") else None
        tls = _tls_rules(settings, name) if protocol.endswith("SSL") else None
        opened.append(Listener(name, host, port, advertised_host, advertised_port, sasl, tls))
    unknown = [name for name in told if name not in controller_names]
    if unknown:
        raise InvalidSetting(f"advertised.listeners={unknown[0]}: not one of the listeners")
    if not opened:
        raise InvalidSetting("listeners: there is none for clients")
    return tuple(opened)


def is_for_one_listener(name: str) -> bool:
    """Whether a setting is one of `LISTENER_SETTINGS` with the prefix of a listener."""
    rest = name.removeprefix(LISTENER_PREFIX)
    return rest != name and rest.partition(".")[2] in LISTENER_SETTINGS


def _get(settings: Mapping[str, str], name: str, listener: str = "") -> Any:
    """The value of a setting: of a listener, of all of them, or its default."""
    row = broker_settings()[name]
    for each in (f"{LISTENER_PREFIX}{listener.lower()}.{name}", name):
        if each in settings:
            return row.parse(settings[each])
    return row.default_value()


def _sasl_rules(settings: Mapping[str, str], listener: str) -> SaslRules:
    mechanisms = _get(settings, "sasl.enabled.mechanisms", listener)
    for mechanism in mechanisms:
        if mechanism not in MECHANISMS:
            raise InvalidSetting(
                f"sasl.enabled.mechanisms={mechanism}: only {', '.join(MECHANISMS)} are served"
            )
    if not mechanisms:
        raise InvalidSetting(f"sasl.enabled.mechanisms: listener {listener} needs one")
    return SaslRules(
        mechanisms=tuple(dict.fromkeys(mechanisms)),
        session_ms_max=max(0, _get(settings, "connections.max.reauth.ms", listener)),
        failed_delay_ms=_get(settings, "connection.failed.authentication.delay.ms"),
        receive_bytes_max=_get(settings, "sasl.server.max.receive.size"),
    )


def _tls_rules(settings: Mapping[str, str], listener: str) -> TlsRules:
    for store in ("ssl.keystore", "ssl.truststore"):
        kind = _get(settings, f"{store}.type", listener)
        if kind != PEM and _get(settings, f"{store}.location", listener):
            raise InvalidSetting(f"{store}.type={kind}: only {PEM} is served")
    keystore = _get(settings, "ssl.keystore.location", listener)
    if not keystore:
        raise InvalidSetting(
            f"ssl.keystore.location: listener {listener} needs a file with its key and certificates"
        )
    truststore = _get(settings, "ssl.truststore.location", listener)
    client_auth = _get(settings, "ssl.client.auth", listener)
    if client_auth != "none" and not truststore:
        raise InvalidSetting(
            f"ssl.client.auth={client_auth}: listener {listener} needs ssl.truststore.location"
        )
    return TlsRules(
        keystore_location=keystore,
        key_password=_get(settings, "ssl.key.password", listener),
        truststore_location=truststore,
        client_auth=client_auth,
        versions=_get(settings, "ssl.enabled.protocols", listener),
    )


def _parse_endpoints(setting: str, texts: tuple[str, ...]) -> dict[str, tuple[str, int]]:
    endpoints: dict[str, tuple[str, int]] = {}
    for text in texts:
        name, separator, address = text.partition("://")
        host, colon, port = address.rpartition(":")
        if not (name and separator and colon and port.isdecimal() and int(port) <= PORT_MAX):
            raise InvalidSetting(f"{setting}={text}: must be NAME://HOST:PORT")
        if len(host) > HOST_LENGTH_MAX:
            raise InvalidSetting(f"{setting}={text}: no host has so long a name")
        name = name.upper()
        if name in endpoints:
            raise InvalidSetting(f"{setting}={text}: there are two listeners {name}")
        endpoints[name] = (host.removeprefix("[").removesuffix("]"), int(port))
    return endpoints


def _parse_protocol_map(text: str) -> Mapping[str, str]:
    protocols = {}
    for item in filter(None, text.split(",")):
        name, colon, protocol = item.strip().partition(":")
        if not colon or protocol.upper() not in PROTOCOLS:
            raise InvalidSetting(
                f"listener.security.protocol.map={item}: must be NAME:PROTOCOL, "
                f"with one of {', '.join(PROTOCOLS)}"
            )
        protocols[name.upper()] = protocol.upper()
    return protocols
