"""What goes wrong with Kafka, by name: scripts over faults, nodes and groups.

Some are a state that lasts until it is removed (a full disk), some an event that happens at once (a
leader moves), some a rule for what comes (a storm of rebalances). Each leaves its line among the
requests.
"""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.testing.arguments import Milliseconds, Seconds, checked_methods
from asyncbroker.testing.disk import DiskFault
from asyncbroker.testing.faults import Fault
from asyncbroker.testing.hands import Member, look_at_group
from asyncbroker.testing.releases import release_of
from asyncbroker.testing.requests import Request

if TYPE_CHECKING:
    from asyncbroker.testing.node import Node

# What a member that is in order asks its coordinator next.
MEMBER_APIS: Final = ("Heartbeat", "JoinGroup", "SyncGroup", "ConsumerGroupHeartbeat")


@checked_methods
class Scenarios:
    """The scenarios of one broker."""

    def __init__(self, node: Node) -> None:
        self._node = node

    # ---- the disk

    def full_disk(self) -> DiskFault:
        """Every write to the disk fails (ENOSPC), until `remove()`. Produce is answered with
        KAFKA_STORAGE_ERROR, and works again when there is room.

            full = broker.scenarios.full_disk()
            ...
            full.remove()
        """
        return self._node.faults.disk.full()

    def slow_disk(self, milliseconds: Milliseconds, *, reads: bool = False) -> DiskFault:
        """Every sync (and with `reads` every read that goes to the disk) takes so much longer,
        until `remove()`: acks=all waits, acks=1 and heartbeats do not. Raises ValueError for a
        broker in memory, which has no disk that could be slow."""
        if self._node.is_in_memory:
            raise ValueError("a broker in memory has no disk; give it a directory")
        return self._node.faults.disk.slow(milliseconds, reads=reads)

    # ---- leaders and coordinators

    async def leader_moves(self, topic: str, partition: int = 0, *, to: int | None = None) -> int:
        """A partition has a new leader; returns its node's id. With one node it is elected again:
        the leader epoch grows, and the next Produce is refused once."""
        node_id = await self._node.move_leader(topic, partition, to)
        self._note(f"leader of {topic}-{partition} moves to node {node_id}")
        if len(self._node.nodes.ids) == 1:
            self._node.faults.on(api="Produce", topic=topic, partition=partition, times=1).error(
                ErrorCode.NOT_LEADER_OR_FOLLOWER
            )
        return node_id

    async def coordinator_moves(self, group: str, *, to: int | None = None) -> int:
        """A group has a new coordinator; returns its node's id. With one node it is the same one,
        which loads the group again, and refuses a member's next heartbeat (or join)."""
        node_id = await self._node.move_coordinator(group, to)
        self._note(f"coordinator of group {group} moves to node {node_id}")
        if len(self._node.nodes.ids) == 1:
            self._node.faults.on(api=MEMBER_APIS, group=group, times=1).error(
                ErrorCode.NOT_COORDINATOR
            )
        return node_id

    # ---- groups

    def rebalance_storm(self, group: str, *, times: int = 3) -> Fault:
        """No sooner is the group stable than it rebalances again, for so many generations: each
        member is told so by its first heartbeat in each of them. Raises ValueError for a group of
        the consumer protocol, whose members are never told so."""
        if times < 1:
            raise ValueError(f"times={times}: a storm is of one generation or more")
        with suppress(KafkaError):
            self._node.broker.groups.describe_consumer_group(group)
            raise ValueError(f"group {group} is of the consumer protocol, which has no such storms")
        told: set[tuple[int, str]] = set()
        generations: set[int] = set()

        def is_due(request: Request) -> bool:
            generation: int = request.message.generation_id
            member = generation, request.message.member_id
            if member in told or (generation not in generations and len(generations) >= times):
                return False
            generations.add(generation)
            told.add(member)
            return True

        point = self._node.faults.on(api="Heartbeat", group=group, when=is_due)
        return point.error(ErrorCode.REBALANCE_IN_PROGRESS)

    async def zombie_member(self, group: str, *, client_id: str | None = None) -> Member:
        """A member is thrown out, as if its session had expired, and does not know: what it
        commits is refused (UNKNOWN_MEMBER_ID), and others have its partitions. Returns the member
        that it was: the first one, or that of a client. Raises LookupError without one."""
        from asyncbroker.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity

        broker = self._node.broker
        members = look_at_group(broker, group).members
        chosen = [each for each in members if client_id in (None, each.client_id)]
        if not chosen:
            names = ", ".join(each.client_id for each in members) or "none"
            raise LookupError(f"group {group} has no such member; it has {names}")
        identity = MemberIdentity(
            member_id=chosen[0].member_id, group_instance_id=chosen[0].instance_id
        )
        left: Any = broker.groups.leave(LeaveGroupRequest(group_id=group, members=[identity]))
        if isinstance(left, Awaitable):
            await left
        self._note(f"group {group} throws out member {chosen[0].member_id}")
        return chosen[0]

    # ---- the broker

    async def broker_restart(self, *, down_seconds: Seconds = 0.0) -> None:
        """The broker stops, stays away, and comes back with the same state and port."""
        self._note("the broker restarts")
        await self._node.restart(down_seconds=down_seconds)

    async def old_broker(self, version: str) -> None:
        """The broker comes back as one of an older release: it advertises and serves the versions
        that this release has ("2.8", "0.11"), and refuses others. Raises ValueError for a release
        that is not known."""
        self._node.release = release_of(version)
        self._note(f"the broker restarts as Kafka {self._node.release}")
        await self._node.restart()

    def _note(self, text: str) -> None:
        self._node.requests.add_note(text)
