"""What a worker keeps of the memory that it has freed."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from asyncbroker.spark import memory
from asyncbroker.spark.collector import SERVES_AGAIN

PIECE_BYTES = 8 << 20
PAGE_BYTES = 4096

# Takes pieces and frees them; prints the page faults of the second time.
AGAIN = f"""
import resource
from asyncbroker.spark.memory import keep_freed_memory

keep_freed_memory()
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    pieces = [bytearray({PIECE_BYTES}) for _ in range(4)]
    pieces.clear()
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc, which can be told")
def test_a_worker_takes_the_same_memory_again() -> None:
    command = [sys.executable, "-c", AGAIN]
    environment = os.environ | {SERVES_AGAIN: "1"}
    found = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert int(found.stdout) < PIECE_BYTES // PAGE_BYTES // 4


def test_the_memory_of_other_processes_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SERVES_AGAIN, raising=False)
    memory.keep_freed_memory()
    assert not memory._tell_once.cache_info().currsize
