"""Cuts the byte stream of one connection into frames: an int32 size, then that many bytes.

Pure: the caller asks `buffer()` for the place where the next bytes go, fills some of it, and says
how many to `received()`, which returns the frames that are now whole. Each frame is a `bytearray`
of its own without the size: it stays valid as long as somebody holds it, and record batches in it
can be stamped in place.

Small frames are cut out of the landing buffer, which is scratch space that all connections of one
thread may share, since nothing stays in it between two calls. A frame that does not end there gets
a buffer of exactly its own, into which the following bytes are received directly: a large frame is
copied once, out of the kernel.

Whoever has done with a frame may say so to `reuse`: the next large one takes its memory, which need
not be zeroed again, as soon as nobody sees bytes of it any more.

The size at the head of a frame is a claim, and no memory is given on a claim: the frame's buffer
grows with what has arrived, by a factor. Only a peer that has just sent a whole frame of some size
is given that much and a little more, within a limit, for its next. A large buffer is not filled
with zeros first, where Python can be asked for such a one: nobody sees a frame before all of it was
received.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Final

from asyncbroker.protocol.errors import ProtocolError

LANDING_BYTES: Final = 64 * 1024
GROWTH_FACTOR: Final = 4
FIRST_BUFFER_BYTES: Final = 4096
PROVEN_BYTES_MAX: Final = 2 * 1024 * 1024
# A frame that is larger than the last one by this part of it is not copied either: responses that
# are as large as was asked for differ by a batch or two.
PROVEN_SPARE: Final = 16
# One whose bytes are being worked on, and one more.
SPARE_FRAMES_MAX: Final = 2

# From here on zeros take longer than the call that does without them.
UNFILLED_BYTES_MIN: Final = 32 * 1024

_TLS_HANDSHAKE: Final = 0x1603

_SIZE: Final = Struct(">i")
_SIZE_BYTES: Final = _SIZE.size


def _unfilled() -> Callable[[int], bytearray]:
    """CPython's own way to such a bytearray, or else the one with zeros."""
    try:
        from ctypes import PYFUNCTYPE, c_char_p, c_ssize_t, py_object, pythonapi

        prototype = PYFUNCTYPE(py_object, c_char_p, c_ssize_t)
        from_string = prototype(("PyByteArray_FromStringAndSize", pythonapi))
    except (ImportError, AttributeError):
        return bytearray
    return lambda size: from_string(None, size)


new_unfilled: Final = _unfilled()
"""A bytearray of a size, of which every byte has to be written before anybody may read it."""


