"""Streams of Spark's own Kafka connector and of ours: the same rows in the same portions, the same
refusals. Both read the same broker; see `test_spark_parity.py`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from asyncbroker.spark.tests.parity.cases import STREAM_REFUSALS, STREAM_SPLITS, STREAMS
from asyncbroker.spark.tests.parity.report import Record, tell
from asyncbroker.spark.tests.parity.streams import Streamed, stream
from asyncbroker.spark.tests.parity.topics import Topics, make_topics

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        "ASYNCBROKER_CONNECTOR_CLASSPATH" not in os.environ, reason="needs Spark's Kafka connector"
    ),
]
FORMS = ("kafka", "asyncbroker")


@pytest.fixture(scope="module")
def topics(spark_bootstrap_servers: str) -> Topics:
    return make_topics(spark_bootstrap_servers)


@pytest.mark.parametrize("name", STREAMS)
def test_the_same_rows_in_the_same_portions(
    name: str, topics: Topics, spark: SparkSession, tmp_path: Path, record_property: Record
) -> None:
    options = topics.options(STREAMS[name])
    theirs, here = (stream(spark, form, options, tmp_path / form) for form in FORMS)
    assert isinstance(theirs, Streamed), theirs
    told = f"{len(theirs.rows)} rows, {len(theirs.ends)} batches"
    tell(record_property, "Streams: rows and portions", name, STREAMS[name], told)
    assert isinstance(here, Streamed), here
    assert here.rows == theirs.rows
    # Of a start that moves with time ours is saved by a batch without rows; see the documentation.
    assert here.ends[-len(theirs.ends) :] == theirs.ends


@pytest.mark.parametrize("given", STREAM_SPLITS, ids=str)
def test_the_same_tasks(
    given: dict[str, str],
    topics: Topics,
    spark: SparkSession,
    tmp_path: Path,
    record_property: Record,
) -> None:
    options = topics.options(given)
    theirs, here = (stream(spark, form, options, tmp_path / form) for form in FORMS)
    assert isinstance(theirs, Streamed), theirs
    tell(record_property, "Streams: tasks", "splitting", given, f"{len(theirs.tasks)} tasks")
    assert here == theirs


@pytest.mark.parametrize("name", STREAM_REFUSALS)
def test_the_same_refusals_of_streams(
    name: str, topics: Topics, spark: SparkSession, tmp_path: Path, record_property: Record
) -> None:
    given, words = STREAM_REFUSALS[name]
    tell(record_property, "Streams: refusals", name, given, words[0])
    options = topics.options(given)
    for form in FORMS:
        refusal = stream(spark, form, options, tmp_path / form)
        assert isinstance(refusal, str), f"{form} gave {refusal}"
        for word in words:
            assert topics.text(word).lower() in refusal.lower()
