"""The requests that consoles make for their pages, in the versions that their clients send.

Read from kafka-ui, AKHQ and Kafdrop, which use Kafka's own admin client, and from Redpanda Console,
which uses franz-go: brokers, topics with sizes and offsets, configs with their synonyms and
documentation, groups with lag; and what they ask besides, and must get an answer to.
"""

from __future__ import annotations

from typing import Any

from asyncbroker.protocol.messages import (
    api_versions,
    consumer_group_describe,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    find_coordinator,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_fetch,
)
from compat_tests.suites.checks import expect, fresh
from compat_tests.suites.wire.wire import (
    NONE,
    Wire,
    commit,
    create,
    joined,
    send,
    wire_to,
)

GROUP_ID_NOT_FOUND, SECURITY_DISABLED = 69, 54
ANY = 1
EARLIEST, LATEST = -2, -1


def console(servers: str) -> None:
    """All pages, of one topic with three records and one group that has read two of them."""
    with wire_to(servers) as wire:
        topic, group = create(wire, 2), fresh("group")
        send(wire, topic, b"a", b"b", b"c")
        member = with_offset(wire, topic, group)
        node = brokers_page(wire, topic)
        for version in (1, 3, 4):
            configs_page(wire, version, topic, node)
        topics_page(wire, topic)
        for described, fetched, listed in ((5, 5, 4), (6, 9, 5)):
            groups_page(wire, topic, group, member, described, fetched, listed)
        what_is_not_there(wire)


def with_offset(wire: Wire, topic: str, group: str) -> str:
    """A group with one member that has committed offset 2; its id."""
    wire.ask("FindCoordinator", 1, find_coordinator.FindCoordinatorRequest(group))
    member = joined(wire, group)
    of_member = {
        "generation_id_or_member_epoch": member.generation_id,
        "member_id": member.member_id,
    }
    commit(wire, 7, group, topic, 2, **of_member)
    member_id: str = member.member_id
    return member_id


def brokers_page(wire: Wire, topic: str) -> str:
    """The broker's id, and that topics, versions and directories are told of."""
    for version in (0, 1):
        cluster = wire.ask(
            "DescribeCluster", version, describe_cluster.DescribeClusterRequest(True)
        )
        expect((NONE, True), (cluster.error_code, bool(cluster.cluster_id)))
    everything = wire.ask("Metadata", 8, metadata.MetadataRequest(None, True, True, True))
    assert topic in {each.name for each in everything.topics}
    versions = wire.ask("ApiVersions", 3, api_versions.ApiVersionsRequest("console", "1"))
    expect(NONE, versions.error_code)
    for version in (1, 4):
        request = describe_log_dirs.DescribeLogDirsRequest(None)
        (directory,) = wire.ask("DescribeLogDirs", version, request).results
        sizes = {
            (each.name, partition.partition_index): partition.partition_size
            for each in directory.topics
            for partition in each.partitions
        }
        expect((True, 0), (sizes[topic, 0] > 0, sizes[topic, 1]))
    return str(cluster.brokers[0].broker_id)


def topics_page(wire: Wire, topic: str) -> None:
    """Sizes of one topic, its first and last offsets, and that none of it is on its way."""
    wanted = describe_log_dirs.DescribableLogDirTopic(topic, [0, 1])
    request = describe_log_dirs.DescribeLogDirsRequest([wanted])
    (directory,) = wire.ask("DescribeLogDirs", 4, request).results
    (row,) = directory.topics
    expect((topic, 2), (row.name, len(row.partitions)))
    for timestamp, offsets in ((EARLIEST, [0, 0]), (LATEST, [3, 0])):
        partitions = [
            list_offsets.ListOffsetsPartition(index, timestamp=timestamp) for index in range(2)
        ]
        topics = [list_offsets.ListOffsetsTopic(topic, partitions)]
        asked = list_offsets.ListOffsetsRequest(-1, topics=topics)
        (found,) = wire.ask("ListOffsets", 7, asked).topics
        found.partitions.sort(key=lambda partition: partition.partition_index)
        expect(offsets, [partition.offset for partition in found.partitions])
    moving = list_partition_reassignments.ListPartitionReassignmentsRequest()
    expect([], wire.ask("ListPartitionReassignments", 0, moving).topics)


