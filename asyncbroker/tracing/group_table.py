"""How a group looks: tables for a terminal, plain lines for anything else.

Names come from strangers and are made printable; tables get them as `Text`, which has no markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from asyncbroker.client.cluster import TopicPartition
from asyncbroker.tracing.group_view import GroupView, PartitionView
from asyncbroker.tracing.lines import clock_text
from asyncbroker.tracing.text import printable

NOTHING = "-"


def owners_table(title: str, owners: Iterable[Sequence[str]]) -> Table:
    """Who has which partitions; each row is a name, what else there is to say, the partitions."""
    rows = [list(row) for row in owners] or [["nobody", NOTHING]]
    table = Table(title=Text(title), title_justify="left", title_style="bold yellow")
    for column in ("member", "host", "instance")[: len(rows[0]) - 1]:
        table.add_column(column, overflow="fold")
    table.add_column("partitions", overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table


def partition_text(partitions: Iterable[TopicPartition]) -> str:
    """Partitions by topic: "orders 0 1 2, logs 0"."""
    by_topic: dict[str, list[str]] = {}
    for partition in partitions:
        by_topic.setdefault(partition.topic, []).append(str(partition.partition))
    return ", ".join(f"{topic} {' '.join(found)}" for topic, found in by_topic.items()) or NOTHING


def headline(view: GroupView) -> str:
    """The group in one line."""
    generation = NOTHING if view.generation is None else str(view.generation)
    return (
        f"{clock_text(view.at)}  group {printable(view.group_id)}  {view.state}  "
        f"generation {generation}  protocol {printable(view.protocol) or NOTHING}  "
        f"members {len(view.members)}  lag {view.lag}"
    )


def plain_lines(view: GroupView) -> list[str]:
    """The whole view without a terminal."""
    lines = [headline(view)]
    for member in view.members:
        instance = f" instance {printable(member.instance_id)}" if member.instance_id else ""
        lines.append(
            f"  {printable(member.client_id)} ({printable(member.host)}){instance}: "
            f"{printable(partition_text(member.partitions))}"
        )
    for row in view.partitions:
        owner = NOTHING if row.member is None else printable(row.member.client_id)
        lines.append(
            f"  {printable(str(row.partition))}  committed {_number(row.committed)}  "
            f"end {_number(row.end)}  lag {_number(row.lag)}  {owner}"
        )
    return lines


def render(
    view: GroupView, before: GroupView | None, events: Sequence[str], trouble: str
) -> RenderableType:
    """The live picture; `events` are the last moves, `trouble` why the view is old."""
    members = owners_table(
        "members",
        (
            (
                member.client_id,
                member.host,
                member.instance_id or NOTHING,
                partition_text(member.partitions),
            )
            for member in view.members
        ),
    )
    if not view.members:
        members = owners_table("members", ())
    old = {} if before is None else {row.partition: row for row in before.partitions}
    table = Table(title="partitions", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("partition", overflow="fold")
    for column in ("committed", "end", "lag", ""):
        table.add_column(column, justify="right")
    table.add_column("member", overflow="fold")
    for row in view.partitions:
        previous = old.get(row.partition)
        has_moved = previous is not None and _owner(previous) != _owner(row)
        table.add_row(
            Text(printable(str(row.partition))),
            _number(row.committed),
            _number(row.end),
            _number(row.lag),
            trend(previous, row),
            Text(printable(row.member.client_id) if row.member else NOTHING),
            style="bold yellow" if has_moved else "",
        )
    parts: list[RenderableType] = [Text(headline(view), "bold cyan")]
    if trouble:
        parts.append(Text(printable(trouble), "bold red"))
    parts += [members, table, *(Text(printable(event), "yellow") for event in events)]
    return Group(*parts)


def trend(before: PartitionView | None, now: PartitionView) -> str:
    """How the lag has changed."""
    if before is None or before.lag is None or now.lag is None or before.lag == now.lag:
        return ""
    return f"{now.lag - before.lag:+}"


def _owner(row: PartitionView) -> str:
    return "" if row.member is None else row.member.member_id


def _number(value: int | None) -> str:
    return NOTHING if value is None else str(value)
