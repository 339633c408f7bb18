"""The main job on a small sample: clients, rebalances, kills, and the equalities at its end.

Its part of Spark is in `test_spark_demos.py`; `scripts/demo` runs all of it on the whole table.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SAMPLE = ROOT / "compat_tests" / "data" / "flights-sample.csv"


@pytest.mark.skipif("BOOTSTRAP_SERVERS" in os.environ, reason="starts a broker of its own")
def test_flights_demo_holds_on_a_sample(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "flights" / "demo.py"), "--no-spark"]
    command += ["--flights", str(SAMPLE), "--seconds", "5", "--output", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("holds:") == 3
    assert "FAILS" not in result.stdout
    assert (tmp_path / "partition-owners.png").stat().st_size > 10_000


@pytest.mark.skipif("BOOTSTRAP_SERVERS" in os.environ, reason="starts a broker of its own")
def test_rebalance_demo_counts_every_record_once() -> None:
    command = [sys.executable, "-m", "asyncbroker", "demo", "rebalance"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "holds: the group's counts equal what was sent" in result.stdout
