"""Prints rows: as a table on a terminal, in plain columns to a pipe, or as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any, Final

import click

Cell = str | int | float | bool | None

NOTHING: Final = "-"
"""What stands for an empty cell, so that every line has the same number of words."""


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Cell]], title: str = "") -> None:
    """Prints rows under their columns' names. Numbers stand to the right."""
    cells = [[_text(cell) for cell in row] for row in rows]
    is_number = [
        any(_is_number(row[index]) for row in rows)
        and all(row[index] is None or _is_number(row[index]) for row in rows)
        for index in range(len(columns))
    ]
    if sys.stdout.isatty():
        _print_rich(columns, cells, is_number, title)
    else:
        _print_plain(columns, cells, is_number)


def print_json(value: Any) -> None:
    """Prints one JSON document."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def _print_rich(
    columns: Sequence[str], cells: list[list[str]], is_number: list[bool], title: str
) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD)
    for column, is_right in zip(columns, is_number, strict=True):
        table.add_column(column, justify="right" if is_right else "left", overflow="fold")
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


def _print_plain(columns: Sequence[str], cells: list[list[str]], is_number: list[bool]) -> None:
    lines = [[column.upper().replace(" ", "-") for column in columns], *cells]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    for line in lines:
        padded = [
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(line, widths, is_number, strict=True)
        ]
        click.echo("  ".join(padded).rstrip())


def _text(cell: Cell) -> str:
    if cell is None or cell == "":
        return NOTHING
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return str(cell)


def _is_number(cell: Cell) -> bool:
    return isinstance(cell, (int, float)) and not isinstance(cell, bool)
