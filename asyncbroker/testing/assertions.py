"""Assertions about records and committed offsets, whose messages show where the two sides differ.

What is expected may say as much as the test cares about: a value alone, a key and a value, or any
fields by name. Text stands for its UTF-8 bytes.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from asyncbroker.testing.hands import Group, Record

Expected = bytes | str | None | tuple[Any, Any] | Mapping[str, Any] | Record

FIELDS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
BYTES_SHOWN_MAX: Final = 120


class HasRecords(Protocol):
    """A topic, of either kind of broker."""

    def records(self) -> list[Record]:
        """All its records."""


def assert_records(
    actual: HasRecords | Iterable[Record],
    expected: Iterable[Expected],
    *,
    in_order: bool = True,
) -> None:
    """Holds a topic's records, or a list of them, against what they should be.

    Each of `expected` is a value, a pair of key and value, a mapping of field names to what they
    should be, or a `Record`. Without `in_order` they may come in any order, as they do from several
    partitions. Raises AssertionError with a diff, `-` for what is missing and `+` for what should
    not be there.
    """
    # The test's line is what pytest is to show, and not this one.
    __tracebackhide__ = True
    records = list(actual if isinstance(actual, Iterable) else actual.records())
    wanted = [_fields_of(item) for item in expected]
    shown_names = _names_in(wanted)
    wanted_lines = [_line(fields, shown_names) for fields in wanted]
    lines = [_actual_line(record, shown_names) for record in records]
    if not in_order:
        if not any(set(fields) != set(shown_names) for fields in wanted):
            if Counter(lines) == Counter(wanted_lines):
                return
        elif _pair_up(records, wanted):
            return
        lines, wanted_lines = sorted(lines), sorted(wanted_lines)
    elif len(records) == len(wanted) and all(map(_fits, records, wanted)):
        return
    else:
        # A field that this expectation leaves open is shown as open on both sides.
        for index, (record, fields) in enumerate(zip(records, wanted, strict=False)):
            if _fits(record, fields):
                lines[index] = wanted_lines[index]
    raise AssertionError(
        f"{len(records)} records, not the {len(wanted)} expected:\n{_diff(wanted_lines, lines)}"
        if len(records) != len(wanted)
        else f"the records are not as expected:\n{_diff(wanted_lines, lines)}"
    )


def assert_committed(group: Group, expected: Mapping[tuple[str, int], int]) -> None:
    """Holds all offsets that a group has committed against `{(topic, partition): offset}`."""
    __tracebackhide__ = True
    if dict(group.offsets) == dict(expected):
        return
    wanted = [f"{topic}-{index}: {offset}" for (topic, index), offset in sorted(expected.items())]
    actual = [
        f"{topic}-{index}: {offset}" for (topic, index), offset in sorted(group.offsets.items())
    ]
    raise AssertionError(
        f"group {group.group_id} ({group.state}) has committed something else:\n"
        f"{_diff(wanted, actual)}"
    )


def assert_rebalanced(
    before: Group,
    after: Group,
    *,
    members: int | None = None,
    generations: int | None = None,
) -> None:
    """Holds that a group is stable again in a later generation, and that every partition which had
    an owner before has exactly one now. `members`: it has so many; `generations`: there were
    exactly so many rebalances.

        before = broker.group("g")
        ...  # another consumer comes
        broker.wait_for(group="g", members=2, state="Stable")
        assert_rebalanced(before, broker.group("g"), members=2)

    Raises AssertionError, which says what is wrong and shows who had and has what.
    """
    __tracebackhide__ = True
    wrong = []
    if after.state != "Stable":
        wrong.append(f"it is {after.state}, not Stable")
    passed = after.generation - before.generation
    if passed < 1:
        wrong.append(f"it is still in generation {after.generation}")
    elif generations is not None and passed != generations:
        wrong.append(f"there were {passed} rebalances, not {generations}")
    if members is not None and len(after.members) != members:
        wrong.append(f"it has {len(after.members)} members, not {members}")
    owners = Counter(each for member in after.members for each in member.partitions)
    wrong += [
        f"{topic}-{index} has {count} owners"
        for (topic, index), count in sorted(owners.items())
        if count > 1
    ]
    wanted = {each for member in before.members for each in member.partitions}
    wrong += [f"{topic}-{index} has no owner" for topic, index in sorted(wanted - set(owners))]
    if wrong:
        raise AssertionError(
            f"group {after.group_id} has not rebalanced: {'; '.join(wrong)}\n"
            f"{_diff(_owners(before), _owners(after))}"
        )


def _owners(group: Group) -> list[str]:
    """A line for the group, and one for each member."""
    lines = [f"generation {group.generation}, {group.state}"]
    for member in sorted(group.members, key=lambda member: member.client_id):
        names = ", ".join(f"{topic}-{index}" for topic, index in member.partitions) or "nothing"
        lines.append(f"{member.client_id} ({member.member_id}): {names}")
    return lines


def _fields_of(expected: Expected) -> dict[str, Any]:
    """The fields that an expectation is about."""
    if isinstance(expected, Record):
        return {name: getattr(expected, name) for name in FIELDS}
    if isinstance(expected, Mapping):
        unknown = set(expected) - set(FIELDS)
        if unknown:
            raise ValueError(f"a record has no {sorted(unknown)[0]}; it has {', '.join(FIELDS)}")
        fields = {name: expected[name] for name in FIELDS if name in expected}
    elif isinstance(expected, tuple):
        fields = dict(zip(("key", "value"), expected, strict=True))
    else:
        fields = {"value": expected}
    for name in ("key", "value"):
        if isinstance(fields.get(name), str):
            fields[name] = fields[name].encode()
    if "headers" in fields:
        headers = fields["headers"]
        fields["headers"] = tuple(headers.items() if isinstance(headers, Mapping) else headers)
    return fields


def _names_in(wanted: Sequence[Mapping[str, Any]]) -> list[str]:
    """The fields to be shown, in their order: those that anything expected is about."""
    names = {name for fields in wanted for name in fields} or {"key", "value"}
    return [name for name in FIELDS if name in names]


def _fits(record: Record, fields: Mapping[str, Any]) -> bool:
    return all(getattr(record, name) == value for name, value in fields.items())


def _pair_up(records: Sequence[Record], wanted: Sequence[Mapping[str, Any]]) -> bool:
    """Whether each expectation has a record of its own, the choosiest first, and none is left."""
    left = list(records)
    for fields in sorted(wanted, key=len, reverse=True):
        match = next((record for record in left if _fits(record, fields)), None)
        if match is None:
            return False
        left.remove(match)
    return not left


def _actual_line(record: Record, names: Sequence[str]) -> str:
    return _line({name: getattr(record, name) for name in names}, names)


def _line(fields: Mapping[str, Any], names: Sequence[str]) -> str:
    return "  ".join(f"{name}={_shown(fields[name])}" for name in names if name in fields)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= BYTES_SHOWN_MAX else f"{text[:BYTES_SHOWN_MAX]}... ({len(text)})"


def _diff(wanted: Sequence[str], actual: Sequence[str]) -> str:
    lines = difflib.ndiff(list(wanted), list(actual))
    return "\n".join(f"  {line}" for line in lines if not line.startswith("?")) or "  (nothing)"
