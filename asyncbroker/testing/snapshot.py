"""The whole state of a broker, taken out and put back: files and metadata, as plain bytes.

What a broker knows is in its files and its metadata store, so a copy of these is all there is:
topics with their ids and settings, records, groups with members and offsets, producer ids with
their last batches, settings of the broker. Copies are made through the `Files` seam, in memory and
in a directory alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from asyncbroker.metadata_store import (
    Change,
    DeleteTopic,
    PutScramCredential,
    PutTopic,
    SetBrokerConfigs,
    SetGroupConfigs,
    SetValue,
    StoredState,
)

if TYPE_CHECKING:
    from asyncbroker.log.files import Files


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A broker's state at one moment; it can be restored any number of times."""

    directories: tuple[str, ...] = field(repr=False)
    files: dict[str, bytes] = field(repr=False)
    # Of a broker in memory; in a directory it is in a file.
    metadata: StoredState | None = field(repr=False)

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return sum(map(len, self.files.values()))


def copy_files(files: Files, root: str, metadata: StoredState | None) -> Snapshot:
    """Everything below `root`, by its path from there. Nothing may write meanwhile."""
    directories = tuple(_walk(files, root, ""))
    return Snapshot(
        directories,
        {
            f"{directory}/{name}": files.read_whole(f"{root}{directory}/{name}")
            for directory in directories
            for name in files.list_files(root + directory)
        },
        metadata,
    )


def write_files(snapshot: Snapshot, files: Files, root: str) -> None:
    """Makes `root` what it was; nothing else stays there."""
    files.remove_tree(root)
    for directory in snapshot.directories:
        files.make_directory(root + directory)
    for path, data in snapshot.files.items():
        files.write_whole(root + path, data)


def changes_to(state: StoredState) -> Iterator[Change]:
    """What makes an empty store one of this state."""
    for topic in (*state.topics.values(), *state.deleted_topics.values()):
        yield PutTopic(topic)
    for topic_id in state.deleted_topics:
        yield DeleteTopic(topic_id)
    for resource, configs in state.broker_configs.items():
        yield SetBrokerConfigs(resource, dict(configs))
    for group_id, configs in state.group_configs.items():
        yield SetGroupConfigs(group_id, dict(configs))
    for (user, mechanism), credential in state.scram_credentials.items():
        yield PutScramCredential(user, mechanism, credential)
    for name, value in state.values.items():
        yield SetValue(name, value)


def _walk(files: Files, root: str, directory: str) -> Iterator[str]:
    """A directory and all below it, as "" and "/name" and "/name/name"."""
    yield directory
    for name in files.list_directories(root + directory):
        yield from _walk(files, root, f"{directory}/{name}")
