"""The two metadata stores: the same behaviour, durability in SQLite, damage and other versions."""

from __future__ import annotations

import errno
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncbroker import sqlite_metadata
from asyncbroker.log.errors import DirectoryRefused
from asyncbroker.metadata_store import (
    Change,
    DeleteScramCredential,
    DeleteTopic,
    ForgetTopic,
    MemoryMetadataStore,
    MetadataStore,
    PutScramCredential,
    PutTopic,
    SetBrokerConfigs,
    SetGroupConfigs,
    SetValue,
    StoredTopic,
)
from asyncbroker.protocol.scram_credential import ScramCredential
from asyncbroker.sqlite_metadata import FILE_NAME, SCHEMA, SqliteMetadataStore, refusal_of_room


@pytest.fixture(params=["sqlite", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> MetadataStore:
    if request.param == "sqlite":
        return SqliteMetadataStore(tmp_path / FILE_NAME)
    return MemoryMetadataStore()


def topic_named(name: str, number: int, partition_count: int = 1, **configs: str) -> StoredTopic:
    return StoredTopic(name, number.to_bytes(16, "big"), partition_count, configs)


def test_a_new_store_is_empty(store: MetadataStore) -> None:
    state = store.open()
    assert (state.topics, state.deleted_topics, state.broker_configs, state.values) == (
        {},
        {},
        {},
        {},
    )
    store.close()


def test_what_was_applied_is_there_after_a_restart(store: MetadataStore) -> None:
    store.open()
    first = topic_named("first", 1, 3)
    second = topic_named("second", 2, 1, **{"retention.ms": "1000"})
    store.apply([PutTopic(first), PutTopic(second)])
    store.apply([SetValue("cluster.id", "abc"), SetBrokerConfigs("", {"max.connections": "5"})])
    store.close()
    state = store.open()
    assert state.topics == {first.topic_id: first, second.topic_id: second}
    assert state.values == {"cluster.id": "abc"}
    assert state.broker_configs == {"": {"max.connections": "5"}}
    store.close()


def test_putting_a_topic_again_replaces_its_settings_and_size(store: MetadataStore) -> None:
    store.open()
    store.apply([PutTopic(topic_named("t", 1, 1, a="1", b="2"))])
    changed = topic_named("t", 1, 4, b="3")
    store.apply([PutTopic(changed)])
    store.close()
    assert store.open().topics == {changed.topic_id: changed}
    store.close()


def test_credentials_are_kept_replaced_and_deleted(store: MetadataStore) -> None:
    first = ScramCredential(b"salt", b"stored", b"server", 4096)
    second = ScramCredential(b"other", b"stored", b"server", 8192)
    store.open()
    store.apply([PutScramCredential("alice", "A", first), PutScramCredential("alice", "B", first)])
    store.apply([PutScramCredential("alice", "A", second), DeleteScramCredential("alice", "B")])
    store.close()
    assert store.open().scram_credentials == {("alice", "A"): second}
    store.close()


def test_a_file_of_the_first_version_is_brought_up_to_this_one(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    connection = sqlite3.connect(path)
    connection.executescript(f"{SCHEMA}PRAGMA user_version = 1;")
    connection.execute("INSERT INTO metadata_values VALUES ('leader.epoch', '7')")
    connection.commit()
    connection.close()
    store = SqliteMetadataStore(path)
    credential = ScramCredential(b"salt", b"stored", b"server", 4096)
    assert store.open().values == {"leader.epoch": "7"}
    configs = {"consumer.session.timeout.ms": "50000"}
    store.apply([PutScramCredential("alice", "A", credential), SetGroupConfigs("g", configs)])
    store.close()
    state = store.open()
    assert state.scram_credentials == {("alice", "A"): credential}
    assert state.group_configs == {"g": configs}
    store.close()


def test_a_deleted_topic_is_remembered_until_its_logs_are_gone(store: MetadataStore) -> None:
    store.open()
    old, new = topic_named("t", 1), topic_named("t", 2)
    store.apply([PutTopic(old), DeleteTopic(old.topic_id), PutTopic(new)])
    store.close()
    state = store.open()
    assert state.topics == {new.topic_id: new}
    assert list(state.deleted_topics) == [old.topic_id]
    store.apply([ForgetTopic(old.topic_id), ForgetTopic(new.topic_id)])
    store.close()
    state = store.open()
    assert state.topics == {new.topic_id: new}
    assert state.deleted_topics == {}
    store.close()


def test_setting_all_of_a_brokers_settings_replaces_them(store: MetadataStore) -> None:
    store.open()
    store.apply([SetBrokerConfigs("1", {"a": "1", "b": "2"}), SetBrokerConfigs("", {"a": "0"})])
    store.apply([SetBrokerConfigs("1", {"b": "3"})])
    store.close()
    assert store.open().broker_configs == {"": {"a": "0"}, "1": {"b": "3"}}
    store.close()


def test_setting_none_of_a_groups_settings_forgets_it(store: MetadataStore) -> None:
    store.open()
    store.apply([SetGroupConfigs("g", {"a": "1", "b": "2"}), SetGroupConfigs("h", {"a": "0"})])
    store.apply([SetGroupConfigs("g", {"b": "3"}), SetGroupConfigs("h", {})])
    store.close()
    assert store.open().group_configs == {"g": {"b": "3"}}
    store.close()


CHANGES = st.one_of(
    st.builds(
        lambda number, count, configs: PutTopic(
            StoredTopic(f"t{number}", number.to_bytes(16, "big"), count, configs)
        ),
        st.integers(1, 4),
        st.integers(1, 3),
        st.dictionaries(st.sampled_from(["a", "b"]), st.text(max_size=3), max_size=2),
    ),
    st.builds(lambda number: DeleteTopic(number.to_bytes(16, "big")), st.integers(1, 4)),
    st.builds(lambda number: ForgetTopic(number.to_bytes(16, "big")), st.integers(1, 4)),
    st.builds(SetValue, st.sampled_from(["x", "y"]), st.text(max_size=3)),
    st.builds(
        SetBrokerConfigs,
        st.sampled_from(["", "1"]),
        st.dictionaries(st.sampled_from(["a", "b"]), st.text(max_size=3), min_size=1, max_size=2),
    ),
    st.builds(
        SetGroupConfigs,
        st.sampled_from(["g", "h"]),
        st.dictionaries(st.sampled_from(["a", "b"]), st.text(max_size=3), max_size=2),
    ),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(CHANGES, max_size=12))
def test_both_stores_hold_the_same_after_any_changes(changes: list[Change]) -> None:
    memory = MemoryMetadataStore()
    with tempfile.TemporaryDirectory() as directory:
        sqlite = SqliteMetadataStore(Path(directory) / FILE_NAME)
        sqlite.open()
        for change in changes:
            state = memory.open()
            if isinstance(change, DeleteTopic) and change.topic_id not in state.topics:
                continue
            if isinstance(change, PutTopic) and change.topic.topic_id in state.deleted_topics:
                continue
            sqlite.apply([change])
            memory.apply([change])
        sqlite.close()
        assert sqlite.open() == memory.open()
        sqlite.close()


def test_a_transaction_is_all_or_nothing(tmp_path: Path) -> None:
    store = SqliteMetadataStore(tmp_path / FILE_NAME)
    store.open()
    with pytest.raises(OSError, match="UNIQUE"):
        # Two topics of one name cannot exist; whoever asks has checked that before.
        store.apply(
            [
                SetValue("x", "1"),
                PutTopic(topic_named("t", 1)),
                PutTopic(topic_named("t", 2)),
            ]
        )
    store.apply([SetValue("y", "2")])
    store.close()
    state = store.open()
    assert state.topics == {}
    assert state.values == {"y": "2"}
    store.close()


def test_a_commit_is_in_the_file_when_it_returns(tmp_path: Path) -> None:
    store = SqliteMetadataStore(tmp_path / FILE_NAME)
    store.open()
    store.apply([SetValue("x", "1")])
    # As after a crash: the files as they are, without the store having been closed.
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in tmp_path.glob(f"{FILE_NAME}*"):
        (copy / path.name).write_bytes(path.read_bytes())
    store.close()
    recovered = SqliteMetadataStore(copy / FILE_NAME)
    assert recovered.open().values == {"x": "1"}
    recovered.close()


def test_a_file_of_a_later_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(DirectoryRefused, match="written by a later asyncbroker"):
        SqliteMetadataStore(path).open()


@pytest.mark.parametrize("damage", [lambda data: b"not a database" * 100, lambda data: data[:700]])
def test_a_damaged_file_is_refused(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = tmp_path / FILE_NAME
    store = SqliteMetadataStore(path)
    store.open()
    store.apply([SetValue("x", "1")])
    store.close()
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DirectoryRefused, match=FILE_NAME):
        SqliteMetadataStore(path).open()


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DirectoryRefused, match="unable to open"):
        SqliteMetadataStore(tmp_path).open()


def test_a_file_in_use_is_refused(tmp_path: Path) -> None:
    store = SqliteMetadataStore(tmp_path / FILE_NAME)
    store.open()
    store.apply([SetValue("x", "1")])
    with pytest.raises(DirectoryRefused, match="locked"):
        SqliteMetadataStore(tmp_path / FILE_NAME).open()
    store.close()


class Refusing:
    """A connection to a file whose disk refuses everything, as SQLite tells of it."""

    in_transaction = False

    def __enter__(self) -> Refusing:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def execute(self, statement: str) -> None:
        raise sqlite3.OperationalError("disk I/O error")


@pytest.mark.parametrize("code", [errno.EDQUOT, errno.ENOSPC, errno.EIO])
def test_a_quota_that_sqlite_does_not_tell_of_is_told_from_a_broken_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    store = SqliteMetadataStore(tmp_path / FILE_NAME)
    store.open()
    store.close()
    store._connection = cast(sqlite3.Connection, Refusing())

    def refused(*_: object) -> None:
        raise OSError(code, "refused")

    # What the probe meets: a quota of this user, which a test cannot set up.
    monkeypatch.setattr(sqlite_metadata, "open", refused, raising=False)
    with pytest.raises(OSError, match="disk I/O error") as caught:
        store.apply([SetValue("a", "1")])
    assert caught.value.errno == (None if code == errno.EIO else code)


def test_an_error_of_the_disk_while_there_is_room_is_no_lack_of_room(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    assert refusal_of_room(str(path)) is None
    assert list(tmp_path.iterdir()) == []
