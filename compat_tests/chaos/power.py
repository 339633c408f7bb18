"""Loses the power at any moment of a real broker's life, in every way that a disk may.

    python -m compat_tests.chaos.power --seed S --minutes M

A recording is a broker process with clients for some seconds (`power_load.py`), with all that it
did to its files (`recorder.c`). Then the power goes, at moments of that time as they come, and the
disk keeps what it likes of what was not synced (`recording.py`). On each such state a broker is
started, and must have all that was promised by then (`power_check.py`). Some starts are recorded as
well, and the power goes in them again.

A seed decides settings, clients and states; not when threads take their turns, so that another run
with it makes another recording. What a failure was found in is kept: the recording, the state, and
what the clients noted.
"""

from __future__ import annotations

import argparse
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

from asyncbroker.log.checkpoint_sums import CHECKSUMS
from asyncbroker.log.checkpoints import (
    CLEANER_OFFSETS,
    LOG_STARTS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
)
from asyncbroker.log.journal import JOURNAL
from asyncbroker.log.journal_frames import BLOCK_BYTES, HEAD_BLOCKS
from asyncbroker.log.tests.crash_disk import Choose, everything, sampled, synced_only
from asyncbroker.log.tests.crash_files import CrashFiles
from compat_tests.chaos.nemesis import ChaosBroker, flip_bit
from compat_tests.chaos.power_check import answered_before, history_at, look, tell
from compat_tests.chaos.power_load import (
    Load,
    assignments,
    folder_for_recordings,
    record,
    record_life,
)
from compat_tests.chaos.recording import (
    LIBRARY,
    Recording,
    can_record,
    compile_recorder,
    fingerprint,
    recorded,
    write_out,
)

LOAD_SECONDS: Final = 12.0
# Of a recording, and of the recording of a start.
STATES: Final = 60
STATES_OF_START: Final = 5
AGAIN_SECONDS: Final = 4.0
STARTS_CUT_SHARE: Final = 0.08
LOOKS_AGAIN_ONE_IN: Final = 5
DAMAGED_SHARE: Final = 0.15
CUT_SECONDS_MIN: Final = 5.0

STATE: Final = "state"


