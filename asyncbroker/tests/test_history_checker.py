"""The checker of histories sees each anomaly, and nothing where there is none."""

from __future__ import annotations

from typing import Any

import pytest

from asyncbroker.tests.history.checker import check
from asyncbroker.tests.history.history import (
    ALL,
    Assigned,
    Commit,
    Committed,
    End,
    Ended,
    FinalRead,
    History,
    Joined,
    Operation,
    Outcome,
    Poll,
    Removal,
    Seen,
    Send,
    Trim,
)

OK, FAIL, INFO = Outcome.OK, Outcome.FAIL, Outcome.INFO


def send(value: bytes, offset: int, started: float = 1.0, **fields: Any) -> Send:
    """An acknowledged send with acks=all of one ordered, idempotent producer."""
    chosen: dict[str, Any] = {
        "process": "p",
        "place": "t-0",
        "key": None,
        "acks": ALL,
        "number": int(started * 10),
        "is_idempotent": True,
        "is_ordered": True,
        "ended": started + 0.1,
        "outcome": OK,
        **fields,
    }
    return Send(value=value, offset=offset, started=started, **chosen)


def poll(position: int, *values: bytes, started: float = 5.0, **fields: Any) -> Poll:
    """A fetch that gets values from `position` on."""
    chosen: dict[str, Any] = {
        "process": "c",
        "place": "t-0",
        "ended": started + 0.1,
        "records": [Seen(position + place, value) for place, value in enumerate(values)],
        "high_watermark": 100,
        "last_stable_offset": 100,
        "log_start": 0,
        **fields,
    }
    return Poll(position=position, started=started, **chosen)


def history(*operations: Operation, final: list[bytes], start: int = 0) -> History:
    """A history of one place that holds these values in the end."""
    seen = [Seen(start + place, value) for place, value in enumerate(final)]
    read = FinalRead("t-0", start, start + len(final), seen)
    return History(list(operations), {"t-0": read})


def names(found: History) -> set[str]:
    return {anomaly.name for anomaly in check(found)}


def commit(offset: int, started: float, **fields: Any) -> Commit:
    chosen: dict[str, Any] = {"ended": started + 0.1, "outcome": OK, **fields}
    return Commit("m", "g", "t-0", offset, started, **chosen)


def committed(offset: int, started: float) -> Committed:
    return Committed("m", "g", "t-0", offset, started, started + 0.1)


def assigned(generation: int, member: str, started: float, **fields: Any) -> Assigned:
    return Assigned(
        member,
        "g",
        generation,
        member,
        fields.get("instance"),
        frozenset({"t-0"}),
        started,
        started + 0.1,
    )


def test_a_good_history_has_no_anomaly() -> None:
    good = history(
        send(b"a", 0),
        send(b"b", 1, 2.0),
        poll(0, b"a", b"b"),
        Ended(End.POWER, 6.0),
        poll(0, b"a", b"b", started=7.0),
        send(b"c", 2, 8.0, acks=1),
        commit(1, 8.0),
        committed(1, 9.0),
        final=[b"a", b"b", b"c"],
    )
    assert check(good) == []


@pytest.mark.parametrize("how", [End.POWER, End.KILL, End.STOP])
def test_lost_write(how: End) -> None:
    assert names(history(send(b"a", 0), Ended(how, 3.0), final=[])) == {"lost-write"}


def test_what_had_acks_1_may_go_with_the_power_only() -> None:
    a = send(b"a", 0, acks=1)
    assert names(history(a, Ended(End.POWER, 3.0), final=[])) == set()
    assert names(history(a, Ended(End.KILL, 3.0), final=[])) == {"lost-write"}
    # It stays if something behind it was acknowledged with acks=all, or after a stop in order.
    later = send(b"b", 1, 2.0)
    assert "lost-write" in names(history(a, later, Ended(End.POWER, 3.0), final=[]))
    stopped = history(a, Ended(End.STOP, 2.0), Ended(End.POWER, 3.0), final=[])
    assert names(stopped) == {"lost-write"}
    # A stop keeps nothing that was lost before it.
    lost: list[Operation] = [
        a,
        Ended(End.POWER, 2.0),
        Ended(End.STOP, 3.0),
        send(b"b", 0, 4.0, acks=1),
    ]
    assert names(history(*lost, Ended(End.POWER, 5.0), final=[])) == set()


