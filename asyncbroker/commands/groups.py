"""`asyncbroker groups`: list, describe, delete and reset consumer groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import click

from asyncbroker.client.cluster import Cluster, TopicPartition
from asyncbroker.client.groups import (
    DEAD,
    CommittedOffset,
    commit_offsets,
    committed_offsets,
    delete_group,
    describe_group,
    list_groups,
)
from asyncbroker.client.partitions import earliest_offsets, latest_offsets, list_offsets
from asyncbroker.commands.common import (
    cluster_options,
    confirm,
    connected,
    json_option,
    yes_option,
)
from asyncbroker.commands.positions import parse_timestamp
from asyncbroker.commands.tables import print_json, print_table
from asyncbroker.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from asyncbroker.tracing.group_view import existing_partitions, owners_of

STATES_WITHOUT_MEMBERS: Final = ("Empty", DEAD)


@click.group()
def groups() -> None:
    """List, describe, reset and delete consumer groups."""


@groups.command("list")
@click.option(
    "--state", "states", multiple=True, help="Only groups in this state; may be repeated."
)
@json_option
@cluster_options
def list_(bootstrap_servers: str, timeout_s: float, as_json: bool, states: tuple[str, ...]) -> None:
    """List groups."""
    with connected(bootstrap_servers, timeout_s) as cluster:
        found = list_groups(cluster, states=states)
    columns = ("group", "state", "type", "protocol type")
    rows = [
        (group.group_id, group.group_state, group.group_type, group.protocol_type)
        for group in found
    ]
    if as_json:
        keys = ("group", "state", "type", "protocol_type")
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
    else:
        print_table(columns, rows)


@groups.command()
@click.argument("group_id", metavar="GROUP")
@json_option
@cluster_options
def describe(bootstrap_servers: str, timeout_s: float, as_json: bool, group_id: str) -> None:
    """Show a group's members, partitions and lag."""
    with connected(bootstrap_servers, timeout_s) as cluster:
        group = describe_group(cluster, group_id)
        offsets = committed_offsets(cluster, group_id)
        if group.group_state == DEAD and not offsets:
            raise click.ClickException(f"there is no group {group_id!r}")
        owners = owners_of(group)
        partitions = sorted({*offsets, *owners})
        ends = latest_offsets(cluster, existing_partitions(cluster, partitions))
    rows = [_partition_row(p, offsets.get(p), ends.get(p), owners.get(p)) for p in partitions]
    members = [_member_row(member, owners) for member in group.members]
    if as_json:
        print_json(_as_json(group, members, rows))
        return
    click.echo(
        f"group {group_id}  state {group.group_state}  protocol {group.protocol_data or '-'}  "
        f"members {len(members)}  lag {sum(row.lag or 0 for row in rows)}"
    )
    if members:
        print_table(
            ("member", "instance", "client", "host", "partitions"),
            [
                (
                    row["member_id"],
                    row["group_instance_id"],
                    row["client_id"],
                    row["client_host"],
                    " ".join(row["partitions"]),
                )
                for row in members
            ],
            "Members",
        )
    print_table(
        ("topic", "partition", "committed", "end", "lag", "member"),
        [(r.topic, r.partition, r.committed, r.end, r.lag, r.member_id) for r in rows],
        "Partitions",
    )


@groups.command()
@click.argument("group_ids", metavar="GROUP...", nargs=-1, required=True)
@yes_option
@cluster_options
def delete(bootstrap_servers: str, timeout_s: float, group_ids: tuple[str, ...], yes: bool) -> None:
    """Delete groups that have no members, with their offsets."""
    confirm(f"Delete {', '.join(group_ids)} with all committed offsets?", yes=yes)
    with connected(bootstrap_servers, timeout_s) as cluster:
        for group_id in group_ids:
            delete_group(cluster, group_id)
            click.echo(f"deleted {group_id}")


