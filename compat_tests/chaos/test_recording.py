"""The recording of a process that is killed in the middle of a call."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path
from typing import Final

import pytest

from compat_tests.chaos.recording import BadRecording, Recording

PROCESS: Final = 7
DESCRIPTOR: Final = 5
PAGE_BYTES: Final = 4096
PATH: Final = "log"
# What is there before, so that the write begins and ends inside pages.
BEFORE: Final = b"b" * 100
WRITTEN: Final = bytes(range(256)) * 40


def record(kind: str, result: int = 0, number: int = 0, data: bytes = b"") -> bytes:
    head = struct.pack("@4siiiqqq", b"RECD", ord(kind), PROCESS, result, 0, number, len(data))
    return head + data + b"RECD"


def recording(folder: Path, left: bytes) -> Recording:
    """Of a process that was killed in its second write, and has left this."""
    directory = folder / "data"
    path = os.fsencode(directory / PATH)
    (folder / "records").write_bytes(
        b"".join(
            [
                record("o", number=os.O_CREAT | os.O_RDWR, data=path + b"\0"),
                record("d", DESCRIPTOR),
                record("w", DESCRIPTOR, 0, BEFORE),
                record("d", len(BEFORE)),
                record("w", DESCRIPTOR, len(BEFORE), WRITTEN),
            ]
        )
    )
    return Recording(folder / "records", directory, [{PATH: (len(left), zlib.crc32(left))}])


@pytest.mark.parametrize(
    "size", [len(BEFORE), PAGE_BYTES, 2 * PAGE_BYTES, len(BEFORE) + len(WRITTEN)]
)
def test_a_write_that_a_kill_ends_has_come_to_the_end_of_some_page(
    tmp_path: Path, size: int
) -> None:
    left = (BEFORE + WRITTEN)[:size]
    found = recording(tmp_path, left)
    assert len(list(found)) == 2
    assert found.disk.contents() == {PATH: left}


def test_what_no_kill_leaves_is_found_out(tmp_path: Path) -> None:
    with pytest.raises(BadRecording):
        list(recording(tmp_path, (BEFORE + WRITTEN)[: PAGE_BYTES + len(BEFORE)]))
