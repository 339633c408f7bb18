"""Which partition each row goes to: as in Kafka's Java producer, for many keys at once."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from asyncbroker.spark.extension import EXTENSION

Integers = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]

NO_PARTITION: Final = -1
"""For a record without a key: any partition will do."""

_SEED: Final = np.uint32(0x9747B28C)
_MULTIPLIER: Final = np.uint32(0x5BD1E995)
_ABOVE_SIGN: Final = np.uint32(0x7FFFFFFF)


def partitions_for(keys: pa.Array, partition_count: int) -> Integers:
    """The partition of each key (a binary array); `NO_PARTITION` for null."""
    if EXTENSION is not None:
        found = EXTENSION.partition(binary_buffers(keys), len(keys), partition_count)
        return np.frombuffer(found, np.int32).astype(np.int64)
    return partitions_portably(keys, partition_count)


def partitions_portably(keys: pa.Array, partition_count: int) -> Integers:
    """The same without the extension."""
    partitions = (murmur2_of(keys) & _ABOVE_SIGN).astype(np.int64) % partition_count
    if keys.null_count:
        partitions[np.asarray(keys.is_null())] = NO_PARTITION
    return partitions


def murmur2_of(keys: pa.Array) -> Words:
    """The hash of each key; of a null, anything. What one key takes is in `client/partitioning`:
    here a step of that is taken for all keys that are long enough for it."""
    _, offsets, data = keys.buffers()
    places = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    starts = places[:-1].astype(np.int64)
    lengths = np.diff(places).astype(np.int64)
    content = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    hashes = _SEED ^ lengths.astype(np.uint32)
    with np.errstate(over="ignore"):
        left = np.flatnonzero(lengths >= 4)
        position = 0
        while len(left):
            word = _word_at(content, starts[left] + position, 4) * _MULTIPLIER
            word = (word ^ (word >> np.uint32(24))) * _MULTIPLIER
            hashes[left] = (hashes[left] * _MULTIPLIER) ^ word
            position += 4
            left = left[lengths[left] >= position + 4]
        for rest in (1, 2, 3):
            some = np.flatnonzero(lengths % 4 == rest)
            if len(some):
                tail = _word_at(content, starts[some] + lengths[some] - rest, rest)
                hashes[some] = (hashes[some] ^ tail) * _MULTIPLIER
        hashes = (hashes ^ (hashes >> np.uint32(13))) * _MULTIPLIER
    mixed: Words = hashes ^ (hashes >> np.uint32(15))
    return mixed


def binary_buffers(array: pa.Array) -> tuple[int, pa.Buffer | None, pa.Buffer, pa.Buffer | None]:
    """A binary array as the extension takes it."""
    validity, offsets, data = array.buffers()
    return array.offset, validity, offsets, data


def _word_at(content: npt.NDArray[np.uint8], starts: Integers, size: int) -> Words:
    """Little-endian numbers of `size` bytes."""
    word = np.zeros(len(starts), np.uint32)
    for index in range(size):
        word |= content[starts + index].astype(np.uint32) << np.uint32(8 * index)
    return word
