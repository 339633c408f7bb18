"""A loss of power at any moment of a real broker's life: see `power.py`.

`ASYNCBROKER_LONG=1` goes on for longer, and `python -m compat_tests.chaos.power` for as long as one
likes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from asyncbroker.log.tests.crash_disk import Contents
from asyncbroker.tests.long import IS_LONG
from compat_tests.chaos.power import run
from compat_tests.chaos.recording import can_record

SECONDS: Final = 300.0 if IS_LONG else 10.0
LOAD_SECONDS: Final = 12.0 if IS_LONG else 3.0
STATES: Final = 60 if IS_LONG else 25

pytestmark = pytest.mark.skipif(not can_record(), reason="records with a library that cc makes")


@pytest.mark.timeout(600)
def test_what_was_promised_survives_a_loss_of_power(tmp_path: Path) -> None:
    done = run(1, load_seconds=LOAD_SECONDS, states=STATES, seconds=SECONDS, folder=tmp_path)
    assert not done.problems, "\n".join(done.problems)
    assert done.counts["states"]


@pytest.mark.timeout(600)
def test_a_disk_that_lies_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else nobody knows whether the test above would find anything."""
    monkeypatch.setattr(Contents, "end_sync", lambda self, begun: None)
    done = run(2, load_seconds=1.0, states=200, seconds=60.0, folder=tmp_path)
    assert done.problems
