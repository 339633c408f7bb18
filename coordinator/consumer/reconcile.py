"""What a member has next, given what it is to have: the one place that gives partitions away.

A member first gives up what it is not to have, and only then follows its target:

    STABLE                  target changed, something to give up -> UNREVOKED_PARTITIONS
                            nothing to give up                   -> its target, as far as it is free
    UNREVOKED_PARTITIONS    it says that it owns none of them    -> its target, as far as it is free
    UNRELEASED_PARTITIONS   looks again with every heartbeat what others have given up

A partition that is in `owners` is given to nobody. What a member gives up leaves `owners` only when
the member has said that it no longer has it, or is gone. A topic that the member no longer
subscribes to is given up at once, whatever the target says (which may be older).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from asyncbroker.coordinator.consumer.group import ConsumerGroup
from asyncbroker.coordinator.consumer.member import ConsumerMember, MemberState, Owned, Target
from asyncbroker.coordinator.consumer.topics import TopicPartition, TopicView
from asyncbroker.protocol.errors import ErrorCode, KafkaError

Reported = frozenset[TopicPartition] | None
"""What a member says that it owns; None: it does not say."""


def reconciled(
    group: ConsumerGroup,
    member: ConsumerMember,
    reported: Reported,
    topics: TopicView,
    *,
    has_changed_subscription: bool,
) -> ConsumerMember:
    """The member with what it has next; the same member if nothing changes."""
    epoch = group.assignment_epoch
    if member.is_reconciled_to(epoch) and not has_changed_subscription:
        return member
    subscribed = _topic_ids(group.topics_of(member), topics)
    if member.state is MemberState.STABLE:
        if member.epoch == epoch:
            return _without_unsubscribed(member, reported, subscribed)
        return _next(group, member, member.epoch, reported, subscribed)
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if _owns_any(reported, member.pending_revocation):
            if has_changed_subscription:
                return _without_unsubscribed(member, reported, subscribed)
            return member
        # A change of the subscription alone does not wait for a target, and must not overtake it.
        return _next(group, member, min(member.epoch + 1, epoch), reported, subscribed)
    if member.state is MemberState.UNRELEASED_PARTITIONS:
        return _next(group, member, member.epoch, reported, subscribed)
    return _next(group, member, epoch, reported, subscribed)


def check_state(member: ConsumerMember, reported: Reported) -> None:
    """Fences a member whose state a later version wrote, unless it has given everything up."""
    if member.state is MemberState.UNKNOWN and (reported is None or reported):
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The consumer group member is in a unknown state. The member must abandon all its "
            "partitions and rejoin.",
        )


def is_waiting_for_others(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether something of what the member is to have is still owned by somebody."""
    return member.state is MemberState.UNRELEASED_PARTITIONS and any(
        partition not in member.assigned and partition in group.owners
        for partition in group.target_of(member.member_id)
    )


def _next(
    group: ConsumerGroup,
    member: ConsumerMember,
    epoch: int,
    reported: Reported,
    subscribed: frozenset[bytes],
) -> ConsumerMember:
    """Compares what the member has with what it is to have; `epoch` is that of a member that has to
    give something up first."""
    target: Target = frozenset(p for p in group.target_of(member.member_id) if p[0] in subscribed)
    kept = {partition: at for partition, at in member.assigned.items() if partition in target}
    to_revoke = {
        partition: at for partition, at in member.assigned.items() if partition not in target
    }
    if to_revoke and _owns_any(reported, to_revoke):
        return _at(member, epoch, MemberState.UNREVOKED_PARTITIONS, kept, to_revoke)

    wanted = target - kept.keys()
    # What the member itself was to give up, and has given up by now, it may have back.
    free = {
        partition
        for partition in wanted
        if partition not in group.owners or partition in member.pending_revocation
    }
    state = MemberState.STABLE if len(free) == len(wanted) else MemberState.UNRELEASED_PARTITIONS
    target_epoch = group.assignment_epoch
    return _at(member, target_epoch, state, {**kept, **dict.fromkeys(free, target_epoch)}, {})


def _without_unsubscribed(
    member: ConsumerMember, reported: Reported, subscribed: frozenset[bytes]
) -> ConsumerMember:
    """Takes away what the member no longer subscribes to, and leaves the rest as it is."""
    kept = {
        partition: at for partition, at in member.assigned.items() if partition[0] in subscribed
    }
    if len(kept) == len(member.assigned):
        return member
    dropped = {p: at for p, at in member.assigned.items() if p not in kept}
    to_revoke = {**member.pending_revocation, **dropped}
    if _owns_any(reported, to_revoke):
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=kept,
            pending_revocation=to_revoke,
        )
    return replace(member, assigned=kept)


def _at(
    member: ConsumerMember,
    epoch: int,
    state: MemberState,
    assigned: Owned,
    pending_revocation: Owned,
) -> ConsumerMember:
    """The member in an epoch, which may be the one that it is in."""
    return replace(
        member,
        epoch=epoch,
        previous_epoch=member.epoch,
        state=state,
        assigned=assigned,
        pending_revocation=pending_revocation,
    )


def _owns_any(reported: Reported, partitions: Iterable[TopicPartition]) -> bool:
    """Whether the member may still own one of these; one that does not say what it owns may."""
    return reported is None or any(partition in reported for partition in partitions)


def _topic_ids(names: Iterable[str], topics: TopicView) -> frozenset[bytes]:
    found = (topics.find(name) for name in names)
    return frozenset(topic.topic_id for topic in found if topic is not None)
