"""The compiled writer does what `pwrite` and `datasync` of `RealFile` do, errors and all, one write
at a time, and its thread ends when it is told to."""

from __future__ import annotations

import errno
import os
import select
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from asyncbroker.log.files import RealFile, RealFiles
from asyncbroker.log.native import Answer, Writer, make_writer

pytestmark = pytest.mark.skipif(make_writer() is None, reason="there is no compiled writer")

SECONDS_MAX = 60


@pytest.fixture
def writer() -> Iterator[Writer]:
    made = make_writer()
    assert made is not None
    thread = threading.Thread(target=made.serve)
    thread.start()
    yield made
    made.end()
    thread.join(SECONDS_MAX)
    assert not thread.is_alive()


def opened(path: Path, data: bytes = b"") -> RealFile:
    path.write_bytes(data)
    return RealFiles().open(str(path))


def write(
    writer: Writer, file: int, data: bytes, position: int, answers: Sequence[Answer] = ()
) -> int:
    """The errno."""
    assert writer.outcome() is None
    writer.submit(file, data, position, list(answers))
    assert select.select([writer], [], [], SECONDS_MAX)[0]
    outcome = writer.outcome()
    assert outcome is not None
    code, seconds = outcome
    assert seconds >= 0.0
    assert not select.select([writer], [], [], 0)[0]
    return code


def test_what_is_written_is_where_python_would_write_it(writer: Writer, tmp_path: Path) -> None:
    one, other = opened(tmp_path / "one", bytes(9000)), opened(tmp_path / "other", bytes(9000))
    for data, position in ((b"begin", 0), (b"x" * 4096, 4090), (b"", 12), (b"beyond", 12_000)):
        assert write(writer, one.fileno() or -1, data, position) == 0
        other.pwrite(data, position)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


def test_errors_are_those_of_the_calls(writer: Writer, tmp_path: Path) -> None:
    file = opened(tmp_path / "file")
    full = os.open("/dev/full", os.O_WRONLY)
    pipe = os.pipe()
    try:
        assert write(writer, full, b"data", 0) == errno.ENOSPC
        assert write(writer, pipe[1], b"data", 0) == errno.ESPIPE
        assert write(writer, file.fileno() or -1, b"data", -1) == errno.EINVAL
        assert write(writer, 1 << 20, b"data", 0) == errno.EBADF
        # Whatever went wrong before.
        assert write(writer, file.fileno() or -1, b"data", 0) == 0
    finally:
        for descriptor in (full, *pipe):
            os.close(descriptor)


def test_a_file_that_was_removed_is_not_durable(writer: Writer, tmp_path: Path) -> None:
    file = opened(tmp_path / "file")
    (tmp_path / "file").unlink()
    assert write(writer, file.fileno() or -1, b"data", 0) == errno.ENOENT
    with pytest.raises(FileNotFoundError):
        file.datasync()


def test_one_write_at_a_time(writer: Writer, tmp_path: Path) -> None:
    file = opened(tmp_path / "file")
    writer.submit(file.fileno() or -1, b"first", 0, [])
    # Also when it has ended: nobody has been told yet.
    with pytest.raises(RuntimeError, match="not free"):
        writer.submit(file.fileno() or -1, b"second", 0, [])
    assert select.select([writer], [], [], SECONDS_MAX)[0]
    assert writer.outcome() is not None
    assert write(writer, file.fileno() or -1, b"third", 0) == 0
    assert (tmp_path / "file").read_bytes() == b"third"


def test_the_thread_ends_after_what_is_under_way(tmp_path: Path) -> None:
    file = opened(tmp_path / "file")
    writer = make_writer()
    assert writer is not None
    writer.submit(file.fileno() or -1, b"data", 0, [])
    writer.end()
    # It has not begun yet, so that both are there when it does.
    writer.serve()
    outcome = writer.outcome()
    assert outcome is not None
    assert outcome[0] == 0
    assert (tmp_path / "file").read_bytes() == b"data"
    with pytest.raises(RuntimeError, match="not free"):
        writer.submit(file.fileno() or -1, b"more", 0, [])


