"""A flipped bit in each kind of file of a data directory, found by the next start of the process.

Either the broker refuses to start and says why, or it serves: then every record that it gives is
the one that was acknowledged at that offset, whatever is missing is answered with an error, and
what lies around the damage is there.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from asyncbroker.client.cluster import Cluster, TopicPartition
from asyncbroker.client.errors import BrokerError
from asyncbroker.client.reader import Reader
from asyncbroker.protocol.batches import batches
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.records import records_of, verify_crc
from asyncbroker.tests.history.history import History, Outcome, Send
from compat_tests.chaos.load import CommitterLoad, ProducerLoad, create_topic
from compat_tests.chaos.nemesis import CHAOS_SETTINGS, ChaosBroker, flip_bit, running

PARTITIONS = 2
IDEMPOTENT: dict[str, Any] = {"enable.idempotence": True}
# In partition 1, for log starts to be written.
DELETED_BELOW = 100
# Each kind of file that there may be, and how to find the file to damage.
KINDS = {
    "an old log": "kept-0/00000000000000000000.log",
    "the newest log": "kept-0/*[1-9]*.log",
    "an offset index": "kept-0/*.index",
    "a time index": "kept-0/*.timeindex",
    "a producer snapshot": "kept-0/*.snapshot",
    "the last batches of producers": "kept-0/*.producers",
    "a topic id": "kept-0/partition.metadata",
    "leader epochs": "kept-0/leader-epoch-checkpoint",
    "recovery points": "recovery-point-offset-checkpoint",
    "log starts": "log-start-offset-checkpoint",
    "whose directory": "meta.properties",
    "the format": ".asyncbroker_format",
    "sums of checkpoints": ".asyncbroker_checksums",
    "the journal": "*journal*",
    "the metadata": "*.sqlite3",
    # The newest metadata after a kill, or that the stop was in order.
    "what only a kill or a stop leaves": "*.sqlite3-wal|.kafka_cleanshutdown",
    "groups": "__consumer_offsets-0/*.log",
}


@pytest.fixture(scope="module", params=["killed", "stopped"])
def template(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, History]:
    """A data directory with some segments, snapshots and offsets, and what was acknowledged."""
    data = tmp_path_factory.mktemp(f"damage-{request.param}") / "data"
    history = History()
    with running(data, CHAOS_SETTINGS) as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "kept", PARTITIONS)
        load = ProducerLoad(
            servers,
            "kept",
            "p",
            history,
            partitions=PARTITIONS,
            value_bytes=500,
            **IDEMPOTENT,
        )
        committer = CommitterLoad(servers, "kept", "committer", history)
        load.answers.wait_for_more(5000)
        committer.answers.wait_for_more(10)
        load.finish()
        committer.finish()
        _delete_below(servers, "kept", 1, DELETED_BELOW)
        if request.param == "killed":
            broker.kill()
    return data, history


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_is_never_served(
    template: tuple[Path, History], kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    original, history = template
    data = tmp_path / "data"
    shutil.copytree(original, data)
    files = sorted(path for pattern in KINDS[kind].split("|") for path in data.glob(pattern))
    flip_bit(files[-1], random.Random(kind))
    broker = ChaosBroker(data, CHAOS_SETTINGS)
    try:
        broker.start()
    except AssertionError:
        said = capfd.readouterr().err
        assert "cannot start" in said or "error" in said.lower()
        assert "Traceback" not in said
        return
    try:
        for place, sends in _by_place(history).items():
            _check_place(broker, place, sends)
        assert broker.is_running()
    finally:
        broker.kill()


def _delete_below(servers: str, topic: str, partition: int, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    (result,) = admin.delete_records(
        [confluent_kafka.TopicPartition(topic, partition, offset)]
    ).values()
    assert result.result(30).low_watermark == offset


def _by_place(history: History) -> dict[str, dict[int, Send]]:
    found: dict[str, dict[int, Send]] = {}
    for send in history.sends():
        assert send.outcome is Outcome.OK
        if send.place == "kept-0" or send.offset >= DELETED_BELOW:
            found.setdefault(send.place, {})[send.offset] = send
    return found


def _check_place(broker: ChaosBroker, place: str, sends: dict[int, Send]) -> None:
    topic, _, index = place.rpartition("-")
    missing = set(sends)
    failures: list[BrokerError] = []
    with Cluster(broker.bootstrap_servers) as cluster:
        partition = TopicPartition(topic, int(index))
        for offset, value in _read(cluster, partition, min(sends), max(sends) + 1, failures):
            assert sends[offset].value == value
            missing.discard(offset)
    codes = {failure.code for failure in failures}
    assert codes <= {ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR}
    # What cannot be read is said, and is no more than a batch or the partition that is offline.
    assert bool(missing) == bool(failures)
    if codes == {ErrorCode.CORRUPT_MESSAGE}:
        assert len(missing) < len(sends) / 4


def _read(
    cluster: Cluster,
    partition: TopicPartition,
    start: int,
    end: int,
    failures: list[BrokerError],
) -> Iterator[tuple[int, bytes | None]]:
    """The records from `start` on, below `end`; where there is an error, goes on behind it."""
    position = start
    while position < end:
        try:
            with Reader(cluster, {partition: position}, end_offsets={partition: end}) as reader:
                while not reader.is_done:
                    for fetched in reader.poll():
                        for header, batch in batches(fetched.records):
                            assert verify_crc(batch, header)
                            for record in records_of(batch, header):
                                if position <= record.offset < end:
                                    yield record.offset, record.value
                        position = fetched.next_offset
                return
        except BrokerError as error:
            failures.append(error)
            if error.code is not ErrorCode.CORRUPT_MESSAGE:
                return
            position += 1
