"""Reads `listeners` and `advertised.listeners` and pairs them.

A listener has a name, a place to bind and an address that clients are told. Names map to security
protocols by `listener.security.protocol.map`; this broker speaks PLAINTEXT only, so a listener of
another protocol is refused rather than left out, which would close a door that was meant to be
open. Listeners of KRaft controllers are left out: clients never use them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from asyncbroker.settings import InvalidSetting

PORT_MAX: Final = 65535
# As DNS has it; a longer one could not be told to clients.
HOST_LENGTH_MAX: Final = 255
SERVED_PROTOCOL: Final = "PLAINTEXT"
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True, slots=True)
class Listener:
    """Where to listen (`host` empty: on all addresses; `port` 0: on a free one), and what to tell
    clients. Without an `advertised_host` the host and port that were bound are told."""

    name: str
    host: str
    port: int
    advertised_host: str | None = None
    advertised_port: int | None = None


def parse_listeners(
    listeners: tuple[str, ...],
    advertised: tuple[str, ...],
    protocol_map: str,
    controller_names: tuple[str, ...],
) -> tuple[Listener, ...]:
    """The listeners to open. InvalidSetting says which part of which setting is wrong."""
    protocols = _parse_protocol_map(protocol_map)
    told = _parse_endpoints("advertised.listeners", advertised)
    opened = []
    for name, (host, port) in _parse_endpoints("listeners", listeners).items():
        if name in controller_names:
            continue
        protocol = protocols.get(name, name)
        if protocol not in PROTOCOLS:
            raise InvalidSetting(
                f"listeners={name}: listener.security.protocol.map has no protocol for it"
            )
        if protocol != SERVED_PROTOCOL:
            raise InvalidSetting(f"listeners={name}: {protocol} is not served, only PLAINTEXT")
        advertised_host, advertised_port = told.pop(name, (None, None))
        if advertised_host in ("", "0.0.0.0", "::"):
            raise InvalidSetting(
                f"advertised.listeners={name}://{advertised_host}: "
                "clients need an address that they can connect to"
            )
        opened.append(Listener(name, host, port, advertised_host, advertised_port))
    unknown = [name for name in told if name not in controller_names]
    if unknown:
        raise InvalidSetting(f"advertised.listeners={unknown[0]}: not one of the listeners")
    if not opened:
        raise InvalidSetting("listeners: there is none for clients")
    return tuple(opened)


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
