"""Reading and flushing in other threads while one appends."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from asyncbroker.log.config import LogConfig
from asyncbroker.log.files import RealFiles
from asyncbroker.log.tests.log_harness import append, batch, from_producer, open_log, read_all
from asyncbroker.protocol.records import batches, records_of

BATCHES = 3000


def test_readers_and_a_flusher_beside_an_appender_see_a_growing_log(tmp_path: Path) -> None:
    log = open_log(
        RealFiles(),
        directory=str(tmp_path / "flights-0"),
        config=LogConfig(segment_bytes=50_000, index_interval_bytes=500),
    )
    is_done = threading.Event()

    def append_all() -> None:
        try:
            for sequence in range(BATCHES):
                append(log, from_producer(sequence, str(sequence).encode()))
        finally:
            is_done.set()

    def read_along() -> int:
        """Reads to the end again and again; what is published is whole and in order."""
        offset = 0
        while offset < BATCHES:
            end_offset = log.end_offset
            located = log.locate(offset, 3000, end_offset=end_offset)
            if located is None:
                assert not is_done.is_set() or log.end_offset > offset
                continue
            data = located.read()
            whole = 0
            for header, part in batches(data):
                assert header.base_offset == offset
                assert header.next_offset <= end_offset
                (record,) = records_of(part, header)
                assert record.value == str(offset).encode()
                offset = header.next_offset
                whole += header.size
            assert whole == len(data)
        return offset

    def flush_along() -> int:
        durable = 0
        while durable < BATCHES:
            before = log.end_offset
            assert log.flush() >= before
            assert log.checkpoint() >= durable
            durable = log.durable_end_offset
        return durable

    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(job) for job in (append_all, read_along, read_along, flush_along)]
        for job in jobs:
            job.result()
    assert len(read_all(log)) == BATCHES
    log.close()
    assert log.segment_count > 3


def test_an_end_offset_in_the_past_is_kept_to_while_the_log_grows(tmp_path: Path) -> None:
    log = open_log(RealFiles(), directory=str(tmp_path / "flights-0"), config=LogConfig())
    for at in range(500):
        end_offset = log.end_offset
        append(log, batch(b"x" * (at % 50)))
        for offset in range(max(0, end_offset - 3), end_offset):
            located = log.locate(offset, 1 << 20, end_offset=end_offset)
            assert located is not None
            *_, (last, _) = batches(located.read())
            assert last.next_offset == end_offset
    log.close()
