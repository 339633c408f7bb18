"""What a history says about groups: commits that are lost or go back, owners that are two, members
of the past that are heard."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from asyncbroker.tests.history.history import (
    Assigned,
    Commit,
    Committed,
    History,
    Joined,
    Outcome,
)
from asyncbroker.tests.history.log_checks import Anomaly


def check_groups(history: History) -> Iterator[Anomaly]:
    """All anomalies of groups."""
    yield from bad_committed(history)
    yield from two_owners(history)
    yield from zombie_commits(history)


def bad_committed(history: History) -> Iterator[Anomaly]:
    """committed: what OffsetFetch says is no commit that can be the last one. Commits of one group
    and place need different offsets to be told apart; equal ones excuse one another."""
    commits: dict[tuple[str, str], list[Commit]] = defaultdict(list)
    for each in history.operations:
        if isinstance(each, Commit) and each.outcome is not Outcome.FAIL:
            commits[each.group, each.place].append(each)
    for each in history.operations:
        if not isinstance(each, Committed):
            continue
        candidates = commits[each.group, each.place]
        done = [
            commit
            for commit in candidates
            if commit.outcome is Outcome.OK and commit.ended < each.started
        ]
        # Nothing that ended before another began, which ended before the question, can be left.
        last_start = max((commit.started for commit in done), default=-1.0)
        possible = {
            commit.offset
            for commit in candidates
            if commit.started < each.ended
            and (commit.outcome is not Outcome.OK or commit.ended >= last_start)
        }
        if not done:
            possible.add(-1)
        if each.offset not in possible:
            name = "lost-commit" if each.offset == -1 else "stale-commit"
            yield Anomaly(
                name,
                each.place,
                f"group {each.group}: {each.offset} at {each.ended:.6f}; possible are "
                f"{sorted(possible)}",
            )


def two_owners(history: History) -> Iterator[Anomaly]:
    """two-owners: one place, one generation, two members. A static member that comes back has
    another member id, and the place that it had."""
    owners: dict[tuple[str, int, str], Assigned] = {}
    for each in history.operations:
        if not isinstance(each, Assigned):
            continue
        for place in sorted(each.places):
            other = owners.setdefault((each.group, each.generation, place), each)
            is_same = other.instance == each.instance is not None
            if other.member != each.member and not is_same:
                yield Anomaly(
                    "two-owners",
                    place,
                    f"{other.member} and {each.member} in generation {each.generation} of "
                    f"{each.group}",
                )


def zombie_commits(history: History) -> Iterator[Anomaly]:
    """zombie-commit: a commit of an earlier generation was taken, when a later one had been told
    its assignment; or of a static member whose place somebody else had."""
    assigned: dict[str, list[Assigned]] = defaultdict(list)
    joined: dict[tuple[str, str], list[Joined]] = defaultdict(list)
    instance_of: dict[str, str] = {}
    for each in history.operations:
        if isinstance(each, Assigned):
            assigned[each.group].append(each)
        elif isinstance(each, Joined) and each.instance is not None:
            joined[each.group, each.instance].append(each)
            instance_of[each.member] = each.instance
    for each in history.operations:
        if not isinstance(each, Commit) or each.outcome is not Outcome.OK or each.generation < 0:
            continue
        later = next(
            (
                other
                for other in assigned[each.group]
                if other.generation > each.generation and other.ended < each.started
            ),
            None,
        )
        if later is not None:
            yield Anomaly(
                "zombie-commit",
                each.place,
                f"{each.member} of generation {each.generation} at {each.ended:.6f}; "
                f"{later.member} had generation {later.generation} at {later.ended:.6f}",
            )
            continue
        instance = instance_of.get(each.member)
        if instance is None:
            continue
        mine = [other for other in joined[each.group, instance] if other.member == each.member]
        for other in joined[each.group, instance]:
            if (
                other.member != each.member
                and other.ended < each.started
                and all(own.ended < other.started for own in mine)
            ):
                yield Anomaly(
                    "zombie-commit",
                    each.place,
                    f"{each.member} at {each.ended:.6f}; {instance} was {other.member} from "
                    f"{other.ended:.6f} on",
                )
                break
