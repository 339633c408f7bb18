"""What a history says about the logs: anomalies by Jepsen's names, where it has one.

What may be lost: a record that was not acknowledged; one with acks 0 or 1 when the machine (not
only the process) went down after it, unless a later offset of its place had been acknowledged with
acks=all, or the broker had been stopped in order, before that. Nothing else.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from asyncbroker.tests.history.history import (
    ALL,
    FOREVER,
    End,
    History,
    Outcome,
    Poll,
    Removal,
    Seen,
    Send,
    Trim,
)


class Anomaly(NamedTuple):
    """Something that should not have been possible."""

    name: str
    place: str
    text: str

    def __str__(self) -> str:
        return f"{self.name} in {self.place}: {self.text}"


class LogView:
    """The history of logs, sorted for the checks."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.sends: dict[str, list[Send]] = defaultdict(list)
        self.sent: dict[bytes, Send] = {}
        for send in history.sends():
            self.sends[send.place].append(send)
            self.sent[send.value] = send
        self.polls: dict[str, list[Poll]] = defaultdict(list)
        for poll in history.polls():
            self.polls[poll.place].append(poll)
        self.trims: dict[str, list[Trim]] = defaultdict(list)
        self.removals: dict[str, list[Removal]] = defaultdict(list)
        for each in history.operations:
            if isinstance(each, Trim):
                self.trims[each.place].append(each)
            elif isinstance(each, Removal):
                for place in each.places:
                    self.removals[place].append(each)
        self.power = history.ends(End.POWER)
        self.stops = history.ends(End.STOP)
        self.crashes = self.power + history.ends(End.KILL)

    def places(self) -> list[str]:
        return sorted(self.sends.keys() | self.polls.keys() | self.history.final.keys())

    def durable_below(self, place: str, time: float) -> int:
        """Below this offset everything was promised to survive by then."""
        last_stop = max((stop for stop in self.stops if stop <= time), default=-1.0)
        return max(
            (
                send.offset + 1
                for send in self.sends[place]
                if send.outcome is Outcome.OK
                and (send.ended <= time if send.acks == ALL else self._was_stopped(send, last_stop))
            ),
            default=0,
        )

    def _was_stopped(self, send: Send, stop: float) -> bool:
        """Whether a record was there when the broker was stopped in order."""
        return send.ended <= stop and not self.power_lost_between(send.started, stop)

    def may_be_lost(self, send: Send) -> bool:
        """Whether an acknowledged record may have gone with the power."""
        if send.acks == ALL:
            return False
        return any(
            time >= send.started
            and (send.offset < 0 or send.offset >= self.durable_below(send.place, time))
            for time in self.power
        )

    def is_gap_allowed(self, place: str, first: int, time: float) -> bool:
        """Whether offsets from `first` on may be missing at this time, with later ones there: a
        whole file that was not synced may go with the power, and the next one stay."""
        return any(
            power <= time and self.durable_below(place, power) <= first for power in self.power
        )

    def was_removed(self, place: str) -> bool:
        return any(each.outcome is not Outcome.FAIL for each in self.removals[place])

    def power_lost_between(self, first: float, last: float) -> bool:
        return any(first <= time <= last for time in self.power)


def check_logs(history: History) -> Iterator[Anomaly]:
    """All anomalies of logs."""
    view = LogView(history)
    for place in view.places():
        yield from lost_writes(view, place)
        yield from foreign_values(view, place)
        yield from inconsistent_offsets(view, place)
        yield from duplicates(view, place)
        yield from reordered_sends(view, place)
        yield from bad_polls(view, place)
        yield from moving_watermarks(view, place)
        yield from trims(view, place)
        yield from removed(view, place)


def lost_writes(view: LogView, place: str) -> Iterator[Anomaly]:
    """lost-write: acknowledged, and not at its offset in the end. unseen: acknowledged without an
    offset, and nowhere."""
    final = view.history.final.get(place)
    if final is None:
        if view.history.is_complete and not view.was_removed(place):
            yield Anomaly("unseen", place, "the whole place cannot be read")
        return
    if view.was_removed(place):
        return
    at = {seen.offset: seen for seen in final.records}
    values = {seen.value for seen in final.records}
    for send in view.sends[place]:
        if send.outcome is not Outcome.OK or send.acks == 0:
            continue
        there = at.get(send.offset)
        if send.offset < 0:
            is_there = send.value in values or final.log_start > 0
        else:
            is_there = send.offset < final.log_start or (
                there is not None and there.value == send.value
            )
        if place in view.history.compacted:
            is_there = is_there or send.offset < 0 or _is_superseded(send, final.records)
        if is_there or view.may_be_lost(send) or view.history.is_damaged(place, send.offset):
            continue
        yield Anomaly(
            "unseen" if send.offset < 0 else "lost-write",
            place,
            f"{send.value!r} acks={send.acks} of {send.process} at {send.offset}, acknowledged at "
            f"{send.ended:.6f}; there is {there.value if there else None!r}; the log is "
            f"{final.log_start} to {final.end_offset}",
        )


