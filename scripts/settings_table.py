"""Keeps docs/settings.md equal to the tables of settings: checks it, and `--write` renews it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from asyncbroker.config_entries import is_dynamic
from asyncbroker.settings import (
    Setting,
    group_settings,
    topic_settings,
    unused_dynamic_settings,
    unused_settings,
)

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "settings.md"

HEAD = """\
# Settings without an effect

Made by `scripts/settings_table.py --write`, never by hand.

Names, types, ranges and defaults of settings are those of Kafka 4.3, so that a real broker's file
loads and tools can set and compare what they know. These are accepted, checked, kept and shown, and
change nothing here. For a broker's file one warning at the start names those that are in it, and
with them names of Kafka 3 and before, internal ones and those of plug-ins, which are taken without
a look at their values. All others do what Kafka's documentation says. (`kafka-configs --describe
--all` shows every one. DescribeConfigs tells which are read-only while the broker runs: as with
Kafka, and also those of listeners, TLS and logins, and a few that take effect at a start. Changing
one of these with `kafka-configs --alter` is refused, as is a name that is none of Kafka's, which
Kafka takes and does nothing with.) The last column tells which can change while the broker runs, as
in Kafka: the new value is checked, kept over a restart and shown, and changes nothing either.
"""


def broker_changes(name: str) -> str:
    """For which brokers a setting can change while they run."""
    if not is_dynamic(name):
        return "no"
    return "of all brokers or one" if unused_dynamic_settings().get(name, True) else "of one broker"


def section(
    title: str, words: str, settings: Iterable[Setting], changes: Callable[[str], str]
) -> str:
    """One table: those of the settings that have no effect."""
    rows = "".join(
        f"| `{each.name}` | {each.documentation} | {changes(each.name)} |\n"
        for each in sorted(settings, key=lambda each: each.name)
        if not each.has_effect
    )
    head = "| setting | what it is in Kafka | can change |\n|---|---|---|\n"
    return f"\n## {title}\n\n{words}\n\n{head}{rows}"


def document() -> str:
    """The whole document."""
    return HEAD + "".join(
        (
            section(
                "Of topics",
                "`acks=all` says what has to be durable, codecs compress as they do by themselves, "
                "and there\nis one replica and no second tier of storage.",
                topic_settings().values(),
                lambda _: "yes",
            ),
            section(
                "Of groups",
                "Share groups and streams groups are not here.",
                group_settings().values(),
                lambda _: "yes",
            ),
            section(
                "Of the broker",
                "Threads, quotas, controllers, other nodes, plug-ins and other kinds of groups.",
                unused_settings().values(),
                broker_changes,
            ),
        )
    )


def main() -> int:
    if "--write" in sys.argv:
        DOCUMENT.write_text(document())
        return 0
    if DOCUMENT.read_text() == document():
        return 0
    print("docs/settings.md is not what the code says: scripts/settings_table.py --write")
    return 1


if __name__ == "__main__":
    sys.exit(main())
