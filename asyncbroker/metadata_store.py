"""What the broker knows besides its logs: topics, settings, users, and two counters.

`MetadataStore` is the seam. A store is loaded once, at start; from then on it is told changes, and
`apply` returns when they are durable, all or none. The state in force is kept by whoever asked for
the changes (`topics.py`, `broker.py`): a store is never asked while requests are served.

`SqliteMetadataStore` keeps one file in the data directory. `MemoryMetadataStore` outlives the
broker that uses it as long as the object is kept, which is what memory-only brokers and simulations
of a restart need; it does without SQLite, whose import alone would be a tenth of a start.

Both are called from one thread at a time (`metadata_writer.py` sees to it).
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from asyncbroker.log.errors import DirectoryRefused
from asyncbroker.log.reserve import FULL_ERRORS
from asyncbroker.protocol.scram_credential import ScramCredential

if TYPE_CHECKING:
    import sqlite3

FILE_NAME: Final = "asyncbroker.sqlite3"

# What SQLite says of a full disk. (Only Python 3.11 has its code as well.)
SQLITE_FULL: Final = "database or disk is full"
# And of every other error of the disk, an exceeded quota among them, without saying which.
SQLITE_IO_ERROR: Final = "disk I/O error"
# More than a transaction writes at once.
_PROBE_BYTES: Final = 64 << 10

# A file of a later version is refused, an earlier one brought up to this one.
SCHEMA_VERSION: Final = 3


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

    # The counters: leader.epoch and next.producer.id. (The cluster's id is in meta.properties.)
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


SCHEMA: Final = """
CREATE TABLE topics (
    topic_id BLOB PRIMARY KEY, name TEXT NOT NULL, partition_count INTEGER NOT NULL,
    is_deleted INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE UNIQUE INDEX topics_by_name ON topics (name) WHERE NOT is_deleted;
CREATE TABLE topic_configs (
    topic_id BLOB NOT NULL REFERENCES topics ON DELETE CASCADE, name TEXT NOT NULL,
    value TEXT NOT NULL, PRIMARY KEY (topic_id, name)
) WITHOUT ROWID;
CREATE TABLE broker_configs (
    resource TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (resource, name)
) WITHOUT ROWID;
CREATE TABLE metadata_values (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""

# What each later version added, by the version that it began with.
UPGRADES: Final = {
    2: """
CREATE TABLE scram_credentials (
    user TEXT NOT NULL, mechanism TEXT NOT NULL, salt BLOB NOT NULL, stored_key BLOB NOT NULL,
    server_key BLOB NOT NULL, iterations INTEGER NOT NULL, PRIMARY KEY (user, mechanism)
) WITHOUT ROWID;
""",
    3: """
CREATE TABLE group_configs (
    group_id TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (group_id, name)
) WITHOUT ROWID;
""",
}


class SqliteMetadataStore:
    """Keeps the state in one SQLite file, in WAL mode with an fsync for each transaction."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        self._connection: sqlite3.Connection | None = None

    def open(self) -> StoredState:
        """Opens or creates the file. DirectoryRefused when it is none of ours."""
        import sqlite3

        try:
            connection = sqlite3.connect(
                self._path, timeout=0, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise DirectoryRefused(f"{self._path}: {error}") from error
        try:
            self._prepare(connection)
            state = _read_state(connection)
        except sqlite3.Error as error:
            connection.close()
            raise DirectoryRefused(f"{self._path}: {error}") from error
        except DirectoryRefused:
            connection.close()
            raise
        self._connection = connection
        return state

    def _prepare(self, connection: sqlite3.Connection) -> None:
        # An exclusive lock keeps the WAL index out of shared memory, which network file systems
        # lack, and other processes out of the file.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = WAL")
        # Each commit ends with an fdatasync of the WAL, each checkpoint with one of the file; a new
        # WAL gets its header and its name synced first. (Less than FULL leaves out the first.)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > SCHEMA_VERSION:
            raise DirectoryRefused(
                f"{self._path}: written by a later asyncbroker "
                f"(format {version}, this one knows {SCHEMA_VERSION})"
            )
        if version < SCHEMA_VERSION:
            statements = SCHEMA if version == 0 else ""
            statements += "".join(UPGRADES[each] for each in UPGRADES if each > version)
            connection.executescript(
                f"BEGIN;{statements}PRAGMA user_version = {SCHEMA_VERSION};COMMIT;"
            )
            _sync_directory(os.path.dirname(os.path.abspath(self._path)))

    def apply(self, changes: Sequence[Change]) -> None:
        """Runs one transaction. An error of SQLite's is raised as OSError: it is the disk's."""
        import sqlite3

        connection = self._connection
        assert connection is not None, "the store is open"
        try:
            # Leaving the block commits, or rolls back after an error.
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                for change in changes:
                    for statement, rows in STATEMENTS[type(change)](change):
                        connection.executemany(statement, rows)
        except sqlite3.Error as error:
            # Python 3.10 leaves a transaction open whose commit failed.
            if connection.in_transaction:
                connection.rollback()
            message = f"{self._path}: {error}"
            if str(error) == SQLITE_FULL:
                raise OSError(errno.ENOSPC, message) from error
            if str(error) == SQLITE_IO_ERROR and (reason := refusal_of_room(self._path)):
                raise OSError(reason, message) from error
            raise OSError(message) from error

    def close(self) -> None:
        """Closes the file, which moves what the WAL holds into it."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def refusal_of_room(path: str) -> int | None:
    """ENOSPC or EDQUOT if a file beside `path` may not grow by what a transaction takes."""
    probe = f"{path}-probe"
    try:
        with open(probe, "wb") as file:
            file.write(os.urandom(_PROBE_BYTES))
    except OSError as error:
        return error.errno if error.errno in FULL_ERRORS else None
    finally:
        with contextlib.suppress(OSError):
            os.remove(probe)
    return None


# SQL with the rows to run it for.
Statement = tuple[str, list[tuple[Any, ...]]]


def _put_topic(change: PutTopic) -> Iterator[Statement]:
    topic = change.topic
    yield (
        "INSERT INTO topics (topic_id, name, partition_count) VALUES (?, ?, ?)"
        " ON CONFLICT (topic_id) DO UPDATE SET partition_count = excluded.partition_count",
        [(topic.topic_id, topic.name, topic.partition_count)],
    )
    yield "DELETE FROM topic_configs WHERE topic_id = ?", [(topic.topic_id,)]
    yield (
        "INSERT INTO topic_configs VALUES (?, ?, ?)",
        [(topic.topic_id, name, value) for name, value in topic.configs.items()],
    )


def _delete_topic(change: DeleteTopic) -> Iterator[Statement]:
    yield "UPDATE topics SET is_deleted = 1 WHERE topic_id = ?", [(change.topic_id,)]


def _forget_topic(change: ForgetTopic) -> Iterator[Statement]:
    yield "DELETE FROM topics WHERE topic_id = ? AND is_deleted", [(change.topic_id,)]


def _set_broker_configs(change: SetBrokerConfigs) -> Iterator[Statement]:
    yield "DELETE FROM broker_configs WHERE resource = ?", [(change.resource,)]
    yield (
        "INSERT INTO broker_configs VALUES (?, ?, ?)",
        [(change.resource, name, value) for name, value in change.configs.items()],
    )


def _set_group_configs(change: SetGroupConfigs) -> Iterator[Statement]:
    yield "DELETE FROM group_configs WHERE group_id = ?", [(change.group_id,)]
    yield (
        "INSERT INTO group_configs VALUES (?, ?, ?)",
        [(change.group_id, name, value) for name, value in change.configs.items()],
    )


def _put_scram_credential(change: PutScramCredential) -> Iterator[Statement]:
    credential = change.credential
    yield (
        "INSERT OR REPLACE INTO scram_credentials VALUES (?, ?, ?, ?, ?, ?)",
        [
            (
                change.user,
                change.mechanism,
                credential.salt,
                credential.stored_key,
                credential.server_key,
                credential.iterations,
            )
        ],
    )


def _delete_scram_credential(change: DeleteScramCredential) -> Iterator[Statement]:
    yield (
        "DELETE FROM scram_credentials WHERE user = ? AND mechanism = ?",
        [(change.user, change.mechanism)],
    )


def _set_value(change: SetValue) -> Iterator[Statement]:
    yield (
        "INSERT INTO metadata_values VALUES (?, ?)"
        " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        [(change.name, change.value)],
    )


STATEMENTS: Final[dict[type, Callable[[Any], Iterator[Statement]]]] = {
    PutTopic: _put_topic,
    DeleteTopic: _delete_topic,
    ForgetTopic: _forget_topic,
    SetBrokerConfigs: _set_broker_configs,
    SetGroupConfigs: _set_group_configs,
    PutScramCredential: _put_scram_credential,
    DeleteScramCredential: _delete_scram_credential,
    SetValue: _set_value,
}


def _read_state(connection: sqlite3.Connection) -> StoredState:
    state = StoredState(values=dict(connection.execute("SELECT * FROM metadata_values")))
    configs: dict[bytes, dict[str, str]] = {}
    for topic_id, name, value in connection.execute("SELECT * FROM topic_configs"):
        configs.setdefault(topic_id, {})[name] = value
    for topic_id, name, partition_count, is_deleted in connection.execute(
        "SELECT topic_id, name, partition_count, is_deleted FROM topics ORDER BY name"
    ):
        topic = StoredTopic(name, topic_id, partition_count, configs.get(topic_id, {}))
        (state.deleted_topics if is_deleted else state.topics)[topic_id] = topic
    for resource, name, value in connection.execute("SELECT * FROM broker_configs"):
        state.broker_configs.setdefault(resource, {})[name] = value
    for group_id, name, value in connection.execute("SELECT * FROM group_configs"):
        state.group_configs.setdefault(group_id, {})[name] = value
    for user, mechanism, *parts in connection.execute("SELECT * FROM scram_credentials"):
        state.scram_credentials[user, mechanism] = ScramCredential(*parts)
    return state


def _sync_directory(path: str) -> None:
    """Makes the name of the new file durable, since SQLite syncs the directory only for some files;
    and the removal of the journal that the change to WAL needed: it would undo that, if it came
    back beside a WAL with commits."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
