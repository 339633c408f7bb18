"""The sending side of one connection: small responses, parts, ranges of files, a peer that is slow.

Small responses go out in one write. A fetch's response comes in parts, and its record batches as
ranges of log files. While the connection's output buffer is empty, `os.sendfile` moves a range from
the page cache to the socket without a copy through this process. Otherwise, and always under TLS,
ranges are read and written through the transport in pieces, the next one when the last has left.
So a slow peer costs one piece of memory, however much it asked for.

A range that is not in the page cache is read in a worker, since `sendfile` would stop the loop. So
is what `sendfile` refuses: it does not say whether the file or the socket is at fault, and a read
does.
"""

from __future__ import annotations

import asyncio
import os
import select
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Protocol, TypeGuard

from asyncbroker.log.native import Answer, MakeAnswer
from asyncbroker.protocol.schema import SizedPart
from asyncbroker.workers import Workers

# Below this a read and a shared write cost less than a sendfile of its own.
SENDFILE_BYTES_MIN: Final = 32 * 1024

# How much of a range is read at once when it goes through the transport.
PIECE_BYTES: Final = 1024 * 1024


class ReadableFile(Protocol):
    """What is needed of a log file (`asyncbroker/log/files.py`)."""

    def pread(self, size: int, position: int) -> bytes: ...

    def pread_nowait(self, size: int, position: int) -> bytes | bytearray | None: ...

    def is_resident(self, position: int, size: int) -> bool: ...

    def fileno(self) -> int | None: ...


class FilePart(Protocol):
    """A range of a log file, which stands in a response for its bytes."""

    file: ReadableFile
    position: int
    size: int

    @property
    def on_error(self) -> Callable[[OSError], object] | None:
        """Is told if the disk does not give the bytes; the caller of `send` does that."""


Part = bytes | bytearray | memoryview | SizedPart


