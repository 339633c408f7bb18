"""`asyncbroker topics`: list, create, describe, delete and alter topics."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import Any, Final

import click

from asyncbroker.client.cluster import Cluster
from asyncbroker.client.errors import BrokerError
from asyncbroker.client.partitions import earliest_offsets, latest_offsets
from asyncbroker.client.topics import (
    BROKER_DEFAULT,
    ConfigOperation,
    ResourceType,
    alter_configs,
    create_partitions,
    create_topic,
    delete_topic,
    describe_configs,
)
from asyncbroker.commands.common import (
    assignments,
    cluster_options,
    confirm,
    connected,
    json_option,
    yes_option,
)
from asyncbroker.commands.tables import print_json, print_table
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.describe_configs import DescribeConfigsResourceResult
from asyncbroker.protocol.messages.incremental_alter_configs import IncrementalAlterableConfig
from asyncbroker.protocol.messages.metadata import MetadataResponseTopic

SOURCE_UNKNOWN: Final = -1
OF_THE_TOPIC: Final = 1
"""Sources of a setting: this one was made for the topic (`DescribeConfigsResourceResult`)."""


@click.group()
def topics() -> None:
    """List, create, describe, change and delete topics."""


@topics.command("list")
@click.option("--internal", is_flag=True, help="Show the cluster's own topics too.")
@json_option
@cluster_options
def list_(bootstrap_servers: str, timeout_s: float, as_json: bool, internal: bool) -> None:
    """List topics."""
    with connected(bootstrap_servers, timeout_s) as cluster:
        found = [topic for topic in cluster.topics() if internal or not topic.is_internal]
    rows = [(topic.name, len(topic.partitions), _replica_count(topic)) for topic in found]
    if as_json:
        columns = ("topic", "partitions", "replicas")
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print_table(("topic", "partitions", "replicas"), rows)


@topics.command()
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True)
@click.option("-p", "--partitions", type=click.IntRange(min=1), help="Default: the broker's.")
@click.option(
    "-r", "--replication-factor", type=click.IntRange(min=1), help="Default: the broker's."
)
@click.option("-c", "--config", "configs", multiple=True, metavar="NAME=VALUE", help="A setting.")
@click.option("--if-not-exists", is_flag=True, help="Leave a topic that exists as it is.")
@cluster_options
def create(
    bootstrap_servers: str,
    timeout_s: float,
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
) -> None:
    """Create topics."""
    settings = assignments(configs, "--config")
    with connected(bootstrap_servers, timeout_s) as cluster:
        for name in names:
            try:
                create_topic(
                    cluster,
                    name,
                    partitions=partitions or BROKER_DEFAULT,
                    replication_factor=replication_factor or BROKER_DEFAULT,
                    configs=settings,
                )
            except BrokerError as error:
                if error.code != ErrorCode.TOPIC_ALREADY_EXISTS or not if_not_exists:
                    raise
                click.echo(f"{name} exists already")
            else:
                click.echo(f"created {name}")


@topics.command()
@click.argument("names", metavar="[TOPIC...]", nargs=-1)
@json_option
@cluster_options
def describe(
    bootstrap_servers: str, timeout_s: float, as_json: bool, names: tuple[str, ...]
) -> None:
    """Show partitions, offsets and settings of topics (of all, when none is named)."""
    with connected(bootstrap_servers, timeout_s) as cluster:
        if names:
            found = [cluster.topic(name) for name in names]
        else:
            found = [topic for topic in cluster.topics() if not topic.is_internal]
        described = [_describe(cluster, topic) for topic in found]
    if as_json:
        print_json(described)
        return
    for topic in described:
        settings = ", ".join(f"{name}={value}" for name, value in topic["configs"].items())
        click.echo(f"{topic['topic']}  id {topic['topic_id']}  settings: {settings or 'defaults'}")
        print_table(
            ("partition", "leader", "replicas", "isr", "earliest", "latest"),
            [
                (
                    row["partition"],
                    row["leader"],
                    _ids(row["replicas"]),
                    _ids(row["isr"]),
                    row["earliest"],
                    row["latest"],
                )
                for row in topic["partitions"]
            ],
        )


@topics.command()
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True)
@click.option("--if-exists", is_flag=True, help="Do not fail for a topic that is not there.")
@yes_option
@cluster_options
def delete(
    bootstrap_servers: str, timeout_s: float, names: tuple[str, ...], if_exists: bool, yes: bool
) -> None:
    """Delete topics with all their records."""
    confirm(f"Delete {', '.join(names)} with all records?", yes=yes)
    with connected(bootstrap_servers, timeout_s) as cluster:
        for name in names:
            try:
                delete_topic(cluster, name)
            except BrokerError as error:
                if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not if_exists:
                    raise
                click.echo(f"{name} does not exist")
            else:
                click.echo(f"deleted {name}")


@topics.command()
@click.argument("name", metavar="TOPIC")
@click.option(
    "-p", "--partitions", type=click.IntRange(min=1), help="How many it is to have; only more."
)
@click.option("-c", "--config", "configs", multiple=True, metavar="NAME=VALUE", help="Set it.")
@click.option(
    "--delete-config", "deleted", multiple=True, metavar="NAME", help="Go back to the default."
)
@cluster_options
def alter(
    bootstrap_servers: str,
    timeout_s: float,
    name: str,
    partitions: int | None,
    configs: tuple[str, ...],
    deleted: tuple[str, ...],
) -> None:
    """Change settings of a topic, or add partitions to it."""
    changes = [
        IncrementalAlterableConfig(setting, ConfigOperation.SET, value)
        for setting, value in assignments(configs, "--config").items()
    ]
    changes += [
        IncrementalAlterableConfig(setting, ConfigOperation.DELETE, None) for setting in deleted
    ]
    if not changes and partitions is None:
        raise click.UsageError("nothing to change: give --partitions, --config or --delete-config")
    with connected(bootstrap_servers, timeout_s) as cluster:
        if changes:
            alter_configs(cluster, ResourceType.TOPIC, name, changes)
        if partitions is not None:
            create_partitions(cluster, name, partitions)
    click.echo(f"changed {name}")


def _describe(cluster: Cluster, topic: MetadataResponseTopic) -> dict[str, Any]:
    """A topic with its offsets and settings, as `--json` prints it."""
    name = topic.name or ""
    partitions = cluster.partitions_of(name)
    earliest = earliest_offsets(cluster, partitions)
    latest = latest_offsets(cluster, partitions)
    by_index = {row.partition_index: row for row in topic.partitions}
    return {
        "topic": name,
        "topic_id": _kafka_uuid(topic.topic_id),
        "is_internal": topic.is_internal,
        "partitions": [
            {
                "partition": partition.partition,
                "leader": by_index[partition.partition].leader_id,
                "leader_epoch": by_index[partition.partition].leader_epoch,
                "replicas": by_index[partition.partition].replica_nodes,
                "isr": by_index[partition.partition].isr_nodes,
                "earliest": earliest[partition],
                "latest": latest[partition],
            }
            for partition in partitions
        ],
        "configs": {
            config.name: config.value
            for config in describe_configs(cluster, ResourceType.TOPIC, name)
            if _is_of_the_topic(config)
        },
    }


def _is_of_the_topic(config: DescribeConfigsResourceResult) -> bool:
    """Brokers before Kafka 1.1 do not name the source: there it is what is no default (KIP-226)."""
    if config.config_source == SOURCE_UNKNOWN:
        return not config.is_default
    return config.config_source == OF_THE_TOPIC


def _replica_count(topic: MetadataResponseTopic) -> int:
    return max((len(row.replica_nodes) for row in topic.partitions), default=0)


def _ids(ids: list[int]) -> str:
    return ",".join(map(str, ids))


def _kafka_uuid(uuid: bytes) -> str:
    """An id as Kafka's tools write it."""
    return urlsafe_b64encode(uuid).decode().rstrip("=")
