"""What the broker knows besides its logs: topics, settings, users, and single values.

`MetadataStore` is the seam. A store is loaded once, at start; from then on it is told changes, and
`apply` returns when they are durable, all or none. The state in force is kept by whoever asked for
the changes (`topics.py`, `broker.py`): a store is never asked while requests are served.

`sqlite_metadata.py` keeps it in one file in the data directory. `MemoryMetadataStore` outlives the
broker that uses it as long as the object is kept, which is what memory-only brokers and simulations
of a restart need; it does without SQLite, whose import alone would be a tenth of a start.

Both are called from one thread at a time (`metadata_writer.py` sees to it).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from asyncbroker.protocol.scram_credential import ScramCredential


@dataclass(frozen=True, slots=True)
class StoredTopic:
    """A topic as it is kept: its 16-byte id never changes, and no other topic ever has it."""

    name: str
    topic_id: bytes
    partition_count: int
    configs: dict[str, str]


@dataclass(slots=True)
class StoredState:
    """Everything a store holds."""

    topics: dict[bytes, StoredTopic] = field(default_factory=dict)

    # Topics whose logs may still be there: deleted, but not yet known to be gone.
    deleted_topics: dict[bytes, StoredTopic] = field(default_factory=dict)

    # Dynamic settings by resource: "" for all brokers, or the id of one.
    broker_configs: dict[str, dict[str, str]] = field(default_factory=dict)

    # What was set for single groups, by their ids.
    group_configs: dict[str, dict[str, str]] = field(default_factory=dict)

    # What users log in by, by user and mechanism.
    scram_credentials: dict[tuple[str, str], ScramCredential] = field(default_factory=dict)

    # Counters, as leader.epoch and next.producer.id, and what else has a name and one value. (The
    # cluster's id is in meta.properties.)
    values: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PutTopic:
    """A topic is created, or has other settings or more partitions than before."""

    topic: StoredTopic

    def apply_to(self, state: StoredState) -> None:
        """Brings the topic in, in place of what it was."""
        state.topics[self.topic.topic_id] = self.topic


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """A topic is deleted; its logs are still there."""

    topic_id: bytes

    def apply_to(self, state: StoredState) -> None:
        """Keeps the topic as one whose logs must go."""
        state.deleted_topics[self.topic_id] = state.topics.pop(self.topic_id)


@dataclass(frozen=True, slots=True)
class ForgetTopic:
    """The logs of a deleted topic are gone."""

    topic_id: bytes

    def apply_to(self, state: StoredState) -> None:
        """Nothing is left to do for the topic."""
        state.deleted_topics.pop(self.topic_id, None)


@dataclass(frozen=True, slots=True)
class SetBrokerConfigs:
    """All dynamic settings of one broker, or (resource "") of all."""

    resource: str
    configs: dict[str, str]

    def apply_to(self, state: StoredState) -> None:
        """Takes the place of all earlier settings of the resource."""
        state.broker_configs[self.resource] = self.configs


@dataclass(frozen=True, slots=True)
class SetGroupConfigs:
    """All settings of one group's own; none of them means that it has none any more."""

    group_id: str
    configs: dict[str, str]

    def apply_to(self, state: StoredState) -> None:
        """Takes the place of all earlier settings of the group."""
        if self.configs:
            state.group_configs[self.group_id] = self.configs
        else:
            state.group_configs.pop(self.group_id, None)


@dataclass(frozen=True, slots=True)
class PutScramCredential:
    """What a user logs in by with one mechanism."""

    user: str
    mechanism: str
    credential: ScramCredential

    def apply_to(self, state: StoredState) -> None:
        """Takes the place of the earlier one."""
        state.scram_credentials[self.user, self.mechanism] = self.credential


@dataclass(frozen=True, slots=True)
class DeleteScramCredential:
    """A user does not log in by this mechanism any more."""

    user: str
    mechanism: str

    def apply_to(self, state: StoredState) -> None:
        """Forgets the credential."""
        state.scram_credentials.pop((self.user, self.mechanism), None)


@dataclass(frozen=True, slots=True)
class SetValue:
    """A single value, by name."""

    name: str
    value: str

    def apply_to(self, state: StoredState) -> None:
        """Takes the place of the earlier value."""
        state.values[self.name] = self.value


Change = (
    PutTopic
    | DeleteTopic
    | ForgetTopic
    | SetBrokerConfigs
    | SetGroupConfigs
    | PutScramCredential
    | DeleteScramCredential
    | SetValue
)


class MetadataStore(Protocol):
    """Durable metadata. Every method may block."""

    def open(self) -> StoredState:
        """Opens the store, creating it when it is new, and reads it all."""

    def apply(self, changes: Sequence[Change]) -> None:
        """Makes all of `changes` durable, or none of them and raises OSError."""

    def close(self) -> None:
        """Ends the use of the store; it can be opened again."""


class MemoryMetadataStore:
    """Keeps the state in this object."""

    def __init__(self) -> None:
        self._state = StoredState()

    def open(self) -> StoredState:
        """A copy of what earlier users of this object have left."""
        return StoredState(
            topics=dict(self._state.topics),
            deleted_topics=dict(self._state.deleted_topics),
            broker_configs=dict(self._state.broker_configs),
            group_configs=dict(self._state.group_configs),
            scram_credentials=dict(self._state.scram_credentials),
            values=dict(self._state.values),
        )

    def apply(self, changes: Sequence[Change]) -> None:
        """Brings the changes into the state."""
        for change in changes:
            change.apply_to(self._state)

    def close(self) -> None:
        """Keeps the state for the next user."""
