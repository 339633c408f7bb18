"""How long a start takes on a directory that was stopped in order, and on one that was not.

The directories are made with the broker's own log, without a broker. Apache Kafka gets the same
segments under a topic that it has made itself, since it puts aside what its metadata do not know.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from brokers import apache_kafka, free_disk_gb, process

from asyncbroker.log.config import LogConfig
from asyncbroker.log.files import RealFiles
from asyncbroker.log.log_directory import LogDirectory
from asyncbroker.log.partition_log import PartitionLog
from asyncbroker.protocol.records import Record, build_batch, read_header

TOPIC = "flights"
TOPIC_ID = bytes(range(16))
PARTITIONS, SEGMENTS = 1000, 10
LARGE_PARTITIONS = 10
BATCH_BYTES = 16 << 10
UNFLUSHED_BYTES = 100 << 20
START_SECONDS_MAX = 300
KAFKA_READY = "Kafka Server started"

# What the project asks of itself, in seconds.
CLEAN_SECONDS_MAX = 2.0
UNCLEAN_SECONDS_MAX = 3.0


def opened(directory: LogDirectory, index: int, config: LogConfig) -> PartitionLog:
    return directory.open_partition(
        TOPIC, index, topic_id=TOPIC_ID, config=config, leader_epoch=0, now_ms=now_ms()
    )


def now_ms() -> int:
    return int(time.time() * 1000)


def append(log: PartitionLog, size: int) -> None:
    batch = build_batch([Record(0, now_ms(), b"key", bytes(size))])
    log.append(batch, read_header(batch), leader_epoch=0, now_ms=now_ms())


def make_clean(path: Path) -> None:
    """Many partitions with many small segments, left in order."""
    config = LogConfig(segment_bytes=4096)
    directory = LogDirectory.open(RealFiles(), str(path), cluster_id="bench", node_id=1)
    for index in range(PARTITIONS):
        log = opened(directory, index, config)
        for _ in range(2 * SEGMENTS):
            append(log, 1800)
    directory.close()


def make_unclean(path: Path, gigabytes: float) -> None:
    """A few large partitions, durable but for their ends, left as by `kill -9`."""
    directory = LogDirectory.open(RealFiles(), str(path), cluster_id="bench", node_id=1)
    logs = [opened(directory, index, LogConfig()) for index in range(LARGE_PARTITIONS)]
    bytes_each = int(gigabytes * 1e9) // LARGE_PARTITIONS
    for log in logs:
        while log.size < bytes_each:
            append(log, BATCH_BYTES)
        log.flush()
    directory.checkpoint()
    for log in logs:
        end = log.size + UNFLUSHED_BYTES // LARGE_PARTITIONS
        while log.size < end:
            append(log, BATCH_BYTES)
    directory.close(clean=False)


def drop_from_cache(path: Path) -> None:
    for file in path.rglob("*"):
        if file.is_file():
            descriptor = os.open(file, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def start_ours(path: Path, *, kill: bool) -> float:
    """Seconds until the broker answers; then it is stopped in order, or killed."""
    command = [sys.executable, "-m", "asyncbroker", "serve", "--listen", "127.0.0.1:0"]
    began = time.monotonic()
    with process(
        [*command, "--data", str(path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as child:
        assert child.stdout is not None
        line = child.stdout.readline()
        seconds = time.monotonic() - began
        assert line.startswith("asyncbroker ready"), line
        if kill:
            child.kill()
    return seconds


class Kafka:
    """Apache Kafka with the topic, whose segments are exchanged for those of a directory."""

    def __init__(self, home: Path, partitions: int) -> None:
        self._classpath = Path(os.environ["ASYNCBROKER_KAFKA_CLASSPATH"]).read_text().strip()
        self.path = home / "kafka"
        self._properties = self.path.with_suffix(".properties")
        with apache_kafka(self.path, self._classpath, ()) as target:
            arguments = ["--bootstrap-server", target.address, "--create", "--topic", TOPIC]
            arguments += ["--partitions", str(partitions), "--replication-factor", "1"]
            tool = "org.apache.kafka.tools.TopicCommand"
            subprocess.run(
                ["java", "-cp", self._classpath, tool, *arguments],
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

    def take(self, path: Path, *, is_clean: bool) -> None:
        """Puts the segments and checkpoints of a directory in place of Kafka's."""
        for partition in path.glob(f"{TOPIC}-*"):
            target = self.path / partition.name
            metadata = (target / "partition.metadata").read_bytes()
            shutil.rmtree(target)
            shutil.copytree(partition, target, copy_function=os.link)
            (target / "partition.metadata").unlink()
            (target / "partition.metadata").write_bytes(metadata)
        point = "recovery-point-offset-checkpoint"
        shutil.copy(path / point, self.path / point)
        if not is_clean:
            (self.path / ".kafka_cleanshutdown").unlink()

    def start(self) -> float:
        """Seconds until Kafka says that it has started; then it is ended, as it comes."""
        heap = ["-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC"]
        log4j = "-Dlog4j2.level=info"
        began = time.monotonic()
        with process(
            ["java", *heap, log4j, "-cp", self._classpath, "kafka.Kafka", str(self._properties)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as child:
            assert child.stdout is not None
            for line in child.stdout:
                if KAFKA_READY in line:
                    seconds = time.monotonic() - began
                    child.kill()
                    return seconds
        raise RuntimeError("Kafka did not say that it had started")


def measure(what: str, path: Path, rounds: int, is_cold: bool, start: Callable[[], float]) -> float:
    seconds = []
    for _ in range(rounds):
        if is_cold:
            drop_from_cache(path)
        seconds.append(start())
    median = statistics.median(seconds)
    print(f"{what:<60} {median:6.2f} s   ({min(seconds):.2f} to {max(seconds):.2f})", flush=True)
    return median


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--kafka", action="store_true")
    parser.add_argument("--only", choices=("clean", "unclean"))
    arguments = parser.parse_args()
    rounds, is_cold = arguments.rounds, arguments.cold
    medians: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory(prefix="bench-recovery-") as home:
        if free_disk_gb(Path(home)) < 2 * arguments.gigabytes + 2:
            parser.error(f"there is no room for {arguments.gigabytes} GB in {home}")
        if arguments.only in (None, "clean"):
            path = Path(home) / "clean"
            make_clean(path)
            name = f"clean start, {PARTITIONS} partitions of {SEGMENTS} segments"
            # The first start adopts the topic.
            start_ours(path, kill=False)
            median = measure(name, path, rounds, is_cold, lambda: start_ours(path, kill=False))
            medians.append((median, CLEAN_SECONDS_MAX))
            if arguments.kafka:
                kafka = Kafka(Path(home), PARTITIONS)
                kafka.take(path, is_clean=True)
                measure(f"{name}: Kafka", kafka.path, 1, is_cold, kafka.start)
                shutil.rmtree(kafka.path)
            shutil.rmtree(path)
        if arguments.only in (None, "unclean"):
            path = Path(home) / "unclean"
            make_unclean(path, arguments.gigabytes)
            name = f"after a kill, {arguments.gigabytes:g} GB with 100 MB unflushed"
            if arguments.kafka:
                kafka = Kafka(Path(home), LARGE_PARTITIONS)
                kafka.take(path, is_clean=False)
                measure(f"{name}: Kafka", kafka.path, 1, is_cold, kafka.start)
            median = measure(name, path, rounds, is_cold, lambda: start_ours(path, kill=True))
            medians.append((median, UNCLEAN_SECONDS_MAX))
    return any(median > limit for median, limit in medians)


if __name__ == "__main__":
    sys.exit(main())