@dataclass(slots=True)
class Run:
    """Recordings and states in one folder, which is made and removed by the caller."""

    folder: Path
    # How large the disk is; None: as large as it likes.
    disk_mb: int | None = None
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def go(self, seed: int, load_seconds: float, states: int, until: float) -> None:
        """One recording and its states, until something is wrong."""
        library = compile_recorder(self.folder)
        load = record(seed, load_seconds, library, self.folder, disk_mb=self.disk_mb)
        self.counts["recordings"] += 1
        self.counts["ends in recordings"] += len(load.after_kill)
        self.counts["operations"] += len(load.history.operations)
        self.problems += load.complaints
        if not self.problems:
            self.cut(load, states, until)

    def cut(self, load: Load, states: int, until: float) -> None:
        """Has the power go at so many moments of a recording, spread over its time."""
        recording = _recording(load)
        kinds = [recording.what for _ in recording]
        self.counts["changes to the disk"] += len(kinds)
        random = Random(load.seed)
        chosen = sorted(_choose(kinds, states, random))
        left: tuple[CrashFiles, float] | None = None
        # A recording is of no use without.
        until = max(until, time.monotonic() + CUT_SECONDS_MIN)
        before = self.counts["states"]
        recording = _recording(load)
        for number, moment in enumerate(recording):
            is_late = time.monotonic() > until and self.counts["states"] > before
            if not chosen or is_late or self.problems:
                break
            if number == chosen[0]:
                chosen.pop(0)
                way, choose = _ways(random)
                disk, name = recording.crashed(choose), f"{number} {way}"
                self.examine(disk, load, moment, name)
                if not self.problems and random.random() < STARTS_CUT_SHARE:
                    self.cut_start(disk, load, moment, name)
                if random.random() < 2 / states:
                    left = disk, moment
        if left is not None and time.monotonic() < until and not self.problems:
            self.live_again(load, *left, states // 2, until)

    def live_again(
        self, load: Load, disk: CrashFiles, moment: float, states: int, until: float
    ) -> None:
        """Records a broker that goes on where a loss of power has left it, with other clients, and
        has the power go again."""
        records = load.records.with_name(f"records-{load.generation + 1}")
        records.unlink(missing_ok=True)
        again = Load(
            load.seed + 1,
            load.directory,
            records,
            load.settings,
            history=history_at(load.history, moment),
            partitions=load.partitions,
            topics=load.topics,
            lives=[life for life in load.lives if life.time <= moment],
            groups=list(load.groups),
            before=disk,
            generation=load.generation + 1,
        )
        random = Random(again.seed)
        record_life(again, self.folder / LIBRARY, random, AGAIN_SECONDS)
        self.counts["recordings of brokers after a loss of power"] += 1
        self.problems += again.complaints
        if not self.problems:
            self.cut(again, states, until)

    def examine(self, disk: CrashFiles, load: Load, moment: float, name: str) -> None:
        """Starts a broker on one state; now and then once more after that was stopped in order."""
        directory = self.folder / STATE
        _write_anew(disk, directory)
        self.counts["states"] += 1
        self.counts["answered before"] += answered_before(load.history, moment)
        if Random(f"damage {load.seed} {name}").random() < DAMAGED_SHARE:
            self.counts["states damaged as well"] += 1
            name += damage(directory, load, Random(name))
        found = look(directory, load, moment)
        if not found and self.counts["states"] % LOOKS_AGAIN_ONE_IN == 0:
            self.counts["states looked at again after a stop"] += 1
            found = look(directory, load, moment)
        if found:
            self.problems += [f"seed {load.seed}, change {name}: {text[:400]}" for text in found]
            _write_anew(disk, directory)
            (self.folder / "notes").write_text("\n".join(load.lines))

    def cut_start(self, disk: CrashFiles, load: Load, moment: float, name: str) -> None:
        """Records a start on one state, and has the power go in that."""
        directory, records = self.folder / STATE, self.folder / "records-of-start"
        _write_anew(disk, directory)
        records.unlink(missing_ok=True)
        random = Random(f"{load.seed} {name}")
        settings = {**load.settings, "log.journal.bytes": random.choice(["0", "65536", "262144"])}
        broker = ChaosBroker(directory, assignments(settings))
        broker.environment = recorded(self.folder / LIBRARY, directory, records, 0)
        broker.start()
        broker.kill()
        after = [fingerprint(directory)]
        moments = sum(1 for _ in Recording(records, directory, after, disk=disk.killed()))
        chosen = set(random.sample(range(moments), min(STATES_OF_START, moments)))
        self.counts["starts cut"] += 1
        recording = Recording(records, directory, after, disk=disk.killed())
        for number, _ in enumerate(recording):
            if number in chosen and not self.problems:
                way, choose = _ways(random)
                again = f"{name}, then {number} of the start {way}"
                self.examine(recording.crashed(choose), load, moment, again)


def _recording(load: Load) -> Recording:
    disk = CrashFiles() if load.before is None else load.before.killed()
    return Recording(load.records, load.directory, load.after_kill, disk=disk)


def damage(directory: Path, load: Load, random: Random) -> str:
    """Flips a bit in a small file that a broker does without, or whose damage it sees through; says
    in which."""
    kinds = [
        [
            path
            for topic in load.topics
            for path in directory.glob(f"{topic}-*/{PARTITION_METADATA}")
        ],
        [*directory.glob("*/*.index"), *directory.glob("*/*.timeindex")],
        # Of these logs nothing is deleted of which only a snapshot would know.
        [*directory.glob("orders-*/*.snapshot"), *directory.glob("orders-*/*.producers")],
        *([*directory.glob(name)] for name in (RECOVERY_POINTS, LOG_STARTS, CLEANER_OFFSETS)),
        [*directory.glob(CHECKSUMS)],
        [*directory.glob(JOURNAL)],
    ]
    there = [path for path in random.choice(kinds) if path.stat().st_size]
    if not there:
        return ""
    path = random.choice(sorted(there))
    # Of the journal one of its heads.
    head = range(random.randrange(HEAD_BLOCKS) * BLOCK_BYTES, path.stat().st_size)[:BLOCK_BYTES]
    flip_bit(path, random, head if path.name == JOURNAL else None)
    return f", damaged {path.relative_to(directory)}"


def _write_anew(disk: CrashFiles, directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    write_out(disk, directory)


def _choose(kinds: list[str], count: int, random: Random) -> set[int]:
    """Some moments: half of them anywhere, the others by the kind of the change that comes next, or
    what is seldom would never have its turn."""
    by_kind: dict[str, list[int]] = {}
    for number, kind in enumerate(kinds):
        by_kind.setdefault(kind, []).append(number)
    seldom = [random.choice(by_kind[random.choice(list(by_kind))]) for _ in range(count // 2)]
    return {*seldom, *random.sample(range(len(kinds)), min(count - count // 2, len(kinds)))}


def _ways(random: Random) -> tuple[str, Choose]:
    way = random.choice(["synced", "everything", "some", "some", "some"])
    choices: dict[str, Choose] = {"synced": synced_only, "everything": everything}
    return way, choices[way] if way in choices else sampled(random)


def run(
    seed: int,
    *,
    load_seconds: float,
    states: int,
    seconds: float,
    folder: Path,
    disk_mb: int | None = None,
) -> Run:
    """One recording after another, each with a seed of its own, until the time is over or something
    is wrong."""
    done = Run(folder, disk_mb)
    until = time.monotonic() + seconds
    logging.getLogger("asyncbroker").setLevel(logging.CRITICAL + 1)
    # Ctrl-C ends a run with what it has done so far.
    with suppress(KeyboardInterrupt):
        while time.monotonic() < until and not done.problems:
            done.go(seed, load_seconds, states, until)
            seed += 1
    return done


def main() -> int:
    """See the head of this file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--load-seconds", type=float, default=LOAD_SECONDS)
    parser.add_argument("--states", type=int, default=STATES)
    parser.add_argument("--disk-mb", type=int, help="a disk that is full now and then; takes root")
    options = parser.parse_args()
    if not can_record():
        parser.error("it records with a library that cc makes, on Linux")
    parent = folder_for_recordings(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix="power-", dir=parent))
    seconds = options.minutes * 60
    done = run(
        options.seed,
        load_seconds=options.load_seconds,
        states=options.states,
        seconds=seconds,
        folder=folder,
        disk_mb=options.disk_mb,
    )
    tell(done.counts, done.problems)
    if done.problems:
        print(f"the recording and the state are in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
