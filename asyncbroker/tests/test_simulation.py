"""A whole broker with clients and faults, in a world of its own, many times over.

Without a failure these tests say that of so many runs, in each of which processes were killed,
power was cut, disks failed and networks broke, no acknowledged record, commit or topic was lost.
A failing seed can be looked at with `scripts/simulate --seeds 1 --first SEED --verbose`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from asyncbroker.tests.long import IS_LONG
from asyncbroker.tests.simulation.run_seeds import run_seeds
from asyncbroker.tests.simulation.simulate import FAULTS_MIN, OPERATIONS, simulate

# Runs of a few seconds each; all of them come to some four minutes of one core.
SEEDS: Final = 10_000 if IS_LONG else 2000
SEEDS_A_TEST: Final = 20

DIGESTS: Final = """
from asyncbroker.tests.simulation.simulate import simulate
for seed in range(1, 9):
    print(simulate(seed).digest)
"""


@pytest.mark.parametrize("first", range(1, SEEDS, SEEDS_A_TEST))
def test_nothing_that_was_promised_is_lost(first: int) -> None:
    failed = {
        result.seed: result.problems
        for result in run_seeds(range(first, first + SEEDS_A_TEST), OPERATIONS)
        if result.problems
    }
    assert not failed


def test_a_run_has_its_operations_and_its_faults() -> None:
    result = simulate(1)
    assert sum(result.operations.values()) >= OPERATIONS
    assert sum(result.faults.values()) >= FAULTS_MIN
    assert result.checked["records acknowledged"] > 50
    assert result.checked["records read"] > 100


def test_the_same_seed_is_the_same_run_whatever_the_process() -> None:
    digests = set()
    for hash_seed in ("1", "2"):
        digests.add(
            subprocess.run(
                [sys.executable, "-c", DIGESTS],
                env={**os.environ, "PYTHONHASHSEED": hash_seed},
                check=True,
                capture_output=True,
                text=True,
            ).stdout
        )
    [digest] = digests
    assert len(set(digest.split())) == 8


def test_a_run_uses_no_real_time_chance_or_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    simulate(1)  # what is imported on the way may look at the clock

    here = threading.get_ident()

    def refused(real: Callable[..., object]) -> Callable[..., object]:
        def refuse(*args: object, **keywords: object) -> object:
            # Threads that other tests have left behind may do as they like.
            assert threading.get_ident() != here, "something real was used"
            return real(*args, **keywords)

        return refuse

    with monkeypatch.context() as patched:
        for owner, name in (
            (time, "time"),
            (time, "monotonic"),
            (time, "sleep"),
            (os, "urandom"),
            (os, "open"),
        ):
            patched.setattr(owner, name, refused(getattr(owner, name)))
        result = simulate(3)
    assert not result.problems


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_ctrl_c_ends_a_run_with_its_table_in_the_background_as_well() -> None:
    # As a shell does it to its background jobs.
    ignoring_interrupts = ["sh", "-c", 'trap "" INT; exec "$@"', "sh"]
    command = [sys.executable, "-m", "asyncbroker.tests.simulation.run_seeds"]
    with subprocess.Popen(
        [*ignoring_interrupts, *command, "--seeds", "1000000", "--jobs", "2"],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            while len(children.read_text().split()) < 2:
                assert process.poll() is None
                time.sleep(0.01)
            # A terminal tells all of them.
            os.killpg(process.pid, signal.SIGINT)
            told, _ = process.communicate(timeout=60)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0
    assert "the rest begins with --first" in told
    assert "crashes and faults:" in told
