"""What the clients are tried for: the rows of the report, each with the name that programs know.

Every client's program checks the same things in the client's own words; what a client has not, its
suite says and why. Tools and the bare wire have lists of their own.
"""

from __future__ import annotations

from typing import Final

FEATURES: Final[dict[str, str]] = {
    "acks": "produce with acks 0, 1 and all",
    "gzip": "gzip",
    "snappy": "snappy",
    "lz4": "LZ4",
    "zstd": "zstd",
    "records": "keys, headers, empty and null values, timestamps",
    "idempotent": "idempotent producer",
    "assign": "consume assigned partitions",
    "subscribe": "consume subscribed topics",
    "seek": "seek to an offset, the beginning and the end",
    "times": "offsets by time",
    "pause": "pause and resume partitions",
    "range": "group with range: members come and leave",
    "roundrobin": "group with round robin: members come and leave",
    "sticky": "group with sticky: members come and leave",
    "cooperative": "group with cooperative sticky: members come and leave",
    "next-uniform": "group of the newer protocol (KIP-848), uniform: members come and go",
    "next-range": "group of the newer protocol (KIP-848), range: members come and go",
    "next-change": "group that changes over to the newer protocol and back while it runs",
    "static": "static member keeps its partitions over a restart",
    "commit": "commit and fetch offsets, resume from them",
    "reset": "reset to earliest and latest, offset out of range",
    "topics": "create, list, describe and delete topics",
    "partitions": "add partitions",
    "configs": "describe and alter configs of topics and broker",
    "delete-records": "delete records",
    "groups": "list and describe groups, delete them where the client can",
    "logdirs": "sizes in log directories",
    "leaders": "elect leaders",
    "cluster": "describe the cluster",
    "too-large": "a record that is too large is refused, the next is taken",
    "unknown": "a topic that does not exist is an error",
    "transactions": "transactions",
    "tls": "TLS",
    "plain": "log in by PLAIN, with and without TLS, and not with a wrong password",
    "scram-256": "log in by SCRAM-SHA-256, with and without TLS, and not with a wrong password",
    "scram-512": "log in by SCRAM-SHA-512, with and without TLS, and not with a wrong password",
}
# What needs a broker whose groups are quick, and one where users log in.
NEXT_GENERATION: Final = ("next-uniform", "next-range", "next-change")
LOGINS: Final = ("tls", "plain", "scram-256", "scram-512")

# What some clients are tried for besides.
USERS: Final[dict[str, str]] = {"users": "add, describe and delete users (SCRAM)"}
BLIND: Final[dict[str, str]] = {"asks-for-no-versions": "a client that asks for no versions"}

KAFKAS: Final = ("0.11", "1.0", "1.1", "2.0", "2.1", "2.3", "2.4", "2.8", "3.9", "4.0", "4.3")
AS_SARAMA: Final[dict[str, str]] = {
    name: name
    for kafka in KAFKAS
    for name in (
        f"as a client of Kafka {kafka}",
        f"as a client of Kafka {kafka} that asks for no versions",
    )
}

FRANZ_GO_OWN: Final = (
    "TestPing",
    "TestIssue1034",
    "TestUnknownGroupOffsetFetchPinned",
    "TestClient_Produce",
    "TestClient_ProduceLargeMessages",
    "TestIssue769",
    "TestIssue831",
    "TestIssueProduceBrokerTooOldFailsRecords",
    "TestIssueProduceSyncManualPartitionNegativeDoesNotPanic",
    "TestIssueFetchLargerThanBrokerMaxReadBytes",
    "TestConsumeTopicRetrieval",
    "TestConsumeTopicRetrieval_Many",
    "TestConsumeMaxDecompressBatchBytes",
    "TestConsumeRegex",
    "Test848RegexBrokerResolves",
    "TestIssue325",
    "TestIssue337",
    "TestIssue434",
    "TestIssue523",
    "TestIssue648",
    "TestIssue810",
    "TestIssue865",
    "TestDirectPartitionPurge",
    "TestAddRemovePartitions",
    "TestPauseIssue489",
    "TestPauseIssueOct2023",
    "TestPooling",
    "TestHookPollStart",
    "TestGroupSimple",
    "TestGroupETL",
)

SARAMA_OWN: Final = (
    "TestVersionMatrix",
    "TestVersionMatrixLZ4",
    "TestVersionMatrixZstd",
    "TestVersionMatrixIdempotent",
    "TestFuncProducingNoResponse",
    "TestFuncMultiPartitionProduce",
    "TestFuncProducingToInvalidTopic",
    "TestInterceptors",
    "TestFuncConsumerOffsetOutOfRange",
    "TestConsumerHighWaterMarkOffset",
    "TestConsumerPartialBatchRecovery",
    "TestConsumerGroupDeadlock",
    "TestFuncConsumerGroupPartitioning",
    "TestFuncConsumerGroupPartitioningStateful",
    "TestFuncConsumerGroupExcessConsumers",
    "TestFuncConsumerGroupRebalanceAfterAddingPartitions",
    "TestFuncConsumerGroupFuzzy",
    "TestFuncConsumerGroupOffsetDeletion",
    "TestFuncConsumerGroupCooperative",
    "TestFuncConsumerGroupStaticMembership_Basic",
    "TestFuncConsumerGroupStaticMembership_RejoinAndLeave",
    "TestFuncConsumerGroupStaticMembership_Fenced",
    "TestFuncJoinGroupVersionSelection",
    "TestFuncOffsetManager",
    "TestFuncClientCoordinator",
    "TestFuncAdminDescribeGroups",
    "TestFuncAdminListConsumerGroups",
    "TestFuncAdminListConsumerGroupOffsetsBatch",
    "TestFuncAdminListOffsets",
    "TestFuncAdminDescribeLogDirs",
    "TestFuncAdminDeleteRecords",
    "TestFuncAdminAlterConsumerGroupOffsets",
    "TestFuncAdminDescribeConfig",
    "TestFuncAdminDeleteGroup",
    "TestFuncAdminDeleteTopic",
    "TestFuncAdminElectLeadersV1",
    "TestFuncAdminIncrementalAlterConfigs",
    "TestFuncAdminAlterConfig",
    "TestFuncAdminUpdateFeatures",
    "TestFuncAdminQuotas",
    "TestFuncDescribeProducers",
)
