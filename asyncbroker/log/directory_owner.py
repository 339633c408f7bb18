"""Whose data directory it is: Kafka's `meta.properties`, which names a cluster, a node and itself.

    version=1
    cluster.id=<uuid>
    node.id=<int>               `broker.id` in directories from before KRaft
    directory.id=<uuid>

A new directory gets one; a directory of another cluster or node is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from asyncbroker.log.checkpoints import (
    META_PROPERTIES,
    decode_properties,
    encode_properties,
    encode_uuid,
)
from asyncbroker.log.errors import DirectoryRefused
from asyncbroker.log.files import Files
from asyncbroker.log.offset_checkpoints import read_small


def check_owner(
    files: Files,
    path: str,
    names: dict[str, int],
    *,
    cluster_id: str | None,
    node_id: int | None,
    random_bytes: Callable[[int], bytes],
) -> dict[str, str]:
    """The properties of the directory at `path`, whose files are `names`; empty for a new one of
    which no cluster is known yet. Raises DirectoryRefused for another's; None is anybody."""
    properties_path = f"{path}/{META_PROPERTIES}"
    properties = read_small(files, properties_path, names, decode_properties) or {}
    if properties:
        for what, mine, theirs in (
            ("cluster", cluster_id, properties.get("cluster.id")),
            ("node", node_id, node_id_in(properties)),
        ):
            if None not in (mine, theirs) and mine != theirs:
                raise DirectoryRefused(
                    f"{path} belongs to {what} {theirs}; this broker's is {mine}"
                )
    elif cluster_id is not None:
        properties = {
            "version": "1",
            "cluster.id": cluster_id,
            "node.id": str(0 if node_id is None else node_id),
            "directory.id": _random_id(random_bytes),
        }
        files.write_atomically(properties_path, encode_properties(properties))
    return properties


def node_id_in(properties: Mapping[str, str]) -> int | None:
    """The node's id; None if nothing tells it."""
    node_id = properties.get("node.id", properties.get("broker.id", ""))
    return int(node_id) if node_id.isdigit() else None


def _random_id(random_bytes: Callable[[int], bytes]) -> str:
    """A Kafka uuid; not one that begins with a dash, which command lines take for an option."""
    while (text := encode_uuid(random_bytes(16))).startswith("-"):
        pass
    return text