def _is_superseded(send: Send, records: list[Seen]) -> bool:
    """Whether its key has a later value, so that a compacted log need not have it."""
    return any(seen.key == send.key and seen.offset > send.offset for seen in records)


def foreign_values(view: LogView, place: str) -> Iterator[Anomaly]:
    """phantom: nobody has sent it there. failed-but-visible: surely not written, and yet read."""
    told: set[bytes | None] = set()
    for seen in _all_seen(view, place):
        if seen.value in told or (seen.value is None and place in view.history.compacted):
            continue
        send = view.sent.get(seen.value) if seen.value is not None else None
        if send is None or send.place != place:
            told.add(seen.value)
            whose = "nobody sent it" if send is None else f"it was sent to {send.place}"
            yield Anomaly("phantom", place, f"{seen.value!r} at {seen.offset}: {whose}")
        elif send.outcome is Outcome.FAIL:
            told.add(seen.value)
            yield Anomaly(
                "failed-but-visible", place, f"{seen.value!r} at {seen.offset}: {send.error}"
            )


def _all_seen(view: LogView, place: str) -> Iterator[Seen]:
    for poll in view.polls[place]:
        yield from poll.records
    final = view.history.final.get(place)
    if final is not None:
        yield from final.records


class _Sighting(NamedTuple):
    value: bytes | None
    epoch: int
    first: float
    last: float


def inconsistent_offsets(view: LogView, place: str) -> Iterator[Anomaly]:
    """inconsistent-offset: two values at one offset, and no loss of power between them that may
    have taken the first away."""
    sightings: dict[int, list[_Sighting]] = defaultdict(list)

    def saw(offset: int, sighting: _Sighting) -> None:
        at = sightings[offset]
        if not at or at[-1].value != sighting.value or at[-1].epoch != sighting.epoch:
            at.append(sighting)

    for poll in view.polls[place]:
        for seen in poll.records:
            saw(seen.offset, _Sighting(seen.value, seen.epoch, poll.started, poll.ended))
    for send in view.sends[place]:
        if send.outcome is Outcome.OK and send.offset >= 0:
            saw(send.offset, _Sighting(send.value, -1, send.started, send.ended))
    final = view.history.final.get(place)
    if final is not None:
        for seen in final.records:
            saw(seen.offset, _Sighting(seen.value, seen.epoch, FOREVER, FOREVER))
    for offset, at in sightings.items():
        values = {each.value for each in at}
        if len(values) < 2:
            continue
        ordered = sorted(at, key=lambda each: (each.last, each.first))
        for one, other in itertools.pairwise(ordered):
            if one.value == other.value:
                continue
            same_epoch = one.epoch == other.epoch != -1
            if same_epoch or not view.power_lost_between(one.first, other.last):
                yield Anomaly(
                    "inconsistent-offset", place, f"{offset} is {one.value!r} and {other.value!r}"
                )
                break


def duplicates(view: LogView, place: str) -> Iterator[Anomaly]:
    """duplicate: a value more often than its producer can have sent it."""
    final = view.history.final.get(place)
    if final is None:
        return
    counts = Counter(seen.value for seen in final.records)
    for value, count in counts.items():
        send = view.sent.get(value) if value is not None else None
        if send is None or count == 1:
            continue
        if send.is_idempotent or count > send.attempts:
            offsets = [seen.offset for seen in final.records if seen.value == value]
            yield Anomaly("duplicate", place, f"{value!r} of {send.process} at {offsets}")


def reordered_sends(view: LogView, place: str) -> Iterator[Anomaly]:
    """reordered: the log has an ordered producer's values in another order. nonmonotonic-send: the
    offsets that it was told do not ascend."""
    final = view.history.final.get(place)
    last_by_process: dict[str, Send] = {}
    for seen in final.records if final is not None else ():
        send = view.sent.get(seen.value) if seen.value is not None else None
        if send is None or not send.is_ordered or send.place != place:
            continue
        last = last_by_process.get(send.process)
        if last is not None and last.number > send.number:
            yield Anomaly(
                "reordered", place, f"{send.value!r} at {seen.offset} is after {last.value!r}"
            )
        last_by_process[send.process] = send
    told: dict[str, Send] = {}
    for send in view.sends[place]:
        if send.outcome is not Outcome.OK or send.offset < 0 or not send.is_ordered:
            continue
        last = told.get(send.process)
        if (
            last is not None
            and last.offset >= send.offset
            # The first may have gone with the power, and given its offset to another.
            and not (view.may_be_lost(last) and view.power_lost_between(last.started, send.ended))
        ):
            yield Anomaly(
                "nonmonotonic-send",
                place,
                f"{last.value!r} went to {last.offset}, then {send.value!r} to {send.offset}",
            )
        told[send.process] = send


