"""Questions about groups of the consumer protocol (KIP-848), and what a broker answers to them.

As in `group_questions.py`, the same questions go to Apache Kafka once and to our handlers in every
test run. To ask Kafka again, start one with an empty data
directory and the settings below, and run

    python -m asyncbroker.tests.consumer_group_questions HOST:PORT > asyncbroker/tests/golden/FILE

    group.initial.rebalance.delay.ms=0      group.consumer.assignment.interval.ms=0
    group.consumer.max.size=3               group.consumer.heartbeat.interval.ms=300
    group.consumer.min.heartbeat.interval.ms=100

Topics are called by their names for their ids. Of what somebody is assigned only the number of
partitions is kept: which ones depends in Kafka on the order of its hash tables.
"""

from __future__ import annotations

from typing import Any

from asyncbroker.protocol.consumer_protocol import (
    ConsumerProtocolSubscription,
    decode_assignment,
    encode_subscription,
)
from asyncbroker.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from asyncbroker.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatTopicPartitions,
)
from asyncbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from asyncbroker.protocol.messages.delete_groups import DeleteGroupsRequest
from asyncbroker.protocol.messages.describe_groups import DescribeGroupsRequest
from asyncbroker.protocol.messages.heartbeat import HeartbeatRequest
from asyncbroker.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from asyncbroker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from asyncbroker.protocol.messages.list_groups import ListGroupsRequest
from asyncbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from asyncbroker.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from asyncbroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from asyncbroker.protocol.messages.sync_group import SyncGroupRequest
from asyncbroker.tests.asked_broker import Asked, print_answers
from asyncbroker.tests.group_requests import sync_request

STRANGE_ID = bytes(15) + b"\x07"


