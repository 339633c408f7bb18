"""What the tests of the data directory share: its files, opening a partition, a killed process."""

from __future__ import annotations

from typing import Any

from asyncbroker.log.config import LogConfig
from asyncbroker.log.files import Files
from asyncbroker.log.log_directory import LogDirectory
from asyncbroker.log.memory_files import MemoryFiles
from asyncbroker.log.partition_log import PartitionLog
from asyncbroker.log.tests.log_harness import (
    NOW_MS,
    TOPIC_ID,
    with_config,
)

PATH = "data"
RECOVERY_POINTS = f"{PATH}/recovery-point-offset-checkpoint"
LOG_STARTS = f"{PATH}/log-start-offset-checkpoint"


def partition(
    directory: LogDirectory,
    topic: str = "flights",
    index: int = 0,
    *,
    config: LogConfig | None = None,
    leader_epoch: int = 1,
    topic_id: bytes = TOPIC_ID,
) -> PartitionLog:
    return directory.open_partition(
        topic,
        index,
        topic_id=topic_id,
        config=config or with_config(),
        leader_epoch=leader_epoch,
        now_ms=NOW_MS,
    )


def killed(files: Files, **more: Any) -> LogDirectory:
    """The directory after its process was killed: only the lock goes, as the system does it."""
    if isinstance(files, MemoryFiles):
        files._locks.clear()
    return LogDirectory.open(files, PATH, **more)