def bad_polls(view: LogView, place: str) -> Iterator[Anomaly]:
    """nonmonotonic-poll: a fetch goes back. poll-skip: it leaves out offsets that are there."""
    has_gaps = place in view.history.compacted
    for poll in view.polls[place]:
        expected = poll.position
        for seen in poll.records:
            if seen.offset < expected:
                yield Anomaly(
                    "nonmonotonic-poll",
                    place,
                    f"{poll.process} at {poll.ended:.6f} from {poll.position}: {seen.offset} "
                    f"where {expected} is next",
                )
                break
            if (
                # Retention may go on between the read and the answer.
                seen.offset > max(expected, poll.log_start)
                and not has_gaps
                and not view.is_gap_allowed(place, expected, poll.ended)
            ):
                yield Anomaly(
                    "poll-skip",
                    place,
                    f"{poll.process} at {poll.ended:.6f} from {poll.position}: {seen.offset} "
                    f"where {expected} is next",
                )
                break
            expected = seen.offset + 1
    final = view.history.final.get(place)
    if final is not None and not has_gaps:
        there = {seen.offset for seen in final.records}
        missing = [
            offset
            for offset in range(final.log_start, final.end_offset)
            if offset not in there
            and not view.is_gap_allowed(place, offset, FOREVER)
            and not view.history.is_damaged(place, offset)
        ]
        if missing:
            yield Anomaly(
                "poll-skip",
                place,
                f"{final.log_start} to {final.end_offset} in the end lacks {missing}",
            )


def moving_watermarks(view: LogView, place: str) -> Iterator[Anomaly]:
    """watermark: high watermark, last stable offset or log start out of order, or going back."""
    polls = sorted(view.polls[place], key=lambda poll: poll.started)
    by_end = sorted(polls, key=lambda poll: poll.ended)
    before: dict[str, Poll] = {}
    done = 0
    for poll in polls:
        if not poll.log_start <= poll.high_watermark or (
            poll.last_stable_offset > poll.high_watermark
        ):
            yield Anomaly(
                "watermark",
                place,
                f"log start {poll.log_start}, last stable {poll.last_stable_offset}, "
                f"high {poll.high_watermark}",
            )
        while done < len(by_end) and by_end[done].ended < poll.started:
            ended = by_end[done]
            done += 1
            for name in ("high_watermark", "last_stable_offset", "log_start"):
                if name not in before or getattr(ended, name) >= getattr(before[name], name):
                    before[name] = ended
        for name, earlier in before.items():
            was, now = getattr(earlier, name), getattr(poll, name)
            # A log start that is not acknowledged yet may go with the process as well.
            excuses = view.crashes if name == "log_start" else view.power
            if 0 <= now < was and not any(
                earlier.started <= time <= poll.ended for time in excuses
            ):
                yield Anomaly(
                    "watermark",
                    place,
                    f"{name} was {was} at {earlier.ended:.6f} and {now} at {poll.ended:.6f}",
                )
                return


def trims(view: LogView, place: str) -> Iterator[Anomaly]:
    """deleted-but-visible: read after it was deleted for good. log-start: the log begins where
    nobody has asked it to."""
    if view.was_removed(place):
        return
    done = [trim for trim in view.trims[place] if trim.outcome is Outcome.OK]
    final = view.history.final.get(place)
    for trim in done:
        for poll in view.polls[place]:
            if poll.started > trim.ended and poll.records:
                first = poll.records[0].offset
                if first < trim.low_watermark:
                    yield Anomaly(
                        "deleted-but-visible",
                        place,
                        f"{first} at {poll.ended:.6f}; the log began at {trim.low_watermark} "
                        f"from {trim.ended:.6f} on",
                    )
                    return
        if final is not None and final.log_start < trim.low_watermark:
            yield Anomaly(
                "deleted-but-visible",
                place,
                f"the log begins at {final.log_start}; it began at {trim.low_watermark}",
            )
            return
    if final is None or place in view.history.expiring:
        return
    asked = [trim for trim in view.trims[place] if trim.outcome is not Outcome.FAIL]
    if any(trim.offset < 0 for trim in asked):
        return
    allowed = max((trim.offset for trim in asked), default=0)
    if final.log_start > allowed and not view.is_gap_allowed(place, allowed, FOREVER):
        yield Anomaly("log-start", place, f"the log begins at {final.log_start}")


def removed(view: LogView, place: str) -> Iterator[Anomaly]:
    """resurrected: read after the topic was deleted for good."""
    for removal in view.removals[place]:
        if removal.outcome is not Outcome.OK:
            continue
        for poll in view.polls[place]:
            if poll.started > removal.ended and poll.records:
                yield Anomaly(
                    "resurrected",
                    place,
                    f"{poll.records[0].value!r} at {poll.ended:.6f}; deleted at "
                    f"{removal.ended:.6f}",
                )
                return
        if place in view.history.final:
            yield Anomaly("resurrected", place, "it is there in the end")
