"""Counts and offsets in one transaction: how a consumer gets exactly-once results by itself.

A member of the group writes the counts of a chunk of records and the offset after it in one
transaction of a SQLite file that all members share. A member that is killed leaves either both or
neither; whoever takes its partition over starts at the stored offset. A member that was thrown out
of the group and does not know it yet moves an offset that another one has moved already: its
transaction finds another offset than it started from and changes nothing.

    offsets  partition -> the next offset to read
    counts   partition, label -> how many records
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

BUSY_SECONDS_MAX = 30.0

_SCHEMA = """
CREATE TABLE IF NOT EXISTS offsets (partition INTEGER PRIMARY KEY, next INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS counts (
    partition INTEGER, label TEXT, count INTEGER NOT NULL, PRIMARY KEY (partition, label)
);
"""


class CountStore:
    """The shared file; each process has a connection of its own."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, timeout=BUSY_SECONDS_MAX, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.executescript(_SCHEMA)

    def close(self) -> None:
        self._database.close()

    def next_offset(self, partition: int) -> int:
        """Where reading the partition goes on."""
        row = self._database.execute(
            "SELECT next FROM offsets WHERE partition = ?", (partition,)
        ).fetchone()
        return int(row[0]) if row else 0

    def add(self, partition: int, counts: Mapping[str, int], start: int, end: int) -> bool:
        """Adds the counts of the offsets from `start` up to `end`, if nobody has yet.

        Returns whether they were added; when not, another member owns the partition by now.
        """
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            if self.next_offset(partition) != start:
                return False
            self._database.execute("INSERT OR REPLACE INTO offsets VALUES (?, ?)", (partition, end))
            self._database.executemany(
                "INSERT INTO counts VALUES (?, ?, ?)"
                " ON CONFLICT DO UPDATE SET count = count + excluded.count",
                [(partition, label, count) for label, count in counts.items()],
            )
        return True

    def totals(self) -> Counter[str]:
        """The counts by label, over all partitions."""
        rows = self._database.execute("SELECT label, SUM(count) FROM counts GROUP BY label")
        return Counter({label: int(count) for label, count in rows})

    def record_count(self) -> int:
        """How many records have been counted."""
        (count,) = self._database.execute("SELECT TOTAL(count) FROM counts").fetchone()
        return int(count)
