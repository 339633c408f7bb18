"""Keeps README's table of APIs equal to the code: `api_table.py` checks it, `--write` renews it."""

from __future__ import annotations

import sys
from pathlib import Path

from asyncbroker.handlers import HANDLERS
from asyncbroker.protocol.schema import Versions

README = Path(__file__).resolve().parent.parent / "README.md"
BEGIN, END = "<!-- apis: begin, made by scripts/api_table.py -->\n", "<!-- apis: end -->"


def text_of(versions: Versions) -> str:
    if versions.first == versions.last:
        return str(versions.first)
    return f"{versions.first} to {versions.last}"


def table() -> str:
    lines = ["| key | API | versions | |", "|--:|---|---|---|"]
    for key, handler in sorted(HANDLERS.items()):
        note = ""
        if handler.served != handler.advertised:
            note = f"advertised {text_of(handler.advertised)}, as Kafka 4 does"
        lines.append(f"| {key} | {handler.api.name} | {text_of(handler.served)} | {note} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    readme = README.read_text()
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    renewed = before + BEGIN + table() + END + after
    if renewed == readme:
        return 0
    if "--write" in sys.argv:
        README.write_text(renewed)
        return 0
    print("README's table of APIs is not what the code says: scripts/api_table.py --write")
    return 1


if __name__ == "__main__":
    sys.exit(main())