class Output:
    """Writes to one transport. Above `bytes_max` of unsent bytes `is_full` says that the peer is
    slow, and is to be given nothing more until all has left."""

    def __init__(
        self,
        transport: asyncio.Transport,
        workers: Workers,
        *,
        bytes_max: int,
        may_sendfile: bool,
        make_answer: MakeAnswer | None = None,
    ) -> None:
        self._transport = transport
        self._workers = workers
        self._is_lost = False
        self._emptied: asyncio.Future[None] | None = None
        self._socket = -1
        self._make_answer = make_answer
        if may_sendfile and transport.get_extra_info("sslcontext") is None:
            socket = transport.get_extra_info("socket")
            self._socket = socket.fileno() if socket is not None else -1
        self.is_full = False
        # Only when the transport is empty may sendfile be used again.
        transport.set_write_buffer_limits(high=bytes_max, low=0)

    def write(self, frames: list[bytes]) -> None:
        """Writes whole responses, together."""
        self._transport.write(frames[0] if len(frames) == 1 else b"".join(frames))

    def beside(self, frame: bytes) -> Answer | None:
        """A response that is next, for whoever is allowed to send it in another thread; None if it
        must go through `write`. Until its `end` was called nothing else may be written, and the
        transport must not be closed altogether."""
        if (
            self._make_answer is None
            or self._socket < 0
            or self._transport.get_write_buffer_size()
            or self._transport.is_closing()
        ):
            return None
        return self._make_answer(self._socket, frame)

    def send(self, parts: Sequence[Part]) -> Coroutine[Any, Any, None] | None:
        """Writes one response of parts. When not all of it can go at once, returns the rest of the
        work, which nothing else may be written before."""
        if self._transport.is_closing():
            # It takes no head any more, and the socket may still take what comes after one.
            return None
        ready: list[Any] = []
        for index, part in enumerate(parts):
            if not _is_range(part):
                ready.append(part)
                continue
            if self._could_sendfile(part, 0):
                self._write_parts(ready)
                ready = []
                sent = self._sendfile(part, 0)
            else:
                data = _read_nowait(part) if part.size <= PIECE_BYTES else None
                if data is not None and not self.is_full:
                    ready.append(data)
                    continue
                self._write_parts(ready)
                ready = []
                sent = 0
            if sent < part.size:
                return self._send_rest(parts[index:], sent)
        self._write_parts(ready)
        return None

    def pause(self) -> None:
        """The transport's buffer has passed its high mark."""
        self.is_full = True

    def resume(self) -> None:
        """The transport's buffer is empty again."""
        self.is_full = False
        if self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)

    def lose(self) -> None:
        """The connection is gone: ends the wait of what was being sent."""
        self._is_lost = True
        self.resume()

    def unsent_mark(self) -> tuple[int, int] | None:
        """Changes whenever the peer takes something; None when nothing waits for it."""
        unsent = self._transport.get_write_buffer_size()
        if unsent == 0:
            return None
        return unsent, _unacknowledged_bytes(self._transport)

    def peer_has_left(self) -> bool:
        """Whether the peer has closed its side, while we do not read and so are not told. False
        where the system cannot say."""
        socket = self._transport.get_extra_info("socket")
        if socket is None or not hasattr(select, "POLLRDHUP"):
            return False
        poll = select.poll()
        poll.register(socket.fileno(), select.POLLRDHUP)
        return bool(poll.poll(0))

    async def _send_rest(self, parts: Sequence[Part], start: int) -> None:
        """Sends `parts`, the first from `start` on, at the peer's pace."""
        for part in parts:
            if _is_range(part):
                await self._send_range(part, start)
                start = 0
            else:
                await self._wait_until_emptied()
                self._transport.write(part)  # type: ignore[arg-type]

    async def _send_range(self, part: FilePart, start: int) -> None:
        while start < part.size:
            await self._wait_until_emptied()
            if self._could_sendfile(part, start):
                start = self._sendfile(part, start)
                if start == part.size:
                    return
            # The socket has no room left, or the pages are elsewhere. The transport takes a piece,
            # and tells us when it has gone.
            size = min(PIECE_BYTES, part.size - start)
            position = part.position + start
            try:
                data = part.file.pread_nowait(size, position)
                if data is None:
                    data = await self._workers.run(part.file.pread, size, position)
            except OSError as error:
                raise UnreadableRange(part, error) from error
            self._transport.write(_checked(data, size))
            start += size

    async def _wait_until_emptied(self) -> None:
        while self.is_full and not self._is_lost:
            self._emptied = asyncio.get_running_loop().create_future()
            await self._emptied
        if self._is_lost:
            raise ConnectionResetError("the peer is gone")

    def _write_parts(self, parts: list[Any]) -> None:
        if len(parts) == 1:
            self._transport.write(parts[0])
        elif parts:
            self._transport.writelines(parts)

    def _could_sendfile(self, part: FilePart, start: int) -> bool:
        size = part.size - start
        return (
            self._socket >= 0
            and size >= SENDFILE_BYTES_MIN
            and part.file.fileno() is not None
            and part.file.is_resident(part.position + start, size)
        )

    def _sendfile(self, part: FilePart, start: int) -> int:
        """Sends what the socket takes of a range from `start` on; returns how far it got. That is
        nowhere while the transport still holds bytes that come before."""
        if self._transport.get_write_buffer_size():
            return start
        source = part.file.fileno()
        assert source is not None
        while start < part.size:
            try:
                count = os.sendfile(self._socket, source, part.position + start, part.size - start)
            except ConnectionError:
                raise
            except OSError:
                break
            if count == 0:
                raise ShortRead(f"a log file ends {part.size - start} bytes early")
            start += count
        return start


class ShortRead(Exception):
    """A range of a log file has fewer bytes than it promised; the response cannot be finished."""


class UnreadableRange(Exception):
    """The disk does not give a range of a log file; the response cannot be finished."""

    def __init__(self, part: FilePart, error: OSError) -> None:
        super().__init__(f"a log file cannot be read: {error}")
        self.part = part
        self.error = error


def _unacknowledged_bytes(transport: asyncio.Transport) -> int:
    """What the kernel still holds for the peer, where it can be asked. Without this a slow link
    would look like a dead one while the kernel's buffer, which is large, drains."""
    socket = transport.get_extra_info("socket")
    try:
        import fcntl
        import termios

        answer = fcntl.ioctl(socket.fileno(), termios.TIOCOUTQ, bytes(4))
    except (ImportError, AttributeError, OSError):
        return 0
    return int.from_bytes(answer, sys.byteorder)


def _is_range(part: Any) -> TypeGuard[FilePart]:
    return not isinstance(part, (bytes, bytearray, memoryview))


def _read_nowait(part: FilePart) -> bytes | bytearray | None:
    try:
        data: bytes | bytearray | None = part.file.pread_nowait(part.size, part.position)
    except OSError as error:
        raise UnreadableRange(part, error) from error
    return None if data is None else _checked(data, part.size)


def _checked(data: bytes | bytearray, size: int) -> bytes | bytearray:
    if len(data) != size:
        raise ShortRead(f"a log file ends {size - len(data)} bytes early")
    return data