def test_unseen() -> None:
    assert names(history(send(b"a", -1), final=[])) == {"unseen"}
    nowhere = History([send(b"a", 0)])
    assert names(nowhere) == {"unseen"}


def test_a_record_of_a_compacted_place_may_make_way_for_a_later_one_of_its_key() -> None:
    found = History([send(b"a", 0, key=b"k"), send(b"b", 1, 2.0, key=b"k")])
    found.final["t-0"] = FinalRead("t-0", 0, 2, [Seen(1, b"b", b"k")])
    assert "lost-write" in names(found)
    found.compacted.add("t-0")
    assert names(found) == set()
    found.final["t-0"] = FinalRead("t-0", 0, 2, [Seen(0, b"a", b"k")])
    assert "lost-write" in names(found)


def test_phantom() -> None:
    assert names(history(final=[b"never sent"])) == {"phantom"}
    elsewhere = history(send(b"a", -1, place="u-0", outcome=INFO), final=[b"a"])
    assert "phantom" in names(elsewhere)


def test_failed_but_visible() -> None:
    assert names(history(send(b"a", -1, outcome=FAIL), final=[b"a"])) == {"failed-but-visible"}


def test_inconsistent_offset() -> None:
    a, b = send(b"a", -1, outcome=INFO), send(b"b", -1, 1.5, outcome=INFO)
    found = history(a, b, poll(0, b"a"), final=[b"b"])
    assert names(found) == {"inconsistent-offset"}
    # Unless the power has taken the first one away.
    assert names(history(a, b, poll(0, b"a"), Ended(End.POWER, 6.0), final=[b"b"])) == set()
    assert names(history(a, b, poll(0, b"a"), Ended(End.KILL, 6.0), final=[b"b"])) == {
        "inconsistent-offset"
    }


def test_one_leader_epoch_never_has_two_values_at_an_offset() -> None:
    a, b = send(b"a", -1, outcome=INFO), send(b"b", -1, 1.5, outcome=INFO)
    one = poll(0, b"a", records=[Seen(0, b"a", None, 3)])
    other = poll(0, b"b", started=7.0, records=[Seen(0, b"b", None, 3)])
    found = history(a, b, one, Ended(End.POWER, 6.0), other, final=[b"b"])
    assert names(found) == {"inconsistent-offset"}


def test_duplicate() -> None:
    twice = [b"a", b"a"]
    assert names(history(send(b"a", 0), final=twice)) == {"duplicate"}
    plain = {"is_idempotent": False, "is_ordered": False}
    assert names(history(send(b"a", 0, **plain), final=twice)) == {"duplicate"}
    assert names(history(send(b"a", 0, attempts=2, **plain), final=twice)) == set()


def test_reordered() -> None:
    found = history(
        send(b"a", -1, outcome=INFO), send(b"b", -1, 2.0, outcome=INFO), final=[b"b", b"a"]
    )
    assert names(found) == {"reordered"}


def test_nonmonotonic_send() -> None:
    found = history(send(b"a", 1), send(b"b", 0, 2.0), final=[b"b", b"a"])
    assert "nonmonotonic-send" in names(found)


def test_poll_skip() -> None:
    sends = [send(value, place, 1.0 + place) for place, value in enumerate([b"a", b"b", b"c"])]
    skips = poll(0, records=[Seen(0, b"a"), Seen(2, b"c")])
    assert names(history(*sends, skips, final=[b"a", b"b", b"c"])) == {"poll-skip"}
    late = poll(0, records=[Seen(1, b"b")])
    assert names(history(*sends, late, final=[b"a", b"b", b"c"])) == {"poll-skip"}
    hole = history(*sends, final=[])
    hole.final["t-0"] = FinalRead("t-0", 0, 3, [Seen(0, b"a"), Seen(2, b"c")])
    assert names(hole) == {"lost-write", "poll-skip"}