def configs_page(wire: Wire, version: int, topic: str, node: str) -> None:
    """Defaults of a topic and of a broker, where they come from, and words about them."""
    resources = [
        describe_configs.DescribeConfigsResource(2, topic, None),
        describe_configs.DescribeConfigsResource(4, node, None),
    ]
    request = describe_configs.DescribeConfigsRequest(resources, True, version >= 3)
    of_topic, of_broker = wire.ask("DescribeConfigs", version, request).results
    entries = {entry.name: entry for entry in of_topic.configs}
    policy = entries["cleanup.policy"]
    # 5 is a default of the code.
    expect(("delete", 5, False), (policy.value, policy.config_source, policy.read_only))
    expect("log.cleanup.policy", policy.synonyms[0].name)
    expect(version >= 3, bool(policy.documentation))
    # A default that comes from log.retention.hours is told without synonyms.
    retention = entries["retention.ms"]
    expect((5, []), (retention.config_source, retention.synonyms))
    assert "log.retention.hours" in {entry.name for entry in of_broker.configs}


def groups_page(
    wire: Wire,
    topic: str,
    group: str,
    member_id: str,
    described: int,
    fetched: int,
    listed: int,
) -> None:
    """The group among the others, its members, and its lag."""
    groups = wire.ask("ListGroups", listed, list_groups.ListGroupsRequest(["Stable"])).groups
    assert group in {each.group_id for each in groups}
    # Java's client asks about the newer protocol first.
    newer = consumer_group_describe.ConsumerGroupDescribeRequest([group])
    answer = wire.ask("ConsumerGroupDescribe", 0, newer)
    expect(GROUP_ID_NOT_FOUND, answer.groups[0].error_code)
    request = describe_groups.DescribeGroupsRequest([group], True)
    (row,) = wire.ask("DescribeGroups", described, request).groups
    expect(
        (NONE, "Stable", "consumer", "range", [member_id]),
        (
            row.error_code,
            row.group_state,
            row.protocol_type,
            row.protocol_data,
            [member.member_id for member in row.members],
        ),
    )
    expect({(topic, 0): 2}, offsets_of(wire, fetched, group))


def offsets_of(wire: Wire, version: int, group: str) -> dict[tuple[str, int], int]:
    """All that a group has committed; several groups go into one request from version 8 on."""
    if version < 8:
        (holder,) = [wire.ask("OffsetFetch", version, offset_fetch.OffsetFetchRequest(group, None))]
    else:
        groups = [
            offset_fetch.OffsetFetchRequestGroup(name, topics=None)
            for name in (group, fresh("nobody"))
        ]
        request = offset_fetch.OffsetFetchRequest(groups=groups)
        holder, nobody = wire.ask("OffsetFetch", version, request).groups
        expect((NONE, []), (nobody.error_code, nobody.topics))
    found: Any = holder
    return {
        (topic.name, partition.partition_index): partition.committed_offset
        for topic in found.topics
        for partition in topic.partitions
    }


def what_is_not_there(wire: Wire) -> None:
    """No access lists and no quotas: consoles hide those pages."""
    anything = describe_acls.DescribeAclsRequest(ANY, None, ANY, None, None, ANY, ANY)
    expect(SECURITY_DISABLED, wire.ask("DescribeAcls", 2, anything).error_code)
    quotas = describe_client_quotas.DescribeClientQuotasRequest()
    answer = wire.ask("DescribeClientQuotas", 1, quotas)
    expect((NONE, []), (answer.error_code, answer.entries or []))
