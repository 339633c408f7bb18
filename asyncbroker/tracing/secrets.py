"""What must be neither shown nor recorded: credentials, by the names that Kafka gives them.

Messages carry credentials in fields of their own (`auth_bytes` and the like) and as the values of
settings (`sasl.jaas.config`). Whole APIs whose bodies are credentials are not looked into at all.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Final

from asyncbroker.protocol.api import API_BY_KEY
from asyncbroker.protocol.errors import ProtocolError
from asyncbroker.protocol.headers import decode_request_header

WITHHELD: Final = "(withheld)"

SECRET_APIS: Final = frozenset({36, 38, 39, 40, 41, 50, 51})
"""SaslAuthenticate, delegation tokens, SCRAM credentials."""

_CONFIG_APIS: Final = frozenset({19, 33, 44})
"""CreateTopics, AlterConfigs, IncrementalAlterConfigs: requests that carry settings."""

_SECRET_FIELDS: Final = frozenset(
    {"auth_bytes", "hmac", "salt", "salted_password", "password", "token", "secret"}
)
_SECRET_SETTING: Final = re.compile(
    r"password|secret|jaas|credential|token|keystore\.key|private", re.I
)


def is_secret_field(name: str) -> bool:
    """Whether a field of a message holds a credential."""
    return name in _SECRET_FIELDS


def is_secret_setting(name: object) -> bool:
    """Whether a setting's value is a credential."""
    return isinstance(name, str) and _SECRET_SETTING.search(name) is not None


def without_secrets(
    api_key: int, version: int, frame: bytes | bytearray
) -> bytes | bytearray | None:
    """A request's frame for a recording: as it is, or with the values of secret settings
    withheld; None for one that must not be kept at all."""
    if api_key in SECRET_APIS:
        return None
    api = API_BY_KEY.get(api_key)
    if api_key not in _CONFIG_APIS or api is None or version not in api.versions:
        return frame
    try:
        _, position = decode_request_header(frame)
        message, _ = api.request_codec(version).decode_prefix(frame, position)
    except ProtocolError:
        return None
    if not _withhold(message):
        return frame
    return bytes(frame[:position]) + api.request_codec(version).encode(message)


def _withhold(message: Any) -> bool:
    """Takes the values of secret settings out of a message; whether there were any."""
    found = False
    name = getattr(message, "name", None)
    if is_secret_setting(name) and isinstance(getattr(message, "value", None), str):
        message.value = WITHHELD
        found = True
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        for item in value if isinstance(value, list) else [value]:
            if dataclasses.is_dataclass(item):
                found |= _withhold(item)
    return found
