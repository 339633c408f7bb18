"""Against what Apache Kafka's own cleaner made of the same log, byte for byte.

`golden/kafka-4.3.1-compacted` has the `.log` files of one partition four times: what was produced
to a broker with a compaction lag that held its cleaner off, then what was there once the lag was
set to 0, and both again after more was produced. In them are all codecs, tombstones, two idempotent
producers and transactions, half of them aborted; delete.retention.ms was 2000, so that the first
pass sets delete horizons and the second drops tombstones and markers. Compressed batches are
compared by what is in them, since each library compresses in its own way.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from asyncbroker.log.checkpoints import CLEANER_OFFSETS, decode_offsets
from asyncbroker.log.config import LogConfig
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.tests.cleaner_harness import clean
from asyncbroker.log.tests.log_harness import DIRECTORY, open_log
from asyncbroker.protocol.batches import DELETE_HORIZON_BIT
from asyncbroker.protocol.records import Compression, batches, records_of, verify_crc

GOLDEN = Path(__file__).parent / "golden" / "kafka-4.3.1-compacted"
RETENTION_MS = 2000
CONFIG = LogConfig(
    segment_ms=2000,
    index_interval_bytes=300,
    is_compacted=True,
    delete_retention_ms=RETENTION_MS,
)


def logs(name: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (GOLDEN / name).glob("*.log")}


def horizons(name: str) -> set[int]:
    return {
        header.base_timestamp
        for data in logs(name).values()
        for header, _ in batches(data)
        if header.attributes & DELETE_HORIZON_BIT
    }


def cleaned_offset(name: str) -> int | None:
    path = GOLDEN / name / CLEANER_OFFSETS
    return decode_offsets(path.read_bytes())["flights", 0] if path.exists() else None


def contents(data: bytes) -> list[object]:
    """The batches: their bytes, or if they are compressed all but how."""
    found: list[object] = []
    for header, batch in batches(data):
        assert verify_crc(batch, header)
        if header.compression is Compression.NONE:
            found.append(bytes(batch))
        else:
            found.append((replace(header, size=0, crc=0), list(records_of(batch))))
    return found


@pytest.mark.parametrize(
    ("name", "now_ms"),
    [("1", max(horizons("1-after")) - RETENTION_MS), ("2", max(horizons("1-after")) + 1)],
)
def test_the_same_is_left_as_by_kafka(name: str, now_ms: int) -> None:
    files = MemoryFiles()
    files.make_directory(DIRECTORY)
    for file_name, data in logs(f"{name}-before").items():
        files.write_whole(f"{DIRECTORY}/{file_name}", data)
    log = open_log(files, config=CONFIG, is_clean=False, now_ms=now_ms)
    cleaning = clean(log, now_ms=now_ms, cleaned_offset=cleaned_offset(f"{name}-before"))
    assert cleaning.end_offset == cleaned_offset(f"{name}-after")
    made = {
        file_name: contents(files.read_whole(f"{DIRECTORY}/{file_name}"))
        for file_name in files.list_files(DIRECTORY)
        if file_name.endswith(".log")
    }
    assert made == {file_name: contents(data) for file_name, data in logs(f"{name}-after").items()}
