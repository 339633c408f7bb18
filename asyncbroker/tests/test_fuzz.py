"""A short attack with malformed bytes, floods and lies; `scripts/fuzz` does it for longer."""

from __future__ import annotations

import os
import random
import sys

import pytest

from asyncbroker.tests.fuzzer import fuzz_a_broker

SECONDS = float(os.environ.get("FUZZ_SECONDS", "6"))


@pytest.mark.skipif(sys.platform != "linux", reason="looks at the broker through /proc")
@pytest.mark.timeout(120 + SECONDS)
def test_a_broker_under_attack_serves_others_and_stays_small() -> None:
    report = fuzz_a_broker(SECONDS, seed=random.SystemRandom().getrandbits(31))
    assert not report.failures, str(report)
    assert report.healthy_answers > SECONDS
