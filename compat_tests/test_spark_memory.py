"""A task reads a partition that is larger than its memory by far, within a fixed budget."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from asyncbroker.client.cluster import Cluster, TopicPartition
from asyncbroker.client.partitions import produce
from asyncbroker.client.topics import create_topic
from asyncbroker.protocol.records import Compression, Record, build_batch
from asyncbroker.spark.collector import SERVES_AGAIN
from asyncbroker.tests.long import IS_LONG
from compat_tests.conftest import BrokerProcess

MB = 1_000_000
BUDGET_BYTES = 150 * MB
"""On top of Python, numpy and pyarrow: a few responses, a few batches in Arrow, and what allocators
keep."""
PARTITION_BYTES = 4000 * MB if IS_LONG else 400 * MB

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="looks at /proc"),
]


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_a_large_partition_is_read_within_a_budget(tmp_path: Path, codec: Compression) -> None:
    """Of zstd the log itself is small, since all values are alike; its rows are as many."""
    rows = 900
    batch = build_batch([Record(0, 1000, b"key", bytes(1000))] * rows, compression=codec)
    count = PARTITION_BYTES // (rows * 1000)
    broker = BrokerProcess(tmp_path / "data", ())
    broker.start()
    try:
        with Cluster(broker.bootstrap_servers) as cluster:
            create_topic(cluster, "large", partitions=1)
            for _ in range(count):
                produce(cluster, {TopicPartition("large", 0): batch}, acks=1)
        task = [sys.executable, str(Path(__file__).parent / "spark_task.py")]
        ran = subprocess.run(
            [*task, broker.bootstrap_servers, "large"],
            # As in a worker of Spark's, which keeps what it has freed.
            env=os.environ | {SERVES_AGAIN: "1"},
            stdout=subprocess.PIPE,
            check=True,
            timeout=500,
        )
    finally:
        broker.stop()
    told = json.loads(ran.stdout)
    assert told["tasks"] == 1
    assert told["rows"] == rows * count
    assert told["bytes"] > PARTITION_BYTES
    assert told["peak"] - told["before"] < BUDGET_BYTES, told
