"""The options of a table: `CREATE TABLE flights USING asyncbroker OPTIONS (...)`.

Spark keeps them in its catalog, and shows them to a Python source only when it makes the table and
asks for a schema; a query of the table comes with its own options alone, which are those of
`SELECT ... FROM flights WITH (...)`, and with that schema. So the schema carries them, in the
metadata of its first column.

Metadata go along with a column into whatever is made of it, files of Parquet too, so that nothing
secret may be in them. Writing does not look at them: a column that was read from one table would
say where rows go to.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import StructField, StructType

METADATA: Final = "asyncbroker.options"

# Before the names of a table's options, each of which Spark gives once with it and once without.
_PREFIX: Final = "option."
_SECRET: Final = re.compile(r"password|secret|token|jaas|keystore\.key$", re.IGNORECASE)

NO_OPTIONS_TO_READ: Final = (
    "There are no options, not even 'kafka.bootstrap.servers'. A table keeps those of CREATE TABLE "
    "... OPTIONS (...), unless its columns are named there: leave the columns out, or use CREATE "
    "TEMPORARY VIEW, which takes them."
)
NO_OPTIONS_TO_WRITE: Final = (
    "There are no options, not even 'kafka.bootstrap.servers'. Spark gives those of a table to no "
    "Python source that writes: name them in INSERT INTO table WITH ('kafka.bootstrap.servers' = "
    "..., 'topic' = ...), or insert into a view, which CREATE TEMPORARY VIEW makes."
)


def options_of_table(options: Mapping[str, str]) -> dict[str, str]:
    """The options of the table that is being made; empty for any other query. Raises ValueError
    for secrets."""
    names = {name for name in options if name.lower().startswith(_PREFIX)}
    if "provider" not in options or not names:
        return {}
    found = {name.lower().removeprefix(_PREFIX): options[name] for name in names}
    for name in found:
        if _SECRET.search(name):
            raise ValueError(
                f"A table must not keep the option '{name}', which whoever reads the table would "
                "see. Make a temporary view, or leave it out, and what needs it (such as "
                "'kafka.security.protocol'), and name them in the query: SELECT ... FROM table "
                f"WITH ('{name}' = ...)"
            )
    return found


def carrying(schema: StructType, table: Mapping[str, str]) -> StructType:
    """The schema with the options of a table."""
    if not table:
        return schema
    first, *others = schema.fields
    metadata = {**first.metadata, METADATA: json.dumps(table)}
    carrier = StructField(first.name, first.dataType, first.nullable, metadata)
    return StructType([carrier, *others])


def query_options(options: Mapping[str, str], schema: StructType) -> Mapping[str, str]:
    """The options of a query of this schema: its own, and before them those of its table, unless
    it says by itself where the brokers are. Raises ValueError where there are none."""
    given = {name.lower(): value for name, value in options.items()}
    for field in schema.fields:
        if METADATA in field.metadata and "kafka.bootstrap.servers" not in given:
            table: dict[str, str] = json.loads(field.metadata[METADATA])
            return table | given
    if not given:
        raise ValueError(NO_OPTIONS_TO_READ)
    return options
