"""The tables against Kafka's own schemas, which kafka-python ships: what no bytes can show.

Codecs that agree on all bytes may still disagree on what a field holds when the version lacks it,
and on whether it may then be dropped in silence.
"""

from __future__ import annotations

from typing import Any

import pytest
from kafka.protocol.schemas import BaseField, load_json

from asyncbroker.protocol.schema import Array, Field, Nested, defaults_of, table_of
from asyncbroker.protocol.tests.message_strategies import CASES, Case

# Fields that a handler may fill in whatever the version, where Kafka's have to ask for it first.
IGNORABLE_HERE = {
    "ListOffsetsPartitionResponse.leader_epoch",
    "DescribeConfigsResourceResult.is_default",
    "DescribedGroup.error_message",
}

# Nullable texts of which the absence is None here and "" in Kafka's schema.
NONE_HERE = {
    "FindCoordinatorResponse.error_message",
    "CreatableTopicResult.error_message",
    "DescribeConfigsResourceResult.documentation",
}


# Without schemas there; their bytes are compared with kio's and with Kafka's own.
UNKNOWN_TO_KAFKA_PYTHON = {"ConsumerGroupHeartbeat", "ConsumerGroupDescribe"}


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.api.name not in UNKNOWN_TO_KAFKA_PYTHON], ids=str
)
def test_table_says_what_the_schema_of_kafka_says(case: Case) -> None:
    schema = load_json(case.api.name + case.kind)
    assert case.codec.is_flexible == is_in(case.version, schema["flexibleVersions"])
    compare(case.codec.message_class, schema["fields"], case.version)


def compare(message: type, rows: list[dict[str, Any]], version: int) -> None:
    theirs = {BaseField.underscore_name(row["name"]): row for row in rows}
    ours = table_of(message)
    defaults = defaults_of(message)
    assert [name for name, field in ours.items() if version in field.versions] == [
        name for name, row in theirs.items() if is_in(version, row["versions"])
    ]
    for name, field in ours.items():
        row = theirs[name]
        title = f"{message.__name__}.{name}"
        is_tagged = field.tag is not None and version in field.tagged
        if version not in field.versions:
            is_ignorable = title in IGNORABLE_HERE or row.get("ignorable", False)
            assert field.ignorable == is_ignorable, title
        if is_tagged or version not in field.versions:
            default = None if title in NONE_HERE else default_of(row, field)
            assert defaults[name] == default, title
        if version not in field.versions:
            continue
        assert (version in field.nullable) == is_in(version, row.get("nullableVersions", "none"))
        assert (field.tag if is_tagged else None) == (
            row["tag"] if is_in(version, row.get("taggedVersions", "none")) else None
        )
        item = field.type.item if isinstance(field.type, Array) else field.type
        if isinstance(item, Nested):
            compare(item.message, row["fields"], version)
        else:
            assert row["type"].removeprefix("[]") == item.name
        assert row["type"].startswith("[]") == isinstance(field.type, Array)


def is_in(version: int, versions: str) -> bool:
    first, last = BaseField.parse_versions(versions)
    return bool(first <= version <= last)


def default_of(row: dict[str, Any], field: Field) -> Any:
    """The default of a field by Kafka's schema, as our messages hold it."""
    text = str(row.get("default", ""))
    if isinstance(field.type, Nested):
        return None  # which stands for an absent tagged struct
    if isinstance(field.type, Array):
        return None if text == "null" else []
    if text == "null":
        return None
    if field.type.name == "bool":
        return text == "true"
    if field.type.name == "string":
        return text
    return int(text, 0) if text else field.type.default
