"""The metadata in one SQLite file in the data directory, in WAL mode with an fsync for each commit.

SQLite notices neither a bit that flips in its file nor one in its WAL: `metadata_sums.py` and
`sqlite_wal.py` do.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from asyncbroker.log.errors import DirectoryRefused
from asyncbroker.log.reserve import FULL_ERRORS
from asyncbroker.metadata_store import (
    Change,
    DeleteScramCredential,
    DeleteTopic,
    ForgetTopic,
    PutScramCredential,
    PutTopic,
    SetBrokerConfigs,
    SetGroupConfigs,
    SetValue,
    StoredState,
    StoredTopic,
)
from asyncbroker.metadata_sums import MetadataSums
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
SCHEMA_VERSION: Final = 4

# Among the values of the file, and of no state: the sum of everything else.
SUM: Final = "sum"
# Where the WAL is moved into the file, in pages: all of it is held against its sums after a crash.
_WAL_PAGES: Final = 100


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
    # The sum.
    4: "",
}


class SqliteMetadataStore:
    """Keeps the state in one SQLite file, in WAL mode with an fsync for each transaction."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        self._connection: sqlite3.Connection | None = None
        self._sums: MetadataSums | None = None

    def open(self) -> StoredState:
        """Opens or creates the file. DirectoryRefused when it is none of ours, or damaged."""
        import sqlite3

        wal_path = f"{self._path}-wal"
        if os.path.exists(wal_path):
            # Imported here: there is one after a crash only.
            from asyncbroker.sqlite_wal import check_wal

            check_wal(wal_path)
        try:
            connection = sqlite3.connect(
                self._path, timeout=0, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise DirectoryRefused(f"{self._path}: {error}") from error
        try:
            self._prepare(connection)
            state = self._read(connection)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            connection.close()
            raise DirectoryRefused(f"{self._path}: {error}") from error
        except (TypeError, ValueError) as error:
            # Another number of columns, or bytes where there was text.
            connection.close()
            raise DirectoryRefused(f"{self._path} is damaged: {error}") from error
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
        connection.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
        _write_again(connection)
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > SCHEMA_VERSION:
            raise DirectoryRefused(
                f"{self._path}: written by a later asyncbroker "
                f"(format {version}, this one knows {SCHEMA_VERSION})"
            )
        if version < SCHEMA_VERSION:
            _raise_version(connection, version)
            _sync_directory(os.path.dirname(os.path.abspath(self._path)))

    def _read(self, connection: sqlite3.Connection) -> StoredState:
        """All of it, if it adds up to its sum. DirectoryRefused if not."""
        (verdict,) = connection.execute("PRAGMA integrity_check (1)").fetchone()
        state = _read_state(connection)
        total = state.values.pop(SUM, None)
        self._sums = MetadataSums(state)
        if verdict != "ok" or total != self._sums.total:
            reason = "its sum is wrong" if verdict == "ok" else verdict
            raise DirectoryRefused(f"{self._path} is damaged: {reason}")
        return state

    def apply(self, changes: Sequence[Change]) -> None:
        """Runs one transaction. An error of SQLite's is raised as OSError: it is the disk's."""
        import sqlite3

        connection, sums = self._connection, self._sums
        assert connection is not None, "the store is open"
        assert sums is not None
        try:
            # Leaving the block commits, or rolls back after an error.
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                for change in changes:
                    for statement, rows in STATEMENTS[type(change)](change):
                        connection.executemany(statement, rows)
                _put_sum(connection, sums.after(changes))
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
        sums.take(changes)

    def close(self) -> None:
        """Closes the file, which moves what the WAL holds into it."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _write_again(connection: sqlite3.Connection) -> None:
    """Moves what a WAL holds after a crash into the file, and begins a new one. An fsync that has
    failed before the crash may have left commits in memory only, which no other fsync would write;
    those of this life would come behind them."""
    import sqlite3

    try:
        connection.execute("PRAGMA wal_checkpoint (TRUNCATE)")
    except sqlite3.OperationalError as error:
        if str(error) != SQLITE_FULL:
            raise


def _raise_version(connection: sqlite3.Connection, version: int) -> None:
    """Brings a file of a version, 0 for a new one, up to this one."""
    statements = SCHEMA if version == 0 else ""
    statements += "".join(UPGRADES[each] for each in UPGRADES if each > version)
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        for statement in statements.split(";"):
            connection.execute(statement)
        _put_sum(connection, MetadataSums(_read_state(connection)).total)
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _put_sum(connection: sqlite3.Connection, total: str) -> None:
    for statement, rows in _set_value(SetValue(SUM, total)):
        connection.executemany(statement, rows)


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
