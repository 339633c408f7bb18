"""A recording: the frames of many connections in one file, in the order in which they passed.

The file begins with 8 bytes, `KAFKAREC`, and an int32 version (1). Then entries, in big-endian:

    crc          uint32   CRC-32C of all that follows in the entry
    length       uint32   bytes that follow this field
    kind         uint8    0 opened, 1 request, 2 response, 3 closed, 4 gap
    flags        uint8    1: the frame is cut (too large, a secret, or not in memory)
    connection   uint32   a number for each connection
    time         int64    microseconds since 1970
    size         uint32   bytes of the whole frame; of a gap, how many frames were left out
    data         bytes    the frame without its length field; of `opened`, the peer as text

A process that dies leaves at most a torn last entry: reading stops there and says how many bytes
were left over. Frames are written by a thread; if the disk cannot keep up, frames are left out and
a gap says so, rather than that the traffic waits.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Any, BinaryIO, Final

from crc32c import crc32c

from asyncbroker.protocol.errors import ProtocolError
from asyncbroker.tracing.frames import FRAME_BYTES_MAX, read_head
from asyncbroker.tracing.secrets import SECRET_APIS, without_secrets

MAGIC: Final = b"KAFKAREC"
VERSION: Final = 1
HEAD: Final = MAGIC + VERSION.to_bytes(4, "big")
"""How a recording begins."""

CUT: Final = 1

WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
CONNECTIONS_REMEMBERED_MAX: Final = 100_000
CLOSE_SECONDS_MAX: Final = 10.0
PIECE_BYTES: Final = 1 << 20

_PREFIX: Final = Struct(">II")
_ENTRY: Final = Struct(">BBIqI")
_LENGTH_MAX: Final = _ENTRY.size + FRAME_BYTES_MAX


class Kind(IntEnum):
    """What an entry is about."""

    OPENED = 0
    REQUEST = 1
    RESPONSE = 2
    CLOSED = 3
    GAP = 4


class NotARecording(Exception):
    """The file does not begin like one, or like one that this version can read."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry; see the head of this file."""

    kind: Kind
    connection: int
    time_us: int
    size: int
    data: bytes
    is_cut: bool = False


def encode_entry(entry: Entry) -> bytes:
    """The bytes of an entry."""
    head = _ENTRY.pack(
        entry.kind, CUT if entry.is_cut else 0, entry.connection, entry.time_us, entry.size
    )
    length = len(head) + len(entry.data)
    crc = crc32c(entry.data, crc32c(head, crc32c(length.to_bytes(4, "big"))))
    return b"".join((_PREFIX.pack(crc, length), head, entry.data))


class RecordingReader:
    """The entries of a recording, read one by one, from a pipe too. After the last one `torn_bytes`
    is what was left over. Raises NotARecording or OSError."""

    def __init__(self, file: BinaryIO) -> None:
        head = file.read(len(HEAD))
        if not HEAD.startswith(head[: len(MAGIC)]) or not head:
            raise NotARecording("this is no recording of ours")
        if len(head) < len(HEAD):
            raise NotARecording(f"this recording ends within its head, after {len(head)} bytes")
        if head != HEAD:
            raise NotARecording("this recording has a version that is not known here")
        self.torn_bytes = 0
        self._file = file

    def __iter__(self) -> Iterator[Entry]:
        while True:
            prefix = self._file.read(_PREFIX.size)
            body = self._body(prefix)
            entry = _decode_entry(prefix, body)
            if entry is None:
                self.torn_bytes = len(prefix) + len(body)
                while data := self._file.read(PIECE_BYTES):
                    self.torn_bytes += len(data)
                return
            yield entry

    def _body(self, prefix: bytes) -> bytes:
        if len(prefix) < _PREFIX.size:
            return b""
        _, length = _PREFIX.unpack(prefix)
        return self._file.read(length) if _ENTRY.size <= length <= _LENGTH_MAX else b""


def _decode_entry(prefix: bytes, body: bytes) -> Entry | None:
    """An entry; None where it is torn or damaged, or there is none."""
    if len(body) < _ENTRY.size:
        return None
    crc, length = _PREFIX.unpack(prefix)
    if len(body) < length or crc32c(body, crc32c(prefix[4:])) != crc:
        return None
    kind, flags, connection, time_us, size = _ENTRY.unpack_from(body)
    try:
        return Entry(Kind(kind), connection, time_us, size, body[_ENTRY.size :], bool(flags & CUT))
    except ValueError:
        return None


