"""A loss of power of a real ext4: see `power_ext4.py`. Takes root."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from asyncbroker.tests.long import IS_LONG
from compat_tests.chaos.ext4 import Ext4, why_not_mounted
from compat_tests.chaos.load import create_topic, read_all
from compat_tests.chaos.nemesis import CHAOS_SETTINGS, ChaosBroker, wait_until
from compat_tests.chaos.power_ext4 import WAYS, Run
from compat_tests.java import TOOLS, java, needs_jars

PARTITIONS: Final = 3
LOSSES: Final = 12 if IS_LONG else 3
ACKNOWLEDGED_EACH: Final = 500

pytestmark = [
    pytest.mark.skipif(bool(why_not_mounted()), reason=why_not_mounted()),
    pytest.mark.timeout(300),
]


@pytest.mark.parametrize("way", sorted(set(WAYS)) if IS_LONG else ["power", "copies", "error"])
def test_what_was_promised_survives_the_end_of_a_file_system(
    tmp_path: Path, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    # Errors that are kept as they were logged keep files open.
    caplog.set_level(logging.CRITICAL + 1, "asyncbroker")
    done = Run(tmp_path, copies=LOSSES)
    for seed in range(1, 6 if IS_LONG else 2):
        done.go(seed, LOSSES * 0.5, way)
        assert not done.problems, "\n".join(done.problems)
    assert done.counts["copies"] or way != "copies"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Ext4]:
    disk = Ext4(tmp_path / "image", tmp_path / "disk")
    disk.make()
    yield disk
    disk.unmount()


MOUNTS_AND_WAITS: Final = """
import sys, time
from pathlib import Path
from compat_tests.chaos.ext4 import Ext4
Ext4(Path(sys.argv[1], "image"), Path(sys.argv[1], "disk")).make()
print("mounted", flush=True)
time.sleep(600)
"""


def test_what_a_process_has_mounted_is_gone_when_it_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", MOUNTS_AND_WAITS, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        was_mounted = (tmp_path / "disk").is_mount()
        process.kill()
    assert (line, was_mounted) == ("mounted\n", True)
    wait_until(lambda: not (tmp_path / "disk").is_mount(), "the end of the mount")


class JavaProducer:
    """Kafka's verifiable producer: values 0, 1, 2, ..., and what it is told of each."""

    def __init__(self, servers: str, topic: str, log: Path) -> None:
        self._log = log
        # By default it tries each once only.
        config = log.with_name("config")
        config.write_text("enable.idempotence=true\nretries=2147483647\nretry.backoff.ms=50\n")
        arguments = ["--bootstrap-server", servers, "--topic", topic, "--throughput", "1000"]
        arguments += ["--command-config", str(config)]
        name = f"{TOOLS}.VerifiableProducer"
        with log.open("w") as file:
            self.process = subprocess.Popen(java(name, *arguments), stdout=file, stderr=file)

    def told(self, event: str) -> list[dict[str, Any]]:
        """What it was told so far."""
        lines = self._log.read_text().split("\n")[:-1]
        found = [json.loads(line) for line in lines if line.startswith("{")]
        return [each for each in found if each["name"] == event]

    def wait_for_more(self, count: int) -> None:
        """Waits for acknowledgements from now on."""
        wanted = len(self.told("producer_send_success")) + count
        wait_until(lambda: len(self.told("producer_send_success")) >= wanted, f"{count} records")

    def finish(self) -> None:
        """Has it send what it has, and end."""
        self.process.terminate()
        self.process.wait(60)


@needs_jars
def test_a_java_producer_goes_on_through_losses_of_power(tmp_path: Path, disk: Ext4) -> None:
    broker = ChaosBroker(disk.path / "data", CHAOS_SETTINGS)
    broker.start()
    create_topic(broker.bootstrap_servers, "java", PARTITIONS)
    producer = JavaProducer(broker.bootstrap_servers, "java", tmp_path / "producer")
    try:
        for _ in range(LOSSES):
            producer.wait_for_more(ACKNOWLEDGED_EACH)
            disk.lose_power()
            broker.kill()
            disk.unmount()
            disk.mount()
            broker.start()
        producer.wait_for_more(ACKNOWLEDGED_EACH)
        producer.finish()
        assert not producer.told("producer_send_error")
        _check(producer, broker.bootstrap_servers)
    finally:
        producer.process.kill()
        producer.process.wait()
        broker.kill()


def _check(producer: JavaProducer, servers: str) -> None:
    """Each value is where it was acknowledged, once, and in the order in which it was sent."""
    there: dict[int, dict[int, int]] = defaultdict(dict)
    for read in read_all(servers, "java", PARTITIONS):
        partition = int(read.place.rpartition("-")[2])
        there[partition] = {each.offset: int(each.value or b"") for each in read.records}
    for told in producer.told("producer_send_success"):
        assert there[told["partition"]].get(told["offset"]) == int(told["value"]), told
    for partition, records in there.items():
        values = [records[offset] for offset in sorted(records)]
        assert values == sorted(set(values)), f"partition {partition}"
