"""Loses the power of a real file system: ext4, below a broker with clients.

    python -m compat_tests.chaos.power_ext4 --seed S --minutes M

The recorder of `power.py` knows what any disk may do; here the kernel says what its own ext4 does,
in each of its modes, and some are full now and then. Its power is lost while the clients are at
work: whatever it has not written is gone, and all calls fail from then on. Or its bytes are copied
while the broker is paused between two calls or in one, or it finds an error and becomes read-only.
Then what is left is mounted, which replays the journal of ext4, and a broker is started on it, and
must have all that was promised by then (`power_check.py`). Takes root.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import shutil
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from compat_tests.chaos.ext4 import Ext4, why_not_mounted
from compat_tests.chaos.nemesis import ChaosBroker
from compat_tests.chaos.power_check import answered_before, look, tell
from compat_tests.chaos.power_load import RESERVES, Load, assignments, settings_of, work

LOAD_SECONDS: Final = 5.0
COPIES: Final = 12
FULL_SHARE: Final = 0.3
FILLER: Final = "filler"

OPTIONS: Final = (
    (
        "data=ordered",
        "data=ordered,nodelalloc",
        "data=writeback",
        "data=writeback,nodelalloc",
        "data=journal",
    ),
    ("auto_da_alloc", "noauto_da_alloc"),
    ("commit=1", "commit=5", "commit=300"),
)
WAYS: Final = ("power", "power", "power", "power after a flush", "copies", "copies", "error")


@dataclass(slots=True)
class Run:
    """File systems in one folder, which is made and removed by the caller."""

    folder: Path
    copies: int = COPIES
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def go(self, seed: int, seconds: float, way: str = "") -> None:
        """One file system, and what becomes of it."""
        random = Random(seed)
        options = ",".join(random.choice(each) for each in OPTIONS)
        way = way or random.choice(WAYS)
        disk = Ext4(self.folder / "image", self.folder / "disk", options)
        disk.make()
        load = Load(seed, disk.path / "data", self.folder, settings_of(random))
        filler = disk.path / FILLER if random.random() < FULL_SHARE else None
        if filler is not None:
            load.settings["asyncbroker.reserve.bytes"] = random.choice(RESERVES)
            self.counts["file systems that were full now and then"] += 1
        broker = ChaosBroker(load.directory, assignments(load.settings))
        ends: dict[Path, float] = {}

        def end() -> None:
            ends.update(self._end(disk, broker, way, random))
            time.sleep(random.uniform(0, 1))

        try:
            broker.start()
            asyncio.run(work(load, broker, random, seconds, filler, end))
            assert broker.is_running()
        finally:
            broker.kill()
            disk.unmount()
        self.counts["file systems"] += 1
        self.counts[f"ends by {way}"] += 1
        self.counts["ends of processes before"] += len(load.after_kill)
        self.counts["operations"] += len(load.history.operations)
        self.problems += load.complaints
        for image, moment in ends.items():
            self.examine(image, disk, load, moment, f"seed {seed}, {options}, {way}, {image.name}")

    def _end(self, disk: Ext4, broker: ChaosBroker, way: str, random: Random) -> dict[Path, float]:
        """The end of a file system: what is left of it, and copies, with their moments."""
        found: dict[Path, float] = {}
        for number in range(self.copies if way == "copies" else 0):
            time.sleep(random.uniform(0, 0.4))
            copy = self.folder / f"copy-{number}"
            # It writes so often that the disk is hardly ever at rest for as long as a copy takes.
            broker.pause()
            try:
                moment = disk.copy(copy)
            finally:
                broker.resume()
            if moment is not None:
                found[copy] = moment
                self.counts["copies"] += 1
        # Of an fsync that is under way then ext4 may say that it went well: what is acknowledged
        # later counts for nothing. No real loss of power leaves anybody to be told.
        found[disk.image] = disk.fail() if way == "error" else disk.lose_power()
        return found

    def examine(self, image: Path, disk: Ext4, load: Load, moment: float, name: str) -> None:
        """Starts a broker on what is left, if nothing was wrong so far."""
        if self.problems:
            return
        state = Ext4(self.folder / "state", disk.path, disk.options)
        shutil.copy(image, state.image)
        self.counts["states"] += 1
        self.counts["answered before"] += answered_before(load.history, moment)
        state.mount()
        try:
            (state.path / FILLER).unlink(missing_ok=True)
            self.problems += [
                f"{name}: {text[:400]}" for text in look(load.directory, load, moment)
            ]
        finally:
            state.unmount()
        if self.problems:
            shutil.copy(image, state.image)
            (self.folder / "notes").write_text("\n".join(load.lines))
        elif image != disk.image:
            image.unlink()


def main() -> int:
    """See the head of this file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--load-seconds", type=float, default=LOAD_SECONDS)
    options = parser.parse_args()
    if why := why_not_mounted():
        parser.error(f"it {why}")
    logging.getLogger("asyncbroker").setLevel(logging.CRITICAL + 1)
    done = Run(Path(tempfile.mkdtemp(prefix="ext4-")))
    until = time.monotonic() + options.minutes * 60
    seed = options.seed
    # Ctrl-C ends a run with what it has done so far.
    with suppress(KeyboardInterrupt):
        while time.monotonic() < until and not done.problems:
            done.go(seed, options.load_seconds)
            seed += 1
    tell(done.counts, done.problems)
    if done.problems:
        print(f"the disk is {done.folder}/state")
        return 1
    shutil.rmtree(done.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
