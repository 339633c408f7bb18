"""Some two hundred questions about groups, and what a broker answers to them.

The same questions go to Apache Kafka over sockets, once, and to our handlers in every test run;
`test_group_answers.py` holds the answers together. To ask Kafka again, start one with
`group.initial.rebalance.delay.ms=0` and an empty data directory, and run

    python -m asyncbroker.tests.group_questions HOST:PORT > asyncbroker/tests/golden/FILE
"""

from __future__ import annotations

from asyncbroker.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from asyncbroker.protocol.messages.delete_groups import DeleteGroupsRequest
from asyncbroker.protocol.messages.describe_groups import DescribeGroupsRequest
from asyncbroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from asyncbroker.protocol.messages.heartbeat import HeartbeatRequest
from asyncbroker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from asyncbroker.protocol.messages.list_groups import ListGroupsRequest
from asyncbroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from asyncbroker.protocol.messages.sync_group import SyncGroupRequest
from asyncbroker.tests.asked_broker import Asked, print_answers
from asyncbroker.tests.group_requests import TOPIC, commit_request, join_request, sync_request


class Questions:
    """One round of questions."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.ask = asked.ask
        self.note = asked.note
        self.connect = asked.connect
        self.pause = asked.pause
        self.join = asked.join

    async def run(self) -> None:
        """Asks them all."""
        topic = CreatableTopic(name=TOPIC, num_partitions=3, replication_factor=1)
        await self.asked.send(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
        await self._find()
        await self._refusals()
        await self._one_member()
        await self._two_members()
        await self._nobody_left()
        await self._old_versions()
        await self._static_members()
        await self._votes()

    async def _find(self) -> None:
        for version in range(6):
            request = FindCoordinatorRequest(key="g")
            if version >= 4:
                request = FindCoordinatorRequest(coordinator_keys=["g", "h", ""])
            await self.ask(f"find v{version}", request, version)

    async def _refusals(self) -> None:
        for v in range(10):
            join = join_request
            await self.ask(f"join without a group v{v}", join("", version=v), v)
            await self.ask(f"join with session 1 v{v}", join("s", version=v, session_ms=1), v)
            await self.ask(f"join without protocols v{v}", join("p", version=v, protocols={}), v)
            await self.ask(f"join as a stranger v{v}", join("z", version=v, member_id="z"), v)
            if v >= 4:
                await self.ask(f"join for the first time v{v}", join(f"first{v}", version=v), v)
        await self.ask("describe a pending member", DescribeGroupsRequest(groups=["first9"]), 5)
        for v in range(6):
            await self.ask(f"sync with no group v{v}", sync_request("z", 1, "m", version=v), v)
            await self.ask(f"sync without a group v{v}", sync_request("", 1, "m", version=v), v)
            for label, group in (("with no", "z"), ("without a", "")):
                request = LeaveGroupRequest(group_id=group)
                if v < 3:
                    request.member_id = "m"
                else:
                    request.members = [MemberIdentity("m"), MemberIdentity("", "instance")]
                await self.ask(f"leave {label} group v{v}", request, v)
        for v in range(5):
            await self.ask(f"heartbeat with no group v{v}", HeartbeatRequest("z", 1, "m"), v)
            await self.ask(f"heartbeat without a group v{v}", HeartbeatRequest("", 1, "m"), v)

    async def _one_member(self) -> None:
        peer, joined = await self.join("one")
        me = self.note("join alone", joined).member_id
        self.me, self.my_peer = me, peer
        ask = self.ask
        describe = DescribeGroupsRequest(groups=["one"])
        await ask("heartbeat before sync", HeartbeatRequest("one", 1, me), 4)
        await ask("commit before sync", commit_request("one", 1, me), 8)
        await ask("join again before sync", join_request("one", member_id=me), 9)
        await ask("describe before sync", describe, 5)
        await ask("sync another generation", sync_request("one", 7, me), 5)
        await ask("sync another protocol", sync_request("one", 1, me, name="own"), 5)
        await ask("sync another type", sync_request("one", 1, me, kind="connect"), 5)
        unnamed = SyncGroupRequest(group_id="one", generation_id=1, member_id=me)
        await ask("sync no protocol", unnamed, 5)
        parts = {me: b"abc", "nobody": b"x"}
        await ask("sync", sync_request("one", 1, me, parts=parts), 5)
        await ask("sync again", sync_request("one", 1, me), 5)
        await ask("describe stable", describe, 5)
        await ask("heartbeat", HeartbeatRequest("one", 1, me), 4)
        await ask("heartbeat of another generation", HeartbeatRequest("one", 2, me), 4)
        await ask("heartbeat of a stranger", HeartbeatRequest("one", 1, "z"), 4)
        await ask("heartbeat of no instance", HeartbeatRequest("one", 1, me, "none"), 4)
        await self._commits(me)
        await self._fetches()
        await ask("join with another type", join_request("one", kind="connect"), 9)
        await ask("join with another protocol", join_request("one", protocols={"own": b""}), 9)
        changed = join_request("one", member_id=me, protocols={"own": b""})
        await ask("join again with another protocol", changed, 9)
        delete = DeleteGroupsRequest(groups_names=["one", "z", "one"])
        await ask("delete a group with members", delete, 2)

    async def _commits(self, me: str) -> None:
        ask = self.ask
        some = commit_request("one", 1, me, {0: 5, 1: 6, 9: 7})
        await ask("commit, one partition missing", some, 8)
        await ask("commit, no topic", commit_request("one", 1, me, topic="none"), 8)
        await ask("commit, another generation", commit_request("one", 4, me, {0: 5, 9: 1}), 8)
        await ask("commit, a stranger", commit_request("one", 1, "z"), 8)
        await ask("commit, nobody", commit_request("one"), 8)
        await ask("commit, a member without generation", commit_request("one", -1, me), 8)
        for size in (4096, 4097):
            large = commit_request("one", 1, me, metadata="x" * size)
            await ask(f"commit, {size} of metadata", large, 8)
        await ask("commit, null metadata", commit_request("one", 1, me, {2: 9}, metadata=None), 8)
        await ask("commit, a negative offset", commit_request("one", 1, me, {1: -5}), 8)

    async def _fetches(self) -> None:
        topics = [
            OffsetFetchRequestTopic(TOPIC, [1, 2, 7]),
            OffsetFetchRequestTopic("none", [0]),
        ]
        for v in range(1, 8):
            await self.ask(f"fetch v{v}", OffsetFetchRequest(group_id="one", topics=topics), v)
            if v >= 2:
                everything = OffsetFetchRequest(group_id="z", topics=None)
                await self.ask(f"fetch all of no group v{v}", everything, v)
        some = [OffsetFetchRequestTopics(TOPIC, partition_indexes=[1])]
        groups = [
            OffsetFetchRequestGroup("one", topics=some),
            OffsetFetchRequestGroup("z", topics=some),
            OffsetFetchRequestGroup("y", topics=None),
        ]
        for v in (8, 9):
            await self.ask(f"fetch v{v}", OffsetFetchRequest(groups=groups), v)

    async def _two_members(self) -> None:
        me, mine, ask = self.me, self.my_peer, self.ask
        yours = await self.connect()
        first = await ask("second member", join_request("one"), 9, yours)
        you = first.member_id
        await yours.send(join_request("one", member_id=you), 9)
        await self.pause()
        await ask("heartbeat while joining", HeartbeatRequest("one", 1, me), 4)
        await ask("sync while joining", sync_request("one", 1, me), 5)
        await ask("commit while joining", commit_request("one", 1, me), 8)
        await ask("describe while joining", DescribeGroupsRequest(groups=["one"]), 5)
        await ask("delete while joining", DeleteGroupsRequest(groups_names=["one"]), 2)
        await mine.send(join_request("one", member_id=me), 9)
        self.note("generation 2, leader", await mine.receive())
        self.note("generation 2, follower", await yours.receive())
        await ask("commit of the old generation", commit_request("one", 1, me), 8)
        await yours.send(sync_request("one", 2, you), 5)
        await self.pause()
        parts = {me: b"A", you: b"B"}
        await ask("leader syncs", sync_request("one", 2, me, parts=parts), 5)
        self.note("follower synced", await yours.receive())
        await ask("follower joins again", join_request("one", member_id=you), 9)
        await ask("follower joins again v5", join_request("one", member_id=you, version=5), 5)
        await yours.send(join_request("one", member_id=you, protocols={"range": b"new"}), 9)
        await self.pause()
        await ask("heartbeat after a change", HeartbeatRequest("one", 2, me), 4)
        await mine.send(join_request("one", member_id=me), 9)
        self.note("generation 3, leader", await mine.receive())
        self.note("generation 3, follower", await yours.receive())
        leaving = [MemberIdentity(you), MemberIdentity("z"), MemberIdentity("", "none")]
        await ask("leave before sync", LeaveGroupRequest("one", members=leaving), 5)
        await ask("heartbeat after leave", HeartbeatRequest("one", 3, me), 4)
        await ask("heartbeat of who left", HeartbeatRequest("one", 3, you), 4)
        await ask("generation 4", join_request("one", member_id=me), 9)
        await ask("leave as the last", LeaveGroupRequest("one", member_id=me), 1)

    async def _nobody_left(self) -> None:
        me, ask = self.me, self.ask
        await ask("describe empty", DescribeGroupsRequest(groups=["one", "z"]), 5)
        await ask("heartbeat to nobody", HeartbeatRequest("one", 4, me), 4)
        await ask("join with an old id", join_request("one", member_id=me), 9)
        for v in (2, 8, 9):
            await ask(f"commit to nobody v{v}", commit_request("one", 4, me), v)
            await ask(f"commit to no group v{v}", commit_request("z", 4, me), v)
        await ask("commit by hand", commit_request("one"), 8)
        await ask("commit by hand, new group", commit_request("simple"), 8)
        await ask("commit by hand with an id", commit_request("simple2", -1, "mm"), 8)
        await ask("commit by hand without a group", commit_request(""), 8)
        await ask("describe simple", DescribeGroupsRequest(groups=["simple", ""]), 5)
        await ask("list nonsense", ListGroupsRequest(states_filter=["nonsense"]), 4)
        await ask("list consumer groups", ListGroupsRequest(types_filter=["consumer"]), 5)
        empty = ListGroupsRequest(states_filter=["empty"], types_filter=["Classic"])
        listed = (await self.asked.send(empty, 5)).groups
        self.note("list empty", [g for g in listed if g.group_id in ("one", "simple", "simple2")])
        await ask("delete simple", DeleteGroupsRequest(groups_names=["simple", ""]), 2)
        await ask("describe deleted", DescribeGroupsRequest(groups=["simple"]), 5)

    async def _old_versions(self) -> None:
        for v in range(4):
            group = f"old{v}"
            peer, joined = await self.join(group, version=v)
            me = self.note(f"join v{v}", joined).member_id
            request = sync_request(group, 1, me, parts={me: b"q"}, version=0)
            await self.ask(f"sync v0 after join v{v}", request, 0)
            leave = LeaveGroupRequest(group, member_id=me)
            await self.ask(f"leave v{min(v, 2)} after join v{v}", leave, min(v, 2), peer)

    async def _static_members(self) -> None:
        ask = self.ask
        a, joined = await self.join("st", instance="ia")
        ia = self.note("static, first", joined).member_id
        parts = {ia: b"SA"}
        await ask("static, sync", sync_request("st", 1, ia, parts=parts, instance="ia"), 5)
        b = await self.connect()
        await b.send(join_request("st", instance="ib"), 9)
        await self.pause()
        await a.send(join_request("st", member_id=ia, instance="ia"), 9)
        self.note("static, leader", await a.receive())
        ib = self.note("static, follower", await b.receive()).member_id
        await b.send(sync_request("st", 2, ib, instance="ib"), 5)
        await self.pause()
        parts = {ia: b"SA", ib: b"SB"}
        await ask("static, both", sync_request("st", 2, ia, parts=parts, instance="ia"), 5)
        self.note("static, follower synced", await b.receive())

        old, back = ib, await ask("static, back", join_request("st", instance="ib"), 9)
        ib = back.member_id
        fenced = HeartbeatRequest("st", 2, old, "ib")
        await ask("fenced heartbeat", fenced, 4)
        await ask("fenced sync", sync_request("st", 2, old, instance="ib"), 5)
        await ask("fenced join", join_request("st", member_id=old, instance="ib"), 9)
        await ask("fenced commit", commit_request("st", 2, old, instance="ib"), 8)
        await ask("old id alone", HeartbeatRequest("st", 2, old), 4)
        leave = LeaveGroupRequest("st", members=[MemberIdentity(old, "ib")])
        await ask("fenced leave", leave, 5)
        await ask("static, back, sync", sync_request("st", 2, ib, instance="ib"), 5)
        for v in (9, 8, 5):
            request = join_request("st", instance="ia", version=v)
            ia = (await ask(f"static leader, back v{v}", request, v)).member_id
            synced = sync_request("st", 2, ia, instance="ia")
            await ask(f"static leader, back v{v}, sync", synced, 5)
        twice = [MemberIdentity("", "ib"), MemberIdentity("", "ib"), MemberIdentity("", "none")]
        await ask("leave by instance", LeaveGroupRequest("st", members=twice), 5)
        await ask("heartbeat of the other", HeartbeatRequest("st", 2, ia, "ia"), 4)
        last = LeaveGroupRequest("st", members=[MemberIdentity("", "ia")])
        await ask("leave by instance v3", last, 3)
        await ask("static, nobody left", DescribeGroupsRequest(groups=["st"]), 5)

    async def _votes(self) -> None:
        ours, theirs = {"aa": b"1", "bb": b"2"}, {"bb": b"3", "cc": b"4"}
        p, joined = await self.join("vote", protocols=ours)
        one = self.note("vote, alone", joined).member_id
        await self.asked.send(sync_request("vote", 1, one, name="aa"), 5)
        q = await self.connect()
        two = (await q.ask(join_request("vote", protocols=theirs), 9)).member_id
        await q.send(join_request("vote", member_id=two, protocols=theirs), 9)
        await self.pause()
        await p.send(join_request("vote", member_id=one, protocols=ours), 9)
        self.note("vote, leader", await p.receive())
        self.note("vote, follower", await q.receive())
        await q.send(sync_request("vote", 2, two, name="bb"), 5)
        await self.pause()
        r = await self.connect()
        three = (await r.ask(join_request("vote", protocols=theirs), 9)).member_id
        await r.send(join_request("vote", member_id=three, protocols=theirs), 9)
        self.note("parked sync when another joins", await q.receive())
        await p.send(join_request("vote", member_id=one, protocols=ours), 9)
        await q.send(join_request("vote", member_id=two, protocols=theirs), 9)
        self.note("vote of three, leader", await p.receive())
        self.note("vote of three, first follower", await q.receive())
        self.note("vote of three, second follower", await r.receive())


async def ask_all(asked: Asked) -> None:
    """One round of questions."""
    await Questions(asked).run()


if __name__ == "__main__":
    print_answers(ask_all)
