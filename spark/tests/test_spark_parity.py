"""The options of Spark's own Kafka connector, on it and on ours: the same rows, the same refusals.

Both read the same broker. Of a refusal both have to say the same words, those that people search
for. Ours is planned and read in this process, since the way through Spark is tested elsewhere.
Needs the connector's jars: `ASYNCBROKER_CONNECTOR_CLASSPATH`, which `scripts/test` sets. Where the
two differ on purpose is at the end, and in the documentation.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

import pytest
from pyspark.sql import SparkSession

from asyncbroker.spark.source import AsyncbrokerDataSource
from asyncbroker.spark.tests.parity.batches import Row, rows_here, rows_of_connector
from asyncbroker.spark.tests.parity.cases import REFUSALS, SAME_ROWS, SPLITS
from asyncbroker.spark.tests.parity.report import Record, tell
from asyncbroker.spark.tests.parity.topics import Topics, make_topics

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        "ASYNCBROKER_CONNECTOR_CLASSPATH" not in os.environ, reason="needs Spark's Kafka connector"
    ),
]

Theirs = Callable[[dict[str, str]], "list[Row] | str"]


@pytest.fixture(scope="module")
def topics(spark_bootstrap_servers: str) -> Topics:
    return make_topics(spark_bootstrap_servers)


@pytest.fixture(scope="module")
def their_rows(spark: SparkSession) -> Theirs:
    return partial(rows_of_connector, spark)


# ---- the same rows


@pytest.mark.parametrize("name", SAME_ROWS)
def test_the_same_rows(
    name: str, topics: Topics, their_rows: Theirs, record_property: Record
) -> None:
    options = topics.options(SAME_ROWS[name])
    theirs = their_rows(options)
    tell(record_property, "Batches: rows", name, SAME_ROWS[name], len(theirs))
    assert isinstance(theirs, list), theirs
    assert rows_here(options) == theirs


# ---- the same refusals


@pytest.mark.parametrize("name", REFUSALS)
def test_the_same_refusals(
    name: str, topics: Topics, their_rows: Theirs, record_property: Record
) -> None:
    given, words = REFUSALS[name]
    tell(record_property, "Batches: refusals", name, given, words[0])
    options = topics.options(given)
    for refusal in (their_rows(options), rows_here(options)):
        assert isinstance(refusal, str), f"not refused: {refusal}"
        for word in words:
            assert topics.text(word).lower() in refusal.lower()


# ---- the same tasks


@pytest.mark.parametrize("given", SPLITS, ids=str)
def test_as_many_tasks(
    given: dict[str, str], topics: Topics, spark: SparkSession, record_property: Record
) -> None:
    options = topics.options(given)
    theirs = spark.read.format("kafka").options(**options).load().rdd.getNumPartitions()
    tell(record_property, "Batches: tasks", "splitting", given, f"{theirs} tasks")
    source = AsyncbrokerDataSource(options)
    assert len(source.reader(source.schema()).partitions()) == theirs


# ---- where ours differs on purpose


def test_ours_has_no_task_for_an_empty_partition(topics: Topics) -> None:
    """The connector has one, as long as it splits nothing."""
    source = AsyncbrokerDataSource(topics.options({"minPartitions": "1"}))
    assert len(source.reader(source.schema()).partitions()) == 2


def test_ours_takes_a_schema_as_a_projection(topics: Topics, spark: SparkSession) -> None:
    from pyspark.errors import AnalysisException

    options = topics.options({})
    with pytest.raises(AnalysisException):
        spark.read.format("kafka").options(**options).schema("value binary").load()
    frame = spark.read.format("asyncbroker").options(**options).schema("value binary").load()
    assert frame.count() == 20


def test_an_end_beyond_the_log_is_an_error_at_once(topics: Topics) -> None:
    """The connector waits for two minutes, and then says the same."""
    beyond = topics.options({"endingOffsets": '{"<many>": {"0": 100, "1": 5, "2": 0}}'})
    assert "Some data may have been lost" in str(rows_here(beyond))


def test_an_unknown_start_offset_is_refused_by_the_driver(topics: Topics) -> None:
    """The connector's tasks fail with an assertion."""
    given = topics.options({"startingOffsets": '{"<many>": {"0": -3, "1": 0, "2": 0}}'})
    assert "-3 for" in str(rows_here(given))
