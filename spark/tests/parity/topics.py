"""Topics with every kind of record, for both connectors to read."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from asyncbroker.client.cluster import Cluster, TopicPartition
from asyncbroker.client.partitions import produce
from asyncbroker.client.topics import create_topic
from asyncbroker.protocol.records import Compression, Record, build_batch

NOW = 1_700_000_000_000


@dataclass(frozen=True)
class Topics:
    """`many` has 3 partitions of 15, 5 and 0 records; `late` has the broker's time; of `short` the
    first 20 records are deleted. Their names end in `tag`, which no other topic's has."""

    tag: str
    many: str
    late: str
    short: str
    servers: str

    def text(self, value: str) -> str:
        """With the topics' names in their places."""
        for name in ("tag", "many", "late", "short"):
            value = value.replace(f"<{name}>", getattr(self, name))
        return value

    def options(self, given: dict[str, str]) -> dict[str, str]:
        strategies = {"subscribe", "subscribepattern", "assign"}
        base = {"kafka.bootstrap.servers": self.servers}
        if strategies.isdisjoint(name.lower() for name in given):
            base["subscribe"] = self.many
        texts = {name: self.text(value) for name, value in given.items()}
        return {n: v for n, v in (base | texts).items() if v != "<absent>"}


def some_records(count: int) -> list[Record]:
    return [
        Record(
            0,
            NOW + 1000 * i if i else -1,
            (None, b"", b"key-%d" % i)[i % 3],
            (b"value-%d" % i, b"", None)[i % 3],
            ([], [("a", b"1"), ("a", None), ("é", b"")])[i % 2],
        )
        for i in range(count)
    ]


def make_topics(servers: str) -> Topics:
    """Makes and fills them, with names that nobody has."""
    from confluent_kafka import TopicPartition as Position
    from confluent_kafka.admin import AdminClient

    tag = uuid.uuid4().hex[:8]
    made = Topics(tag, f"many-{tag}", f"late-{tag}", f"short-{tag}", servers)
    forever = {"retention.ms": "-1"}
    with Cluster(servers) as cluster:
        create_topic(cluster, made.many, partitions=3, configs=forever)
        create_topic(
            cluster, made.late, partitions=1, configs={"message.timestamp.type": "LogAppendTime"}
        )
        create_topic(cluster, made.short, partitions=1, configs=forever)
        first = TopicPartition(made.many, 0)
        for codec in Compression:
            produce(cluster, {first: build_batch(some_records(3), compression=codec)})
        produce(cluster, {TopicPartition(made.many, 1): build_batch(some_records(5))})
        produce(cluster, {TopicPartition(made.late, 0): build_batch(some_records(4))})
        produce(cluster, {TopicPartition(made.short, 0): build_batch(some_records(30))})
        admin = AdminClient({"bootstrap.servers": servers})
        for deleted in admin.delete_records([Position(made.short, 0, 20)]).values():
            deleted.result(30)
    return made