class FrameReader:
    """The receiving side of one connection. After bytes that cannot be a frame, `error` is set:
    `received` has returned what came before them, and must not be called again."""

    __slots__ = (
        "_filled",
        "_frame",
        "_frame_bytes",
        "_frame_view",
        "_landing",
        "_landing_view",
        "_prefix",
        "_prefix_filled",
        "_proven_bytes",
        "_proven_bytes_max",
        "_spares",
        "error",
        "frame_bytes_max",
    )

    def __init__(
        self,
        frame_bytes_max: int,
        landing: bytearray | None = None,
        *,
        proven_bytes_max: int = PROVEN_BYTES_MAX,
    ) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._proven_bytes_max = proven_bytes_max
        self.error: ProtocolError | None = None
        self._landing = bytearray(LANDING_BYTES) if landing is None else landing
        self._landing_view = memoryview(self._landing)
        # A size of which fewer than four bytes have come.
        self._prefix = bytearray(_SIZE_BYTES)
        self._prefix_filled = 0
        # A frame that has begun: what is there of it, and what its size says.
        self._frame: bytearray | None = None
        self._frame_view = self._landing_view
        self._frame_bytes = 0
        self._filled = 0
        self._proven_bytes = 0
        self._spares: deque[bytearray] = deque(maxlen=SPARE_FRAMES_MAX)

    @property
    def is_between_frames(self) -> bool:
        """Whether everything received so far belonged to whole frames."""
        return self._frame is None and self._prefix_filled == 0

    @property
    def held_bytes(self) -> int:
        """The memory held for a frame that is not whole yet."""
        return 0 if self._frame is None else len(self._frame)

    @property
    def unfinished_bytes(self) -> int:
        """How much of a frame that is not whole yet has arrived."""
        return self._filled + self._prefix_filled

    def buffer(self) -> memoryview:
        """Where the next bytes are to be received; valid until `received` is called."""
        if self._frame is not None:
            return self._frame_view[self._filled :]
        if self._prefix_filled:
            return memoryview(self._prefix)[self._prefix_filled :]
        return self._landing_view

    def received(self, count: int) -> list[bytearray]:
        """Takes note of `count` bytes at the start of the last `buffer()`; returns the frames that
        they complete, in order."""
        if self._frame is not None:
            return self._continue_frame(count)
        if self._prefix_filled:
            return self._continue_prefix(count)
        return self._cut_landing(count)

    def reuse(self, frame: bytearray) -> None:
        """Takes back a frame that nobody uses any more but through `memoryview`s, which keep it as
        it is for as long as there are any."""
        if len(frame) > LANDING_BYTES:
            self._spares.append(frame)

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytearray]:
        """Takes bytes that lie elsewhere already, by way of a copy."""
        frames: list[bytearray] = []
        rest = memoryview(data)
        while len(rest) and self.error is None:
            space = self.buffer()
            count = min(len(space), len(rest))
            space[:count] = rest[:count]
            frames += self.received(count)
            rest = rest[count:]
        return frames

    def _cut_landing(self, count: int) -> list[bytearray]:
        landing = self._landing
        frames: list[bytearray] = []
        position = 0
        while count - position >= _SIZE_BYTES:
            (frame_bytes,) = _SIZE.unpack_from(landing, position)
            if not 0 <= frame_bytes <= self.frame_bytes_max:
                self._refuse(frame_bytes)
                return frames
            position += _SIZE_BYTES
            end = position + frame_bytes
            if end > count:
                self._begin_frame(frame_bytes, self._landing_view[position:count])
                return frames
            frames.append(landing[position:end])
            position = end
        self._prefix_filled = count - position
        self._prefix[: self._prefix_filled] = landing[position:count]
        return frames

    def _continue_prefix(self, count: int) -> list[bytearray]:
        self._prefix_filled += count
        if self._prefix_filled < _SIZE_BYTES:
            return []
        self._prefix_filled = 0
        (frame_bytes,) = _SIZE.unpack(self._prefix)
        if not 0 <= frame_bytes <= self.frame_bytes_max:
            self._refuse(frame_bytes)
            return []
        if frame_bytes == 0:
            return [bytearray()]
        self._begin_frame(frame_bytes, self._landing_view[:0])
        return []

    def _begin_frame(self, frame_bytes: int, start: memoryview) -> None:
        self._frame_bytes = frame_bytes
        self._filled = len(start)
        earned = max(FIRST_BUFFER_BYTES, self._filled * GROWTH_FACTOR, self._proven_bytes)
        self._allocate(min(frame_bytes, earned), start)

    def _continue_frame(self, count: int) -> list[bytearray]:
        frame = self._frame
        assert frame is not None
        self._filled += count
        if self._filled == self._frame_bytes:
            self._frame = None
            self._frame_view = self._landing_view
            self._filled = 0
            likely = self._frame_bytes + self._frame_bytes // PROVEN_SPARE
            self._proven_bytes = min(likely, self._proven_bytes_max)
            return [frame]
        if self._filled == len(frame):
            self._allocate(min(self._frame_bytes, self._filled * GROWTH_FACTOR), self._frame_view)
        return []

    def _allocate(self, size: int, start: memoryview) -> None:
        frame = self._spare_of(size)
        if frame is None:
            frame = bytearray(size) if size < UNFILLED_BYTES_MIN else new_unfilled(size)
        view = memoryview(frame)
        view[: len(start)] = start
        self._frame = frame
        self._frame_view = view

    def _spare_of(self, size: int) -> bytearray | None:
        """The memory of an earlier frame, if there is some that is free."""
        for index, spare in enumerate(self._spares):
            try:
                # What somebody sees cannot be resized.
                spare.append(0)
            except BufferError:
                continue
            del self._spares[index]
            del spare[size:]
            spare.extend(bytes(size - len(spare)))
            return spare
        return None

    def _refuse(self, frame_bytes: int) -> None:
        # How TLS begins: a record with the handshake.
        hint = "; the peer speaks TLS" if frame_bytes >> 16 == _TLS_HANDSHAKE else ""
        self.error = ProtocolError(
            f"a frame of {frame_bytes} bytes (the limit is {self.frame_bytes_max}){hint}"
        )
