"""The journal of a real process: too small for its load, of another size at each start, damaged or
gone when a killed process is started again, and replays that are killed themselves.

A killed process leaves what it wrote in the page cache. So nothing is lost whatever becomes of its
journal, as long as no start writes anything from it to where it does not belong.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from asyncbroker.log.journal import FILE_BYTES_MIN, JOURNAL
from asyncbroker.log.journal_frames import BLOCK_BYTES, RING_BEGIN
from asyncbroker.tests.history.history import End, Ended, History
from asyncbroker.tests.long import IS_LONG
from compat_tests.chaos.load import (
    CommitterLoad,
    ProducerLoad,
    assert_kept,
    create_topic,
    read_all,
)
from compat_tests.chaos.nemesis import running
from compat_tests.conftest import SETTINGS

PARTITIONS: Final = 4
IDEMPOTENT: Final[dict[str, Any]] = {"enable.idempotence": True, "acks": "all"}
# A start that is killed so soon has read nothing yet, or is in its replay, or in its recovery.
START_SECONDS_MAX: Final = 0.8
# 0 is none.
SIZES: Final = (FILE_BYTES_MIN, 0, 16 * FILE_BYTES_MIN, FILE_BYTES_MIN)


def keep(_path: Path, _chance: random.Random) -> None:
    """A sane journal is replayed."""


def remove(path: Path, _chance: random.Random) -> None:
    path.unlink(missing_ok=True)


def cut(path: Path, chance: random.Random) -> None:
    os.truncate(path, chance.randrange(path.stat().st_size))


def zero(path: Path, _chance: random.Random) -> None:
    with path.open("r+b") as file:
        file.seek(RING_BEGIN)
        file.write(bytes(path.stat().st_size - RING_BEGIN))


def scramble(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(200):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def lose_a_head(path: Path, chance: random.Random) -> None:
    with path.open("r+b") as file:
        file.seek(BLOCK_BYTES * chance.randrange(2))
        file.write(chance.randbytes(BLOCK_BYTES))


WAYS: Final[tuple[Callable[[Path, random.Random], None], ...]] = (
    keep,
    remove,
    cut,
    zero,
    scramble,
    lose_a_head,
)


@pytest.mark.timeout(1200 if IS_LONG else 300)
def test_nothing_is_lost_whatever_becomes_of_the_journal_of_a_killed_process(
    tmp_path: Path,
) -> None:
    chance = random.Random(64)
    data = tmp_path / "data"
    journal = data / JOURNAL
    history = History()

    def settings(number: int) -> tuple[str, ...]:
        # With few checkpoints the journal is freed for want of room alone.
        interval_ms = (300, 60_000)[number % 2]
        return (
            *SETTINGS,
            f"log.journal.bytes={SIZES[number % len(SIZES)]}",
            f"log.flush.offset.checkpoint.interval.ms={interval_ms}",
        )

    with running(data, settings(0)) as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "kept", PARTITIONS)
        loads = [
            ProducerLoad(
                servers,
                "kept",
                f"of-{value_bytes}",
                history,
                partitions=PARTITIONS,
                value_bytes=value_bytes,
                **IDEMPOTENT,
            )
            for value_bytes in (10, 2_000)
        ]
        committer = CommitterLoad(servers, "kept", "committer", history)
        for number in range(60 if IS_LONG else len(WAYS)):
            older = journal.read_bytes() if journal.exists() else None
            for answers in (*(load.answers for load in loads), committer.answers):
                answers.wait_for_more(20)
            broker.kill()
            history.add(Ended(End.KILL, time.monotonic()))
            if journal.exists():
                WAYS[number % len(WAYS)](journal, chance)
                if number % 5 == 4 and older is not None:
                    journal.write_bytes(older)
            broker.settings = settings(number + 1)
            for _ in range(chance.randrange(3)):
                broker.begin_start()
                time.sleep(chance.random() * START_SECONDS_MAX)
                broker.kill()
            broker.start()
        for load in loads:
            load.finish()
        committer.finish()
        assert_kept(history, read_all(servers, "kept", PARTITIONS))