@groups.command()
@click.argument("group_id", metavar="GROUP")
@click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:0,1,...]",
    help="A topic, or some of its partitions. Default: all that the group has committed.",
)
@click.option("--to-earliest", is_flag=True, help="To where the partitions begin.")
@click.option("--to-latest", is_flag=True, help="To where they end.")
@click.option("--to-offset", type=click.IntRange(min=0), help="To this offset.")
@click.option("--to-time", metavar="TIME", help="To the first record at or after this time.")
@click.option("--shift-by", type=int, metavar="N", help="N records on, or back if negative.")
@click.option("--dry-run", is_flag=True, help="Only show what would be committed.")
@json_option
@cluster_options
def reset(
    bootstrap_servers: str,
    timeout_s: float,
    as_json: bool,
    group_id: str,
    topics: tuple[str, ...],
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_time: str | None,
    shift_by: int | None,
    dry_run: bool,
) -> None:
    """Set the offsets of a group that has no members.

    TIME is in milliseconds since 1970, or like 2013-01-31T08:00 (local time unless it says
    otherwise). Offsets are kept within what the partitions hold.
    """
    chosen = [to_earliest, to_latest, to_offset is not None, to_time, shift_by is not None]
    if sum(map(bool, chosen)) != 1:
        raise click.UsageError(
            "give one of --to-earliest, --to-latest, --to-offset, --to-time and --shift-by"
        )
    timestamp = None if to_time is None else parse_timestamp(to_time)
    with connected(bootstrap_servers, timeout_s) as cluster:
        state = describe_group(cluster, group_id).group_state
        if state not in STATES_WITHOUT_MEMBERS:
            raise click.ClickException(
                f"group {group_id!r} is {state}: stop its members first, they would not notice"
            )
        committed = committed_offsets(cluster, group_id)
        partitions = _chosen_partitions(cluster, topics, committed)
        begins = earliest_offsets(cluster, partitions)
        ends = latest_offsets(cluster, partitions)
        if to_earliest:
            wanted = begins
        elif to_latest:
            wanted = ends
        elif to_offset is not None:
            wanted = dict.fromkeys(partitions, to_offset)
        elif timestamp is not None:
            found = list_offsets(cluster, dict.fromkeys(partitions, timestamp))
            wanted = {p: row.offset if row.offset >= 0 else ends[p] for p, row in found.items()}
        else:
            wanted = _shifted(partitions, committed, shift_by or 0)
        offsets = {p: min(max(wanted[p], begins[p]), ends[p]) for p in partitions}
        if not dry_run:
            commit_offsets(cluster, group_id, {p: CommittedOffset(o) for p, o in offsets.items()})
    rows = [
        (p.topic, p.partition, committed[p].offset if p in committed else None, offsets[p])
        for p in partitions
    ]
    if as_json:
        keys = ("topic", "partition", "before", "after")
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
    else:
        print_table(("topic", "partition", "before", "after"), rows)


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """How far a group is in one partition."""

    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None
    member_id: str | None


def _partition_row(
    partition: TopicPartition,
    committed: CommittedOffset | None,
    end: int | None,
    member: DescribedGroupMember | None,
) -> PartitionRow:
    lag = None if committed is None or end is None else max(0, end - committed.offset)
    return PartitionRow(
        partition.topic,
        partition.partition,
        None if committed is None else committed.offset,
        end,
        lag,
        None if member is None else member.member_id,
    )


def _member_row(
    member: DescribedGroupMember, owners: Mapping[TopicPartition, DescribedGroupMember]
) -> dict[str, Any]:
    owned = sorted(partition for partition, owner in owners.items() if owner is member)
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "partitions": [str(partition) for partition in owned],
    }


def _as_json(
    group: DescribedGroup, members: list[dict[str, Any]], rows: list[PartitionRow]
) -> dict[str, Any]:
    return {
        "group": group.group_id,
        "state": group.group_state,
        "protocol_type": group.protocol_type,
        "protocol": group.protocol_data,
        "members": members,
        "partitions": [
            {
                "topic": row.topic,
                "partition": row.partition,
                "committed": row.committed,
                "end": row.end,
                "lag": row.lag,
                "member_id": row.member_id,
            }
            for row in rows
        ],
    }


def _chosen_partitions(
    cluster: Cluster, topics: tuple[str, ...], committed: Mapping[TopicPartition, CommittedOffset]
) -> list[TopicPartition]:
    if not topics:
        if not committed:
            raise click.UsageError("the group has committed nothing yet: name topics by --topic")
        return existing_partitions(cluster, sorted(committed))
    chosen: set[TopicPartition] = set()
    for text in topics:
        topic, separator, indexes = text.partition(":")
        partitions = cluster.partitions_of(topic)
        if separator:
            try:
                wanted = {TopicPartition(topic, int(index)) for index in indexes.split(",")}
            except ValueError:
                raise click.BadParameter(
                    f"{text!r} is not TOPIC:0,1,...", param_hint="--topic"
                ) from None
            if missing := sorted(wanted.difference(partitions)):
                raise click.BadParameter(f"there is no {missing[0]}", param_hint="--topic")
            chosen.update(wanted)
        else:
            chosen.update(partitions)
    return sorted(chosen)


def _shifted(
    partitions: list[TopicPartition],
    committed: Mapping[TopicPartition, CommittedOffset],
    shift_by: int,
) -> dict[TopicPartition, int]:
    for partition in partitions:
        if partition not in committed:
            raise click.UsageError(f"the group has no offset in {partition} that could be shifted")
    return {partition: committed[partition].offset + shift_by for partition in partitions}
