"""Decoded messages as plain values: what JSON can hold, bounded, without secrets.

Record batches become what their headers say, with the first records of those that are not too
large. Bytes are hexadecimal; topic ids are hexadecimal too, as that needs no rule of its own.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from asyncbroker.protocol.records import CorruptBatch, batches, records_of
from asyncbroker.tracing.secrets import WITHHELD, is_secret_field, is_secret_setting

BYTES_SHOWN_MAX: Final = 256
ITEMS_SHOWN_MAX: Final = 1000
BATCHES_SHOWN_MAX: Final = 20
RECORDS_SHOWN_MAX: Final = 20

# What a batch may expand to for being looked into.
DECOMPRESSED_BYTES_MAX: Final = 4 * 1024 * 1024


def plain(message: Any) -> Any:
    """A message, or a part of one, as dicts, lists and scalars."""
    if dataclasses.is_dataclass(message):
        return _plain_message(message)
    if isinstance(message, (list, tuple)):
        shown = [plain(item) for item in message[:ITEMS_SHOWN_MAX]]
        if len(message) > ITEMS_SHOWN_MAX:
            shown.append(f"... {len(message) - ITEMS_SHOWN_MAX} more")
        return shown
    if isinstance(message, (bytes, bytearray, memoryview)):
        return hex_text(message)
    return message


def hex_text(data: bytes | bytearray | memoryview) -> str:
    """Bytes as hexadecimal digits; of many, the first and how many there are."""
    shown = bytes(data[:BYTES_SHOWN_MAX]).hex()
    return shown if len(data) <= BYTES_SHOWN_MAX else f"{shown}... ({len(data)} bytes)"


def bytes_text(data: bytes | None) -> str | None:
    """A key or value: as text where it is UTF-8 and visible, otherwise as hexadecimal digits."""
    if data is None:
        return None
    cut = data[:BYTES_SHOWN_MAX]
    try:
        text = cut.decode()
    except UnicodeDecodeError:
        return "0x" + hex_text(data)
    if not text.isprintable():
        return "0x" + hex_text(data)
    return text if len(data) <= BYTES_SHOWN_MAX else f"{text}... ({len(data)} bytes)"


def record_values(response: Any) -> list[bytes | None]:
    """The values of all records that a Fetch brought. Raises CorruptBatch."""
    return [
        record.value
        for topic in response.responses
        for row in topic.partitions
        for header, batch in batches(row.records or b"")
        for record in records_of(batch, header)
    ]


def _plain_message(message: Any) -> dict[str, Any]:
    values: dict[str, Any] = {}
    is_secret = is_secret_setting(getattr(message, "name", None))
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        if is_secret_field(field.name) or (is_secret and field.name == "value"):
            values[field.name] = None if value is None else WITHHELD
        elif field.name == "records":
            values[field.name] = plain_records(value)
        else:
            values[field.name] = plain(value)
    return values


def plain_records(value: Any) -> Any:
    """The batches of a RECORDS field; only their size where they lie elsewhere."""
    if value is None:
        return None
    if not isinstance(value, (bytes, bytearray, memoryview)):
        return {"bytes": value.size}
    shown: list[Any] = []
    try:
        for header, batch in batches(value):
            if len(shown) == BATCHES_SHOWN_MAX:
                shown.append("... more")
                break
            shown.append(_plain_batch(header, batch))
    except CorruptBatch as error:
        shown.append({"damaged": str(error)})
    return shown


def _plain_batch(header: Any, batch: memoryview) -> dict[str, Any]:
    values: dict[str, Any] = {
        "base_offset": header.base_offset,
        "bytes": header.size,
        "record_count": header.record_count,
        "compression": header.compression.name.lower(),
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
    }
    if header.is_control or header.is_transactional:
        values |= {"is_control": header.is_control, "is_transactional": header.is_transactional}
    try:
        records: list[Any] = []
        for record in records_of(batch, header, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX):
            if len(records) == RECORDS_SHOWN_MAX:
                break
            records.append(
                {
                    "offset": record.offset,
                    "timestamp": record.timestamp,
                    "key": bytes_text(record.key),
                    "value": bytes_text(record.value),
                    "headers": [[name, bytes_text(content)] for name, content in record.headers],
                }
            )
    except CorruptBatch as error:
        values["damaged"] = str(error)
    else:
        values["records"] = records
    return values
