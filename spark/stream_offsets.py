"""Where a stream stands: the offsets in Spark's checkpoint, and how much to take next. Pure.

In the checkpoint they are JSON as Spark's own Kafka connector writes it, `{"flights":{"0":5}}`,
each the offset of the next record; a checkpoint may pass from one to the other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from asyncbroker.client.cluster import TopicPartition

Offsets = Mapping[TopicPartition, int]


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Offsets for the checkpoint, always in the same order: Spark compares the text."""
    topics: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(offsets):
        topics.setdefault(topic, {})[str(partition)] = offsets[TopicPartition(topic, partition)]
    return topics


def from_json(topics: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Offsets out of the checkpoint. Raises ValueError for those of another kind of source."""
    try:
        return {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, partitions in topics.items()
            for partition, offset in partitions.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise ValueError(
            f'The checkpoint has no offsets like {{"topicA":{{"0":23}}}}, but {topics}'
        ) from None


def backlog(starts: Offsets, ends: Offsets) -> int:
    """The number of offsets between the two."""
    return sum(max(0, end - starts.get(partition, 0)) for partition, end in ends.items())


def limited(starts: Offsets, ends: Offsets, offsets_max: int) -> dict[TopicPartition, int]:
    """Ends for a batch of about `offsets_max` offsets, in proportion to what waits in each
    partition. `starts` has all partitions of `ends`.

    Shares below one are rounded up, so that a small partition is not starved by large ones.
    """
    sizes = {p: end - starts[p] for p, end in ends.items() if end > starts[p]}
    total = sum(sizes.values())
    chosen = dict(ends)
    for partition, size in sizes.items():
        share = offsets_max * (size / total)
        count = math.ceil(share) if share < 1 else math.floor(share)
        chosen[partition] = min(ends[partition], starts[partition] + count)
    return chosen
