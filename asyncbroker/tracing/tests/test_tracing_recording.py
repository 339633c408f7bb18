"""Recordings: what is written comes back, whatever happens to the end of the file."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from asyncbroker.protocol.messages.metadata import MetadataRequest
from asyncbroker.tests.edge_harness import request_frame
from asyncbroker.tracing.frames import FRAME_BYTES_MAX
from asyncbroker.tracing.recording import (
    HEAD,
    MAGIC,
    Entry,
    Kind,
    NotARecording,
    RecordingReader,
    RecordingWriter,
    encode_entry,
)

WRITTEN = [
    Entry(Kind.OPENED, 1, 5, 4, b"peer"),
    Entry(Kind.REQUEST, 1, -1, 100, b"beginning", True),
    Entry(Kind.CLOSED, 2**32 - 1, 2**63 - 1, 0, b""),
]
ENCODED = [encode_entry(entry) for entry in WRITTEN]


def test_every_torn_end_gives_the_entries_before_it() -> None:
    whole = b"".join(ENCODED)
    for cut in range(len(whole) + 1):
        reader = RecordingReader(io.BytesIO(HEAD + whole[:cut]))
        read = list(reader)
        kept = sum(map(len, ENCODED[: len(read)]))
        assert (read, reader.torn_bytes) == (WRITTEN[: len(read)], cut - kept)
        assert len(read) == len(WRITTEN) or len(ENCODED[len(read)]) > cut - kept


def test_a_changed_byte_is_noticed() -> None:
    for position in range(sum(map(len, ENCODED))):
        whole = bytearray(b"".join(ENCODED))
        whole[position] ^= 1
        reader = RecordingReader(io.BytesIO(HEAD + bytes(whole)))
        read = list(reader)
        assert read == WRITTEN[: len(read)]
        assert len(read) < len(WRITTEN)
        assert reader.torn_bytes > 0


@pytest.mark.parametrize("data", [b"", b"KAFKA", MAGIC, MAGIC + b"\0\0\0\2", b"x" * 100])
def test_another_file_is_refused(data: bytes) -> None:
    with pytest.raises(NotARecording):
        RecordingReader(io.BytesIO(data))


def test_secrets_and_large_frames_are_cut(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "r")
    metadata = request_frame("Metadata", 9, MetadataRequest(topics=None))[4:]
    writer.request(1, "peer", metadata)
    writer.response(1, 3, (bytes(4), b"answer"))
    writer.request(1, "peer", b"\0\x24\0\2\0\0\0\1\0\2me" + b"hunter2")
    writer.response(1, 36, (bytes(4), b"hunter2"))
    writer.request(1, "peer", bytes(10) + bytes(FRAME_BYTES_MAX))
    writer.closed(1)
    writer.close()
    assert writer.error is None
    assert b"hunter2" not in (tmp_path / "r").read_bytes()
    with (tmp_path / "r").open("rb") as file:
        opened, first, answer, secret, its_answer, large, closed = RecordingReader(file)
    assert (opened.kind, opened.data) == (Kind.OPENED, b"peer")
    assert (first.data, first.is_cut, answer.data) == (metadata, False, b"answer")
    assert (secret.data[-2:], secret.is_cut, its_answer.is_cut) == (b"me", True, True)
    assert (its_answer.data, its_answer.size) == (b"", 7)
    assert (large.is_cut, large.size, len(large.data)) == (
        True,
        FRAME_BYTES_MAX + 10,
        FRAME_BYTES_MAX,
    )
    assert closed.kind is Kind.CLOSED


def test_a_file_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        RecordingWriter(tmp_path / "no" / "r")


def test_a_file_that_ends_within_its_head_is_said_to() -> None:
    for end in range(1, len(HEAD)):
        with pytest.raises(NotARecording, match=f"within its head, after {end} bytes"):
            RecordingReader(io.BytesIO(HEAD[:end]))


def test_a_recording_is_read_from_a_pipe() -> None:
    ours, theirs = os.pipe()
    with open(ours, "rb") as file:
        with open(theirs, "wb") as pipe:
            pipe.write(HEAD + b"".join(ENCODED)[:-3])
        reader = RecordingReader(file)
        assert list(reader) == WRITTEN[:-1]
    assert reader.torn_bytes == len(ENCODED[-1]) - 3


def test_what_may_be_a_token_is_not_kept(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "r")
    writer.request(1, "peer", b"\0a\x005hunter2 and more")
    writer.close()
    assert b"hunter2" not in (tmp_path / "r").read_bytes()