def test_what_is_left_when_nobody_serves_is_let_go(tmp_path: Path) -> None:
    file = opened(tmp_path / "file")
    writer = make_writer()
    assert writer is not None
    data = bytearray(10)
    writer.submit(file.fileno() or -1, memoryview(data), 0, [])  # type: ignore[arg-type]
    with pytest.raises(BufferError):
        data.append(0)
    del writer
    data.append(0)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection, of which nobody waits for the other."""
    ours, peers = socket.socketpair()
    ours.setblocking(False)
    peers.setblocking(False)
    with ours, peers:
        yield ours, peers


def test_answers_are_sent_when_all_is_durable(
    writer: Writer, tmp_path: Path, ends: tuple[socket.socket, socket.socket]
) -> None:
    file = opened(tmp_path / "file")
    ours, peers = ends
    answers = [writer.make_answer(ours.fileno(), data) for data in (b"one", b"", b"two")]
    assert write(writer, file.fileno() or -1, b"data", 0, answers) == 0
    assert peers.recv(100) == b"onetwo"
    assert [answer.end() for answer in answers] == [3, 0, 3]
    assert [answer.end() for answer in answers] == [3, 0, 3]
    # Of another round they are not sent again.
    assert write(writer, file.fileno() or -1, b"data", 0, answers) == 0
    with pytest.raises(BlockingIOError):
        peers.recv(100)


def test_no_answer_is_sent_of_what_is_not_durable(
    writer: Writer, ends: tuple[socket.socket, socket.socket]
) -> None:
    ours, peers = ends
    answer = writer.make_answer(ours.fileno(), b"answer")
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        assert write(writer, full, b"data", 0, [answer]) == errno.ENOSPC
    finally:
        os.close(full)
    assert answer.end() == 0
    with pytest.raises(BlockingIOError):
        peers.recv(100)


def test_an_answer_that_was_ended_is_not_sent(
    writer: Writer, tmp_path: Path, ends: tuple[socket.socket, socket.socket]
) -> None:
    file = opened(tmp_path / "file")
    ours, peers = ends
    ended, other = (writer.make_answer(ours.fileno(), data) for data in (b"ended", b"other"))
    assert ended.end() == 0
    assert write(writer, file.fileno() or -1, b"data", 0, [ended, other]) == 0
    assert peers.recv(100) == b"other"
    assert [ended.end(), other.end()] == [0, 5]


def test_what_a_socket_does_not_take_is_left(
    writer: Writer, tmp_path: Path, ends: tuple[socket.socket, socket.socket]
) -> None:
    file = opened(tmp_path / "file")
    ours, peers = ends
    large = writer.make_answer(ours.fileno(), bytes(1 << 22))
    behind = writer.make_answer(ours.fileno(), b"behind")
    assert write(writer, file.fileno() or -1, b"data", 0, [large, behind]) == 0
    assert 0 < large.end() < 1 << 22
    assert behind.end() == 0
    peers.close()
    gone, bad = writer.make_answer(ours.fileno(), b"gone"), writer.make_answer(-1, b"nowhere")
    assert write(writer, file.fileno() or -1, b"data", 0, [gone, bad]) == 0
    assert [gone.end(), bad.end()] == [0, 0]


def test_only_answers_are_taken_and_none_is_held_longer_than_its_round(
    writer: Writer, tmp_path: Path, ends: tuple[socket.socket, socket.socket]
) -> None:
    file = opened(tmp_path / "file")
    answer = writer.make_answer(ends[0].fileno(), b"answer")
    count = sys.getrefcount(answer)
    with pytest.raises(TypeError):
        writer.submit(file.fileno() or -1, b"data", 0, [answer, "answer"])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        writer.make_answer(0, "text")  # type: ignore[arg-type]
    assert write(writer, file.fileno() or -1, b"data", 0, [answer]) == 0
    assert sys.getrefcount(answer) == count


def test_an_end_meets_a_round_at_any_moment(
    writer: Writer, tmp_path: Path, ends: tuple[socket.socket, socket.socket]
) -> None:
    """What `end` says is what the peer gets."""
    file = opened(tmp_path / "file")
    ours, peers = ends
    for _ in range(50):
        answers = [writer.make_answer(ours.fileno(), bytes([number])) for number in range(20)]
        writer.submit(file.fileno() or -1, b"data", 0, answers)
        sent = [answer.end() for answer in answers]
        assert select.select([writer], [], [], SECONDS_MAX)[0]
        assert writer.outcome() is not None
        expected = bytes(number for number, count in enumerate(sent) if count)
        assert (peers.recv(100) if expected else b"") == expected
    with pytest.raises(BlockingIOError):
        peers.recv(100)