class RecordingWriter:
    """Writes a recording. Methods may be called from one thread, and never wait for the disk.
    Raises OSError when the file cannot be made; what happens later ends the recording and is in
    `error`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.error: OSError | None = None
        self._file = open(path, "wb")  # noqa: SIM115
        self._file.write(HEAD)
        self._file.flush()
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._put_bytes = 0
        self._written_bytes = 0
        self._left_out = 0
        self._opened: set[int] = set()
        self._thread = threading.Thread(target=self._run, name="recording", daemon=True)
        self._thread.start()

    def request(self, connection: int, peer: str, frame: bytes | bytearray) -> None:
        """A request, before anybody has changed its bytes."""
        if connection not in self._opened:
            if len(self._opened) == CONNECTIONS_REMEMBERED_MAX:
                self._opened.clear()
            self._opened.add(connection)
            data = peer.encode("utf-8", "replace")
            self._put(Entry(Kind.OPENED, connection, _now_us(), len(data), data))
        try:
            head = read_head(frame)
        except ProtocolError:
            # It may be a bare token of SASL.
            self.cut_request(connection, len(frame), b"")
            return
        kept = without_secrets(head.api_key, head.version, frame)
        if kept is None:
            # Who asked for what, and nothing of the body.
            self.cut_request(connection, len(frame), frame[: 10 + len(head.client_id.encode())])
        elif kept is frame:
            self._frame(Kind.REQUEST, connection, frame, len(frame))
        else:
            self._frame(Kind.REQUEST, connection, kept, len(kept))

    def cut_request(self, connection: int, size: int, beginning: bytes | bytearray) -> None:
        """A request that is too large to be kept, or a secret."""
        self._put(Entry(Kind.REQUEST, connection, _now_us(), size, bytes(beginning), True))

    def response(self, connection: int, api_key: int, parts: Sequence[Any]) -> None:
        """A response in parts, its length field first. Ranges of files are read if they are in
        memory."""
        size = sum(_size_of(part) for part in parts) - 4
        if api_key in SECRET_APIS or size > FRAME_BYTES_MAX:
            self.cut_response(connection, size, b"")
            return
        pieces = []
        for part in parts:
            piece = part if _is_bytes(part) else part.file.pread_nowait(part.size, part.position)
            if piece is None:
                break
            pieces.append(piece)
        self._frame(Kind.RESPONSE, connection, b"".join(pieces)[4:], size)

    def cut_response(self, connection: int, size: int, beginning: bytes) -> None:
        """A response that is too large to be kept, or a secret."""
        self._put(Entry(Kind.RESPONSE, connection, _now_us(), size, beginning, True))

    def closed(self, connection: int) -> None:
        """The connection has ended."""
        if connection in self._opened:
            self._opened.discard(connection)
            self._put(Entry(Kind.CLOSED, connection, _now_us(), 0, b""))

    def close(self) -> None:
        """Writes what waits, and closes the file."""
        self._queue.put(None)
        self._thread.join(CLOSE_SECONDS_MAX)

    def _frame(self, kind: Kind, connection: int, data: bytes | bytearray, size: int) -> None:
        kept = bytes(data[:FRAME_BYTES_MAX])
        self._put(Entry(kind, connection, _now_us(), size, kept, len(kept) < size))

    def _put(self, entry: Entry) -> None:
        if self._put_bytes - self._written_bytes > WAITING_BYTES_MAX:
            self._left_out += 1
            return
        if self._left_out:
            count, self._left_out = self._left_out, 0
            self._put(Entry(Kind.GAP, 0, _now_us(), count, b""))
        data = encode_entry(entry)
        self._put_bytes += len(data)
        self._queue.put(data)

    def _run(self) -> None:
        """The thread. Each entry is given to the system as soon as no other one waits."""
        with self._file:
            while (data := self._queue.get()) is not None:
                self._written_bytes += len(data)
                if self.error is not None:
                    continue
                try:
                    self._file.write(data)
                    if self._queue.empty():
                        self._file.flush()
                except OSError as error:
                    self.error = error


def _now_us() -> int:
    return time.time_ns() // 1000


def _is_bytes(part: Any) -> bool:
    return isinstance(part, (bytes, bytearray, memoryview))


def _size_of(part: Any) -> int:
    return len(part) if _is_bytes(part) else int(part.size)