def test_nonmonotonic_poll() -> None:
    a, b = send(b"a", 0), send(b"b", 1, 2.0)
    back = poll(0, records=[Seen(1, b"b"), Seen(0, b"a")], log_start=1)
    assert names(history(a, b, back, final=[b"a", b"b"])) == {"nonmonotonic-poll"}


@pytest.mark.parametrize("name", ["high_watermark", "last_stable_offset", "log_start"])
def test_watermarks_go_forward(name: str) -> None:
    was = {"high_watermark": 5, "last_stable_offset": 5, "log_start": 2}
    found = history(
        poll(5, started=2.0, **was), poll(5, started=3.0, **{**was, name: was[name] - 1}), final=[]
    )
    assert "watermark" in names(found)


def test_watermarks_are_in_order() -> None:
    found = history(poll(0, high_watermark=3, last_stable_offset=4), final=[])
    assert names(found) == {"watermark"}


def test_deleted_but_visible() -> None:
    trim = Trim("x", "t-0", 1, 2.0, 2.1, OK, 1)
    a, b = send(b"a", 0), send(b"b", 1, 1.5)
    assert names(history(a, b, trim, final=[b"b"], start=1)) == set()
    assert names(history(a, b, trim, poll(0, b"a", b"b"), final=[b"b"], start=1)) == {
        "deleted-but-visible"
    }
    assert names(history(a, b, trim, final=[b"a", b"b"])) == {"deleted-but-visible"}


def test_the_log_begins_where_it_was_asked_to() -> None:
    assert names(history(final=[], start=7)) == {"log-start"}
    expiring = history(final=[], start=7)
    expiring.expiring.add("t-0")
    assert names(expiring) == set()


def test_resurrected() -> None:
    removal = Removal("x", frozenset({"t-0"}), 2.0, 2.1, OK)
    a = send(b"a", 0)
    assert names(History([a, removal])) == set()
    assert names(History([a, removal, poll(0, b"a")])) == {"resurrected"}
    assert names(history(a, removal, final=[b"a"])) == {"resurrected"}


def test_lost_and_stale_commits() -> None:
    assert names(History([commit(3, 1.0), committed(-1, 2.0)])) == {"lost-commit"}
    assert names(History([commit(3, 1.0), commit(4, 2.0), committed(3, 3.0)])) == {"stale-commit"}
    # One that nobody heard of may have been the last, or not.
    unsure = commit(4, 2.0, outcome=INFO, ended=float("inf"))
    for offset in (3, 4):
        assert names(History([commit(3, 1.0), unsure, committed(offset, 3.0)])) == set()
    refused = commit(4, 2.0, outcome=FAIL)
    assert names(History([commit(3, 1.0), refused, committed(4, 3.0)])) == {"stale-commit"}


def test_two_owners() -> None:
    assert names(History([assigned(1, "a", 1.0), assigned(1, "b", 2.0)])) == {"two-owners"}
    assert names(History([assigned(1, "a", 1.0), assigned(2, "b", 2.0)])) == set()
    # A static member has another id when it comes back.
    back = [assigned(1, "a", 1.0, instance="i"), assigned(1, "b", 2.0, instance="i")]
    assert names(History([*back])) == set()


def test_zombie_commits() -> None:
    late = commit(3, 5.0, member="a", generation=1)
    found = History([assigned(1, "a", 1.0), assigned(2, "b", 2.0), late])
    assert names(found) == {"zombie-commit"}
    in_time = commit(3, 1.5, member="a", generation=1)
    assert names(History([assigned(1, "a", 1.0), in_time, assigned(2, "b", 2.0)])) == set()


def test_a_static_member_that_was_replaced_is_a_zombie() -> None:
    old = Joined("x", "g", 1, "a", "i", 1.0, 1.1)
    new = Joined("y", "g", 1, "b", "i", 2.0, 2.1)
    late = commit(3, 5.0, member="a", generation=1)
    assert names(History([old, new, late])) == {"zombie-commit"}


def test_stuck() -> None:
    assert names(History(stuck=["somebody"])) == {"stuck"}
