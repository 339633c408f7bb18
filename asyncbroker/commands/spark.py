"""`asyncbroker spark`: what Spark would read, without Spark.

`plan` asks the planner of the data source itself, and connects, with the options that a query would
have.
"""

from __future__ import annotations

from collections.abc import Mapping

import click

from asyncbroker.client.errors import ClientError
from asyncbroker.commands.common import (
    assignments,
    cluster_options,
    command_properties,
    json_option,
)
from asyncbroker.commands.tables import print_json, print_table


@click.group()
def spark() -> None:
    """See what Spark would read."""


@spark.command()
@click.argument("topics", metavar="TOPIC[,TOPIC...]")
@click.option(
    "-o",
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of the data source, as startingTimestamp=1700000000000; may be given again.",
)
@cluster_options
@json_option
def plan(
    topics: str, options: tuple[str, ...], bootstrap_servers: str, timeout_s: float, as_json: bool
) -> None:
    """Print the ranges of offsets that a batch query of TOPIC would read, one for each task."""
    from asyncbroker.spark.fetcher import open_cluster
    from asyncbroker.spark.options import ReadOptions, warn_of_ineffective
    from asyncbroker.spark.planner import DataLost
    from asyncbroker.spark.planner import plan as plan_ranges

    own = assignments(options, "--option")
    warn_of_ineffective(own)
    try:
        given = {
            **_login(command_properties()),
            "subscribe": topics,
            "kafka.bootstrap.servers": bootstrap_servers,
            "kafka.request.timeout.ms": str(round(timeout_s * 1000)),
        }
        read = ReadOptions.parse(given | own)
        with open_cluster(read) as cluster:
            ranges = plan_ranges(read, cluster)
    except (ValueError, DataLost, ClientError) as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        print_json(
            [
                {
                    "topic": wanted.partition.topic,
                    "partition": wanted.partition.partition,
                    "start": wanted.start,
                    "end": wanted.end,
                }
                for wanted in ranges
            ]
        )
        return
    print_table(
        ["topic", "partition", "start", "end", "offsets"],
        [[*wanted.partition, wanted.start, wanted.end, wanted.size] for wanted in ranges],
    )
    total = sum(wanted.size for wanted in ranges)
    click.echo(f"{len(ranges)} tasks, {total} offsets", err=True)


def _login(properties: Mapping[str, str]) -> dict[str, str]:
    """What a client's properties say of security, as options of the data source."""
    return {
        f"kafka.{name}": value
        for name, value in properties.items()
        if name.startswith(("security.", "sasl.", "ssl."))
    }
