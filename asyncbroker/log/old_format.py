"""Tells messages of the formats before v2 from damage, so that a log that has some is refused with
the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from zlib import crc32

from asyncbroker.protocol.batches import LEADER_EPOCH_AT, LENGTH_AT, MAGIC_AT

if TYPE_CHECKING:
    from asyncbroker.log.batch_scan import Readable

# A message is looked at up to this size.
OLD_MESSAGE_BYTES_MAX: Final = 64 << 20


def is_old_format(file: Readable, position: int, limit: int) -> bool:
    """Whether a whole message of format v0 or v1 begins at `position`: its CRC-32 covers all from
    the magic on, which is where v2 has it."""
    head = file.pread(MAGIC_AT + 1, position)
    if len(head) <= MAGIC_AT or head[MAGIC_AT] not in (0, 1):
        return False
    size = int.from_bytes(head[LENGTH_AT:LEADER_EPOCH_AT], "big") - (MAGIC_AT - LEADER_EPOCH_AT)
    if not 0 < size <= min(limit - position, OLD_MESSAGE_BYTES_MAX):
        return False
    crc = int.from_bytes(head[LEADER_EPOCH_AT:MAGIC_AT], "big")
    return crc32(file.pread(size, position + MAGIC_AT)) == crc
