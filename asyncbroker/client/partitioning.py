"""Which partition a key belongs to, as Kafka's own clients see it."""

from __future__ import annotations


def partition_for(key: bytes, partition_count: int) -> int:
    """The partition of a key, as in the Java producer."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def murmur2(data: bytes) -> int:
    """The hash by which Kafka's clients choose a partition for a key, as an unsigned 32-bit number
    (`org.apache.kafka.common.utils.Utils.murmur2`)."""
    multiplier, mask = 0x5BD1E995, 0xFFFFFFFF
    length = len(data)
    whole = length & ~3
    hashed = 0x9747B28C ^ length
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little")
        word = (word * multiplier) & mask
        word = ((word ^ (word >> 24)) * multiplier) & mask
        hashed = ((hashed * multiplier) & mask) ^ word
    if length > whole:
        hashed ^= int.from_bytes(data[whole:], "little")
        hashed = (hashed * multiplier) & mask
    hashed = ((hashed ^ (hashed >> 13)) * multiplier) & mask
    return hashed ^ (hashed >> 15)
