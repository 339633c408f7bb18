"""How the demo looks: headlines, checks that hold or fail, and a table for each generation."""

from __future__ import annotations

import time

from rich.console import Console
from rich.table import Table

from asyncbroker.demo.generations import Generation
from asyncbroker.tracing.group_table import NOTHING, owners_table


class Show:
    """Prints what happens, and remembers whether every check held."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console()
        self.failures: list[str] = []
        self._start = time.monotonic()

    def headline(self, text: str) -> None:
        elapsed = time.monotonic() - self._start
        self.console.print(f"[bold cyan]{elapsed:6.1f} s[/]  [bold]{text}[/]")

    def note(self, text: str) -> None:
        self.console.print(f"          {text}")

    def check(self, what: str, holds: bool, detail: str = "") -> None:
        """One equality of the demo; a failed one makes the demo fail at its end."""
        mark = "[bold green]holds[/]" if holds else "[bold red]FAILS[/]"
        self.console.print(f"          {mark}: {what}" + (f" ({detail})" if detail else ""))
        if not holds:
            self.failures.append(what)

    def generation(self, generation: Generation) -> None:
        self.console.print(generation_table(generation))


def generation_table(generation: Generation) -> Table:
    """Who owns which partitions in one generation."""
    return owners_table(
        f"generation {generation.number}",
        (
            (member, " ".join(map(str, partitions)) or NOTHING)
            for member, partitions in generation.owners.items()
        ),
    )
