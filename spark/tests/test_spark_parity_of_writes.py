"""Writes by Spark's own Kafka connector and by ours: the same records in the same partitions, the
same refusals. Both write to the same broker; see `test_spark_parity.py`."""

from __future__ import annotations

import os

import pytest
from pyspark.sql import SparkSession

from asyncbroker.spark.tests.parity.cases import WRITE_REFUSALS, WRITES
from asyncbroker.spark.tests.parity.report import Record, tell
from asyncbroker.spark.tests.parity.writes import ROWS, write

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        "ASYNCBROKER_CONNECTOR_CLASSPATH" not in os.environ, reason="needs Spark's Kafka connector"
    ),
]
FORMS = ("kafka", "asyncbroker")


@pytest.mark.parametrize("name", WRITES)
def test_the_same_records_in_the_same_partitions(
    name: str, spark: SparkSession, spark_bootstrap_servers: str, record_property: Record
) -> None:
    columns, given = WRITES[name]
    tell(record_property, "Writes: records and partitions", name, (columns, given), ROWS)
    theirs, here = (write(spark, form, spark_bootstrap_servers, columns, given) for form in FORMS)
    assert len(theirs) == ROWS, theirs
    assert here == theirs


@pytest.mark.parametrize("name", WRITE_REFUSALS)
def test_the_same_refusals_of_writes(
    name: str, spark: SparkSession, spark_bootstrap_servers: str, record_property: Record
) -> None:
    columns, given, words = WRITE_REFUSALS[name]
    tell(record_property, "Writes: refusals", name, (columns, given), words[0])
    for form in FORMS:
        refusal = write(spark, form, spark_bootstrap_servers, columns, given)
        assert isinstance(refusal, str), f"{form} wrote {refusal}"
        for word in words:
            assert word.lower() in refusal.lower()
