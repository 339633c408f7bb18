"""What cold reads do to everybody else: latencies of heartbeats and of a producer, in three phases.

The consumers are a process of their own; so is the broker. On two cores, all of them compete for
the processors as well as for the disk: the third phase, in which the same is read from memory,
tells the two apart.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from brokers import Target, apache_kafka, asyncbroker

from asyncbroker.tests.cold_readers import Probe, evict, fill, read_at_once

QUIET_SECONDS = 5


def milliseconds(times: list[float], share: float) -> str:
    """The time that this share of the requests did not exceed; `times` are in order."""
    at = min(len(times) - 1, int(len(times) * share))
    return f"{times[at] * 1000:8.1f}"


def show(phase: str, probe: Probe, speed: float | None = None) -> None:
    heartbeats, produces = probe.take()
    cells = [
        milliseconds(times, share) for times in (heartbeats, produces) for share in (0.5, 0.99, 1)
    ]
    rate = "" if speed is None else f"{speed:8.0f}"
    print(f"  {phase:<14}{''.join(cells)}{rate}", flush=True)


def measure(target: Target, directory: Path, size: int, readers: int, acks: int) -> None:
    fill(target.address, size)
    print(f"{target.name}: {readers} readers of {size / 1e6:.0f} MB each, acks={acks}; ms")
    print(f"  {'':<14}  heartbeat p50, p99, max   produce p50, p99, max    MB/s")
    with Probe(target.address, acks=acks) as probe:
        time.sleep(1)
        probe.take()
        time.sleep(QUIET_SECONDS)
        show("alone", probe)
        evict(directory)
        probe.take()
        speed = read_at_once(target.address, readers, size)
        show("cold", probe, speed)
        speed = read_at_once(target.address, readers, size)
        show("from memory", probe, speed)
    if probe.errors:
        raise RuntimeError(f"errors were answered: {sorted(set(probe.errors))}")


@contextlib.contextmanager
def kafka(directory: Path) -> Iterator[Target]:
    classpath = Path(os.environ["ASYNCBROKER_KAFKA_CLASSPATH"]).read_text().strip()
    settings = ("group.initial.rebalance.delay.ms=0", "offsets.topic.num.partitions=1")
    with apache_kafka(directory, classpath, settings) as target:
        yield target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=2000)
    parser.add_argument("--readers", type=int, default=10)
    parser.add_argument("--acks", choices=["1", "all"], default="1")
    parser.add_argument("--kafka", action="store_true")
    options = parser.parse_args()
    brokers = [("ours", asyncbroker)] + ([("kafka", kafka)] if options.kafka else [])
    for name, start in brokers:
        with tempfile.TemporaryDirectory() as home:
            directory = Path(home) / name
            with start(directory) as target:
                acks = -1 if options.acks == "all" else 1
                measure(target, directory, options.megabytes * 1_000_000, options.readers, acks)


if __name__ == "__main__":
    main()
