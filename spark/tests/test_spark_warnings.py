"""What a user sees on the terminal of options without effect, and of offsets that went backwards.

The source runs in Python workers that Spark starts, so what they log is on the driver's stderr.
"""

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
from asyncbroker.protocol.records import Record, build_batch

pytestmark = pytest.mark.timeout(300)

JOB = """
import sys
from pathlib import Path

from asyncbroker.spark.tests.session import start_session

servers, folder = sys.argv[1:]
spark = start_session(Path(folder) / "warehouse")


def with_options(frame, **options):
    return frame.format("asyncbroker").option("kafka.bootstrap.servers", servers).options(**options)


batch = with_options(spark.read, subscribe="warned", sbuscribe="x", maxOffsetsPerTrigger=5).load()
print("rows", batch.count())
writer = with_options(batch.select("value").write, topic="warned", partitoin="1")
writer.mode("append").save()
stream = with_options(
    spark.readStream,
    **{
        "subscribe": "warned",
        "maxOffsetPerTrigger": "5",
        "fetchOffset.numRetries": "2",
        "fetchOffset.retryIntervalMs": "10",
    },
)
query = stream.load().writeStream.format("noop").option("checkpointLocation", folder).start()
try:
    query.awaitTermination()
except Exception as error:
    print("ended by", type(error).__name__, "data may have been lost" in str(error))
"""


def test_options_without_effect_and_retries_are_told_on_the_terminal(
    spark_bootstrap_servers: str, tmp_path: Path
) -> None:
    with Cluster(spark_bootstrap_servers) as cluster:
        create_topic(cluster, "warned", partitions=1)
        batch = build_batch([Record(0, 1000, None, b"v")])
        produce(cluster, {TopicPartition("warned", 0): batch})
    save_checkpoint(tmp_path, {"warned": {"0": 500}})
    done = subprocess.run(
        [sys.executable, "-c", JOB, spark_bootstrap_servers, str(tmp_path)],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=250,
        check=True,
    )
    assert done.stdout.splitlines() == ["rows 1", "ended by StreamingQueryException True"]
    for words in (
        "option 'sbuscribe' is not known and has no effect; did you mean 'subscribe'?",
        "maxOffsetsPerTrigger option is ignored in batch queries",
        "option 'partitoin' is not known and has no effect",
        "option 'maxoffsetpertrigger' is not known and has no effect; did you mean "
        "'maxOffsetsPerTrigger'?",
        "latest offsets went backwards, asked 1 of 2 times: warned-0 from 500 to 2",
        "latest offsets went backwards, asked 2 of 2 times: warned-0 from 500 to 2",
    ):
        assert words in done.stderr
    assert "asked 3" not in done.stderr


def save_checkpoint(folder: Path, offsets: dict[str, dict[str, int]]) -> None:
    """Of a query whose first batch ended at these offsets."""
    settings = {"batchWatermarkMs": 0, "batchTimestampMs": 1_700_000_000_000, "conf": {}}
    files = {
        "metadata": '{"id":"3f0b2b3e-0a53-4b7b-8a3e-0c6f0d1f9a11"}',
        "offsets/0": f"v1\n{json.dumps(settings)}\n{json.dumps(offsets)}",
        "commits/0": 'v1\n{"nextBatchWatermarkMs":0}',
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
