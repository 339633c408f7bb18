"""Runs many seeds, in processes beside one another, and tells of those that fail.

    python -m asyncbroker.tests.simulation.run_seeds --seeds 1000 --jobs 2

While it runs it says now and then up to which seed all have been run, which is where `--first` of
the next run can begin; SIGINT (Ctrl-C) and SIGTERM end it with what it has, in the background too.
In the end there is a table of what has been exercised. The status is 1 if any seed has failed.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from asyncbroker.tests.simulation.simulate import OPERATIONS, Result, simulate

# A process takes so many seeds at a time, and then collects its garbage.
SEEDS_AT_A_TIME: Final = 20

# The lines of a failed run that are shown.
TAIL_LINES: Final = 60

REPORT_SECONDS: Final = 30.0

# What ends a run.
ENDING: Final = frozenset({signal.SIGINT, signal.SIGTERM})

CRASHES: Final = ("kill", "power loss", "kill in a call", "power loss in a call")


@dataclass(slots=True)
class Total:
    """What all runs came to."""

    first: int = 0
    seeds: int = 0
    events: int = 0
    starts: int = 0
    operations_min: int = sys.maxsize
    faults_min: int = sys.maxsize
    world_seconds: float = 0.0
    operations: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    checked: Counter[str] = field(default_factory=Counter)
    failed: list[int] = field(default_factory=list)

    def add(self, result: Result) -> None:
        """One more run."""
        self.seeds += 1
        self.events += result.events
        self.starts += result.starts
        self.world_seconds += result.seconds
        self.operations.update(result.operations)
        self.faults.update(result.faults)
        self.checked.update(result.checked)
        if result.problems:
            self.failed.append(result.seed)
        else:
            self.operations_min = min(self.operations_min, sum(result.operations.values()))
            self.faults_min = min(self.faults_min, sum(result.faults.values()))

    def __str__(self) -> str:
        return (
            f"{self.seeds} seeds (up to {self.first + self.seeds - 1}), "
            f"{sum(self.operations.values())} operations, {sum(self.faults.values())} crashes and "
            f"faults, {self.world_seconds / 3600:.1f} simulated hours, {len(self.failed)} failed"
        )

    def table(self) -> Iterator[str]:
        """What has been exercised, in lines."""
        crashes = sum(self.faults[name] for name in CRASHES)
        if self.seeds > len(self.failed):
            yield f"a seed has at least {self.operations_min} operations, {self.faults_min} faults"
        yield f"{self.starts} starts of a broker, {crashes} crashes, {self.events} events"
        for title, counts in (
            ("operations", self.operations),
            ("crashes and faults", self.faults),
            ("checked", self.checked),
        ):
            yield f"{title}:"
            for name, count in counts.most_common():
                yield f"  {count:12,d}  {name}"


def run_seeds(seeds: Iterable[int], operations: int, *, keeps_lines: bool = False) -> list[Result]:
    """Runs some seeds, one after the other."""
    results = [simulate(seed, operations=operations, keeps_lines=keeps_lines) for seed in seeds]
    gc.collect()
    return results


def _run_chunk(chunk: tuple[int, int, int]) -> list[Result]:
    first, count, operations = chunk
    return run_seeds(range(first, first + count), operations)


def _leave_signals_to_the_parent() -> None:
    """Ctrl-C reaches all processes of a terminal. This one is ended by the pool, with SIGTERM."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)


def _results(first: int, count: int, jobs: int, operations: int) -> Iterator[Result]:
    """The results of all seeds, in their order."""
    chunks = [
        (start, min(SEEDS_AT_A_TIME, first + count - start), operations)
        for start in range(first, first + count, SEEDS_AT_A_TIME)
    ]
    # What is imported and compiled once need not be looked at by each collection.
    simulate(first)
    gc.collect()
    gc.freeze()
    gc.disable()
    if jobs == 1:
        for chunk in chunks:
            yield from _run_chunk(chunk)
        return
    # A process that has not begun yet must not be ended by what is meant for its parent: it may
    # hold a lock of the pool, whose end would wait for that.
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    with multiprocessing.get_context("fork").Pool(jobs, _leave_signals_to_the_parent) as pool:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        for results in pool.imap(_run_chunk, chunks):
            yield from results


def _tell(result: Result, operations: int, *, is_verbose: bool) -> None:
    """What went wrong in a run, and how to see it again."""
    print(f"\nseed {result.seed} failed, with {dict(result.faults)}:")
    for problem in result.problems[:10]:
        print(f"  {problem}")
    again = simulate(result.seed, operations=operations, keeps_lines=True)
    lines = again.lines if is_verbose else again.lines[-TAIL_LINES:]
    print("\n".join(lines))
    if again.digest != result.digest:
        print(f"its second run was another one: {again.digest:08x}, not {result.digest:08x}")
    more = "" if operations == OPERATIONS else f" --operations {operations}"
    print(f"again: scripts/simulate --seeds 1 --first {result.seed}{more} --verbose", flush=True)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="Whole-broker simulation")
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--operations", type=int, default=OPERATIONS, help="a seed, at least")
    parser.add_argument("--verbose", action="store_true", help="show all of a failure's history")
    options = parser.parse_args()
    # A shell has its background jobs ignore SIGINT, and Python leaves that as it finds it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    total = Total(options.first)
    begun = reported = time.monotonic()
    try:
        for result in _results(options.first, options.seeds, options.jobs, options.operations):
            total.add(result)
            if result.problems:
                _tell(result, options.operations, is_verbose=options.verbose)
            now = time.monotonic()
            if now - reported > REPORT_SECONDS:
                reported = now
                print(f"{now - begun:6.0f} s: {total}", flush=True)
    except KeyboardInterrupt:
        print(f"ended; the rest begins with --first {options.first + total.seeds}")
    seconds = time.monotonic() - begun
    print(f"{total}, in {seconds:.0f} s ({total.seeds / seconds:.1f} seeds/s)")
    print("\n".join(total.table()))
    if total.failed:
        print("failed:", *total.failed)
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