class ConsumerQuestions:
    """One round of questions."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        asked.simplify = self._simplify
        self.ask = asked.ask
        self.note = asked.note
        self.topic_ids: dict[str, bytes] = {}

    async def run(self) -> None:
        """Asks them all."""
        for name, partition_count in (("dt", 4), ("du", 2)):
            topic = CreatableTopic(name=name, num_partitions=partition_count, replication_factor=1)
            created = await self.asked.send(CreateTopicsRequest([topic], 10_000), 7)
            self.topic_ids[name] = created.topics[0].topic_id
        await self._refusals()
        await self._one_member()
        await self._offsets()
        await self._two_members()
        await self._unsubscribing()
        await self._static_members()
        await self._classic_and_consumer()
        await self._upgrade()
        await self._administration()

    def _simplify(self, plain: Any) -> Any:
        names = {topic_id.hex(): name for name, topic_id in self.topic_ids.items()}
        if isinstance(plain, str):
            return names.get(plain, plain)
        if isinstance(plain, dict) and ("topic_id" in plain or "topic_name" in plain):
            is_assignment = all(isinstance(p, int) for p in plain.get("partitions", []))
            if is_assignment and "partitions" in plain:
                plain["partitions"] = len(plain["partitions"])
        return plain

    # ---- asking

    async def beat(
        self, label: str, member: str, epoch: int, version: int = 1, **fields: Any
    ) -> Any:
        """A heartbeat, and what came back."""
        return await self.ask(label, self.heartbeat_of(member, epoch, **fields), version)

    def heartbeat_of(
        self,
        member: str,
        epoch: int,
        *,
        group: str = "g",
        topics: list[str] | None = None,
        owned: Any = None,
        **fields: Any,
    ) -> ConsumerGroupHeartbeatRequest:
        """A heartbeat; with topics one that tells all."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=group, member_id=member, member_epoch=epoch, **fields
        )
        if topics is not None:
            request.subscribed_topic_names = topics
            if request.rebalance_timeout_ms < 0:
                request.rebalance_timeout_ms = 60_000
            request.topic_partitions = []
        if owned is not None:
            request.topic_partitions = (
                [HeartbeatTopicPartitions(p.topic_id, p.partitions) for p in owned] if owned else []
            )
        return request

    # ---- the questions

    async def _refusals(self) -> None:
        beat = self.beat
        full = ["dt"]
        for v in (0, 1):
            await beat(f"no group v{v}", "m", 0, v, group="", topics=full)
            await beat(f"blank group v{v}", "m", 0, v, group=" ", topics=full)
            await beat(f"blank instance v{v}", "m", 0, v, topics=full, instance_id="")
            await beat(f"blank rack v{v}", "m", 0, v, topics=full, rack_id="")
            await beat(f"no timeout v{v}", "m", 0, v, subscribed_topic_names=full, owned=())
            request = self.heartbeat_of("m", 0, subscribed_topic_names=full, rebalance_timeout_ms=9)
            await self.ask(f"owned unknown v{v}", request, v)
            request = self.heartbeat_of("m", 0, rebalance_timeout_ms=9, owned=())
            await self.ask(f"no topics v{v}", request, v)
            some = [HeartbeatTopicPartitions(self.topic_ids["dt"], [1])]
            await beat(f"owns something v{v}", "m", 0, v, topics=full, owned=some)
            await beat(f"no id and an epoch v{v}", "", 3, v)
            await beat(f"no id and leaves v{v}", "", -1, v)
            await beat(f"epoch -3 v{v}", "m", -3, v)
            await beat(f"leaves for a while without an instance v{v}", "m", -2, v)
            await beat(f"unknown assignor v{v}", "m", 0, v, topics=full, server_assignor="sticky")
            await beat(f"stays in no group v{v}", "m", 5, v, group="nobody")
            await beat(f"leaves no group v{v}", "m", -1, v, group="nobody")
            await beat(
                f"leaves no group for a while v{v}", "m", -2, v, group="nobody", instance_id="i"
            )
        await beat("no id v1", "", 0, 1, topics=full)
        await beat("bad expression", "m", 0, topics=full, subscribed_topic_regex="a(b")
        await self.ask("describe nobody", ConsumerGroupDescribeRequest(["nobody", ""]), 1)

    async def _one_member(self) -> None:
        beat = self.beat
        joined = await beat("joins", "m1", 0, topics=["dt"])
        owned = joined.assignment.topic_partitions
        await beat("joins again", "m1", 0, topics=["dt"])
        await beat("stays", "m1", 2, owned=owned)
        await beat("stays and says nothing", "m1", 2)
        await beat("tells all again", "m1", 2, topics=["dt"], owned=owned)
        await beat("a later epoch", "m1", 7)
        await beat("a stranger stays", "m9", 2)
        await beat("a stranger leaves", "m9", -1)
        await beat("a stranger with an instance stays", "m9", 2, instance_id="i9")
        await beat("a stranger with an instance leaves", "m9", -1, instance_id="i9")
        await beat("another rack", "m1", 2, rack_id="r1")
        await beat("range", "m1", 2, server_assignor="range")
        await beat("topics that there are not", "m1", 2, subscribed_topic_names=["none", "dt"])
        await beat("the epoch before, without saying what is owned", "m1", 2)
        await beat("the epoch before, saying what is owned", "m1", 2, owned=owned)
        await beat("the epoch of now", "m1", 3, owned=owned)
        for v in (0, 1):
            await self.ask(f"describe one member v{v}", ConsumerGroupDescribeRequest(["g"]), v)
        for v in (5, 6):
            await self.ask(f"describe as a classic group v{v}", DescribeGroupsRequest(["g"]), v)

    def commit_of(
        self, epoch: int, member: str = "m1", *, group: str = "g", index: int = 0, **topic: Any
    ) -> OffsetCommitRequest:
        place = OffsetCommitRequestTopic(**(topic or {"name": "dt"}))
        place.partitions = [OffsetCommitRequestPartition(index, 5, committed_metadata="")]
        return OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=epoch,
            member_id=member,
            topics=[place],
        )

    async def _offsets(self) -> None:
        ask = self.ask
        ids = self.topic_ids
        for v in (8, 9):
            await ask(f"commit v{v}", self.commit_of(3), v)
            await ask(f"commit of the epoch before v{v}", self.commit_of(2), v)
            await ask(f"commit of an epoch to come v{v}", self.commit_of(4), v)
            await ask(f"commit of epoch 0 v{v}", self.commit_of(0), v)
            await ask(f"commit of a stranger v{v}", self.commit_of(3, "m9"), v)
            await ask(f"commit of nobody v{v}", self.commit_of(-1, ""), v)
            await ask(f"commit of no partition v{v}", self.commit_of(3, index=9), v)
            await ask(f"commit before, another topic v{v}", self.commit_of(2, name="du"), v)
        await ask("commit by id", self.commit_of(3, topic_id=ids["dt"]), 10)
        await ask("commit by a strange id", self.commit_of(3, topic_id=STRANGE_ID), 10)
        both = self.commit_of(3, topic_id=STRANGE_ID)
        both.topics += self.commit_of(3, topic_id=ids["dt"]).topics
        await ask("commit by both", both, 10)
        await ask("commit by id, stale", self.commit_of(9, topic_id=ids["dt"]), 10)
        for v in (9, 10):
            for label, member, epoch in (
                ("", "m1", 3),
                (" by nobody", None, -1),
                (" of the epoch before", "m1", 2),
                (" of an epoch to come", "m1", 5),
                (" by a stranger", "m9", 3),
                (" by an empty id", "", -1),
            ):
                topics = [OffsetFetchRequestTopics(name="dt", partition_indexes=[0, 1])]
                if v == 10:
                    topics = [
                        OffsetFetchRequestTopics(topic_id=ids["dt"], partition_indexes=[0, 1]),
                        OffsetFetchRequestTopics(topic_id=STRANGE_ID, partition_indexes=[0]),
                    ]
                for asked, which in ((topics, ""), (None, " all")):
                    group = OffsetFetchRequestGroup("g", member, epoch, asked)
                    request = OffsetFetchRequest(groups=[group])
                    await ask(f"fetch{which}{label} v{v}", request, v)

    async def _two_members(self) -> None:
        beat = self.beat
        first = await beat("m1 tells all", "m1", 3, topics=["dt"])
        mine = first.assignment.topic_partitions
        await beat("m2 joins", "m2", 0, topics=["dt"])
        await beat("m2 waits", "m2", 5, owned=())
        kept = await beat("m1 is to give something up", "m1", 4, owned=mine)
        await beat("m1 has it still", "m1", 4, owned=mine)
        await self.ask("describe while m1 gives up", ConsumerGroupDescribeRequest(["g"]), 1)
        await self.ask("list reconciling", ListGroupsRequest(states_filter=["reconciling"]), 5)
        await beat("m2 waits on", "m2", 5, owned=())
        owned = kept.assignment.topic_partitions
        await beat("m1 has given it up", "m1", 4, owned=owned)
        await beat("m2 gets it", "m2", 5, owned=())
        await self.ask("describe two members", ConsumerGroupDescribeRequest(["g"]), 1)
        await self.ask("list stable", ListGroupsRequest(types_filter=["Consumer"]), 5)
        await self.ask("list classic", ListGroupsRequest(types_filter=["classic"]), 5)
        await beat("m3 joins", "m3", 0, topics=["du"])
        await beat("m4 is one too many", "m4", 0, topics=["du"])
        await beat("m3 leaves", "m3", -1)
        await beat("m3 is gone", "m3", 6)
        await beat("m2 leaves", "m2", -1)
        await self.ask("describe assigning", ConsumerGroupDescribeRequest(["g"]), 1)
        await beat("m1 gets all", "m1", 5)

    async def _unsubscribing(self) -> None:
        beat = self.beat
        joined = await beat("u1 joins", "u1", 0, group="u", topics=["dt", "du"])
        owned = joined.assignment.topic_partitions
        fields: dict[str, Any] = {"group": "u", "subscribed_topic_names": ["du"]}
        await beat("u1 reads du only", "u1", 2, owned=owned, **fields)
        rest = [part for part in owned if part.topic_id == self.topic_ids["du"]]
        await beat("u1 has given dt up", "u1", 2, group="u", owned=rest)
        await beat("u1 reads nothing", "u1", 3, group="u", owned=rest, subscribed_topic_names=[])
        await beat("u1 has nothing", "u1", 3, group="u", owned=())
        await self.ask("describe u", ConsumerGroupDescribeRequest(["u"]), 1)
        await beat("u1 leaves", "u1", -1, group="u")
        await self.ask("describe empty", ConsumerGroupDescribeRequest(["u"]), 1)

    async def _static_members(self) -> None:
        beat = self.beat
        ask: dict[str, Any] = {"group": "st", "instance_id": "i1"}
        joined = await beat("static joins", "s1", 0, topics=["dt"], **ask)
        owned = joined.assignment.topic_partitions
        await beat("static joins again", "s1", 0, topics=["dt"], **ask)
        await beat("another process of it", "s2", 0, topics=["dt"], **ask)
        await beat("static stays", "s1", 2, owned=owned, **ask)
        await beat("static stays without its instance", "s1", 2, group="st")
        await beat("another one says that it is s1's instance", "s2", 2, **ask)
        await beat("another one leaves as s1's instance", "s2", -1, **ask)
        await beat("static leaves for a while", "s1", -2, **ask)
        await self.ask("describe absent", ConsumerGroupDescribeRequest(["st"]), 1)
        await self.ask("commit of the absent", self.commit_of(2, "s1", group="st"), 9)
        await beat("static stays though it left", "s1", 2, **ask)
        await beat("static comes back", "s2", 0, topics=["dt"], **ask)
        await self.ask("describe back", ConsumerGroupDescribeRequest(["st"]), 1)
        await beat("the old process stays", "s1", 2, **ask)
        await beat("the old process without its instance", "s1", 2, group="st")
        await beat("static leaves for good", "s2", -1, **ask)
        await self.ask("describe gone", ConsumerGroupDescribeRequest(["st"]), 1)

    def join_of(self, group: str, member: str = "", **fields: Any) -> JoinGroupRequest:
        owned = fields.pop("owned", [])
        subscription = ConsumerProtocolSubscription(topics=["dt"], owned_partitions=owned)
        protocols = fields.pop("protocols", ["range"])
        metadata = encode_subscription(subscription)
        return JoinGroupRequest(
            group_id=group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=30_000,
            member_id=member,
            protocol_type=fields.pop("kind", "consumer"),
            protocols=[JoinGroupRequestProtocol(name, metadata) for name in protocols],
            **fields,
        )

    def note_part(self, label: str, synced: Any) -> Any:
        """Keeps how much a member of the classic protocol was given."""
        parts = decode_assignment(synced.assignment).assigned_partitions
        synced.assignment = b""
        self.note(label, synced)
        self.note(f"{label}: partitions", sum(len(part.partitions) for part in parts))
        return parts

    async def _classic_and_consumer(self) -> None:
        ask, beat = self.ask, self.beat
        joined = await beat("mixed, first", "c1", 0, group="mix", topics=["dt"])
        owned = joined.assignment.topic_partitions
        await ask("classic heartbeat of c1", HeartbeatRequest("mix", 2, "c1"), 4)
        await ask("classic sync of c1", SyncGroupRequest("mix", 2, "c1"), 5)
        await beat("alone", "l1", 0, group="lv", topics=["dt"])
        leave = LeaveGroupRequest("lv", members=[MemberIdentity("l1"), MemberIdentity("zz")])
        await ask("classic leave of a consumer member", leave, 5)
        await ask("classic, another type", self.join_of("mix", "k1", kind="connect"), 9)
        await ask("classic, no protocol", self.join_of("mix", "k1", protocols=[]), 9)
        await ask("classic, joins", self.join_of("mix", "k1"), 9)
        await ask("classic, another protocol", self.join_of("mix", "k2", protocols=["x"]), 9)
        await ask("classic, heartbeat", HeartbeatRequest("mix", 3, "k1"), 4)
        await ask("classic, heartbeat of another time", HeartbeatRequest("mix", 2, "k1"), 4)
        self.note_part("classic, sync", await self.asked.send(sync_request("mix", 3, "k1"), 5))
        await ask("classic, sync of another time", sync_request("mix", 2, "k1"), 5)
        await ask("classic, sync of another protocol", sync_request("mix", 3, "k1", name="x"), 5)
        await ask("commit of a classic member", self.commit_of(3, "k1", group="mix"), 8)
        await ask("commit of a classic member, stale", self.commit_of(2, "k1", group="mix"), 8)
        kept = await beat("c1 is to give up", "c1", 2, group="mix", owned=owned)
        left = kept.assignment.topic_partitions
        await ask("classic, waits", HeartbeatRequest("mix", 3, "k1"), 4)
        await beat("c1 has given up", "c1", 2, group="mix", owned=left)
        await ask("classic, may join", HeartbeatRequest("mix", 3, "k1"), 4)
        await ask("classic, joins again", self.join_of("mix", "k1"), 9)
        await ask("classic, heartbeat again", HeartbeatRequest("mix", 3, "k1"), 4)
        self.note_part(
            "classic, sync again", await self.asked.send(sync_request("mix", 3, "k1"), 5)
        )
        await ask("describe mixed", ConsumerGroupDescribeRequest(["mix"]), 1)
        await beat("the last one of the consumer protocol leaves", "c1", -1, group="mix")
        await ask("downgraded", ListGroupsRequest(types_filter=["classic"]), 5)
        await ask("describe downgraded", ConsumerGroupDescribeRequest(["mix"]), 1)
        await ask("heartbeat when downgraded", HeartbeatRequest("mix", 3, "k1"), 4)
        rejoined = await ask("joins when downgraded", self.join_of("mix", "k1"), 9)
        sync = sync_request("mix", rejoined.generation_id, "k1")
        await ask("syncs when downgraded", sync, 5)
        await ask(
            "leaves when downgraded", LeaveGroupRequest("mix", members=[MemberIdentity("k1")]), 5
        )

    async def _upgrade(self) -> None:
        ask, beat = self.ask, self.beat
        peer, joined = await self.asked.join("up")
        await peer.ask(sync_request("up", 1, joined.member_id), 5)
        await beat("upgrades", "p1", 0, group="up", topics=["dt"])
        await ask("the classic member hears of it", HeartbeatRequest("up", 1, joined.member_id), 4)
        await ask("upgraded", ConsumerGroupDescribeRequest(["up"]), 1)
        await ask("the classic member joins", self.join_of("up", joined.member_id), 9)
        synced = await self.asked.send(sync_request("up", 2, joined.member_id), 5)
        self.note_part("the classic member syncs", synced)
        connect = JoinGroupRequest(
            group_id="con",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=30_000,
            protocol_type="connect",
            protocols=[JoinGroupRequestProtocol("default", b"")],
        )
        await self.asked.send(connect, 3)
        await beat("upgrades a group that is not of consumers", "p1", 0, group="con", topics=["dt"])
        await self.asked.send(self.commit_of(-1, "", group="simple"), 9)
        await beat("takes over a group that stored offsets", "p1", 0, group="simple", topics=["dt"])

    async def _administration(self) -> None:
        ask = self.ask
        await ask("delete", DeleteGroupsRequest(["g", "u", "st", "nobody"]), 2)
        place = [OffsetDeleteRequestTopic("dt", [OffsetDeleteRequestPartition(0)])]
        await ask("delete offsets of a topic that is read", OffsetDeleteRequest("g", place), 0)
        place = [OffsetDeleteRequestTopic("du", [OffsetDeleteRequestPartition(0)])]
        await ask("delete offsets of another topic", OffsetDeleteRequest("g", place), 0)
        await ask("list what is left", ListGroupsRequest(types_filter=["consumer"]), 5)
        joined = await self.beat("joins to be alone", "e1", 0, group="e", topics=["dt"])
        assert joined.error_code == 0
        await self.beat("leaves it empty", "e1", -1, group="e")
        await ask("commit by hand", self.commit_of(-1, "", group="e"), 9)
        await ask("a classic member joins an empty one", self.join_of("e"), 9)
        await ask("what it is then", ListGroupsRequest(states_filter=["empty"]), 5)


async def ask_all(asked: Asked) -> None:
    """One round of questions."""
    await ConsumerQuestions(asked).run()


if __name__ == "__main__":
    print_answers(ask_all)
