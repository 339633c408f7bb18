"""Makes docs/spark-parity.md of what the parity tests have seen.

Each of them tells what it asked and what came of it (`tell`), as a property of its result, which
pytest writes to a file of JUnit's XML with `--junitxml`. `scripts/spark-parity` does all of it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

Record = Callable[[str, object], None]

PROPERTY = "parity"
HEAD = """# Spark's own connector and ours, case by case

Made by `scripts/spark-parity`, never by hand: it asks Spark's own Kafka connector and asyncbroker
the same of the same broker. A case that is here gave the same rows, the same refusal or the same
number of tasks in both, unless its row says otherwise. `<many>` and its likes are names of topics:
`<many>` has three partitions of 15, 5 and 0 records, `<late>` has the broker's time, and of
`<short>` the first 20 records are deleted; all their names end in `<tag>`. What is different on
purpose is told in [spark.md](spark.md#what-is-different-from-sparks-connector) and
[spark-reading.md](spark-reading.md#different-on-purpose). All of it is one run with the PySpark of
the checkout and the connector for 4.2; `scripts/test-pyspark` asks the same with PySpark 4.2.0.
"""
AREAS = (
    "Batches: rows",
    "Batches: refusals",
    "Batches: tasks",
    "Streams: rows and portions",
    "Streams: tasks",
    "Streams: refusals",
    "Writes: records and partitions",
    "Writes: refusals",
    "At Apache Kafka: transactions",
    "At Apache Kafka: compaction",
    "At Apache Kafka: streams",
    "At Apache Kafka: logins",
)


def tell(record: Record, area: str, what: str, asked: object, outcome: object) -> None:
    """What a test asked both, and what came of it; told before it compares them."""
    if area not in AREAS:
        raise ValueError(f"the report has no area {area}")
    record(PROPERTY, json.dumps([area, what, _asked(asked), _outcome(outcome)]))


def _asked(asked: object) -> str:
    """Options, and whatever else there is, on one line."""
    if isinstance(asked, Mapping):
        return ", ".join(f"`{name}={value}`" for name, value in asked.items())
    if isinstance(asked, Collection) and not isinstance(asked, str):
        return "; ".join(filter(None, map(_asked, asked)))
    return f"`{asked}`"


def _outcome(outcome: object) -> str:
    return outcome if isinstance(outcome, str) else f"{outcome} rows"


def rows_of(path: Path) -> list[tuple[str, str, str, str, bool]]:
    """Area, case, what was asked, what came of it, and whether both were alike."""
    found = []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        is_alike = case.find("failure") is None and case.find("error") is None
        for each in case.iter("property"):
            if each.get("name") == PROPERTY:
                told: list[Any] = json.loads(each.get("value") or "")
                found.append((*told, is_alike))
    return found


def page(rows: Collection[tuple[str, str, str, str, bool]]) -> str:
    """The document."""
    parts = [HEAD]
    for area in AREAS:
        lines = [row for row in rows if row[0] == area]
        if not lines:
            continue
        parts.append(f"## {area}\n")
        parts.append("| case | asked | both |\n|---|---|---|")
        for _, what, asked, outcome, is_alike in lines:
            text = outcome if is_alike else "**not the same**"
            cells = (what, asked, text)
            parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        parts.append("")
    return "\n".join(parts)


def main(document: Path, *results: Path) -> None:
    """Writes the document of what is in the results, and says how many cases are in it."""
    rows = [row for path in results for row in rows_of(path)]
    document.write_text(page(rows), encoding="utf-8")
    different = sum(not row[-1] for row in rows)
    print(f"{document}: {len(rows)} cases, of which {different} are not the same")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
