"""Sends the requests of a recording to another broker, and compares its answers.

The entries are worked off in their order: a request is sent, and where the recording has an answer,
the broker's answer to that request is waited for. So whatever a client had seen before it asked is
there in the replay too, over all connections, and ids can be mapped (`id_map.py`) before they are
needed. Waiting requests (a JoinGroup for its group, a Fetch) wait, as nobody is asked for their
answer before its turn.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from asyncbroker.client.connection import FRAME_BYTES_MAX, Address
from asyncbroker.client.security import PLAINTEXT
from asyncbroker.protocol.api import API_BY_KEY
from asyncbroker.protocol.errors import ProtocolError
from asyncbroker.protocol.framing import FrameReader
from asyncbroker.protocol.headers import decode_request_header
from asyncbroker.tracing.compare import MISSING, Difference, FetchedRecords, differences
from asyncbroker.tracing.frames import Head, decode_request, decode_response, read_head
from asyncbroker.tracing.id_map import IdMap
from asyncbroker.tracing.recording import Entry, Kind
from asyncbroker.tracing.text import printable
from asyncbroker.tracing.unanswered import Unanswered

NO_ANSWER: Final = "(no answer)"
FETCH_KEY: Final = 1
CLOSED: Final = "(the connection was closed)"


@dataclass(frozen=True, slots=True)
class Report:
    """An answer that was not like the recorded one."""

    connection: int
    head: Head
    differences: tuple[Difference, ...]


@dataclass(slots=True)
class Counts:
    """What a replay has done."""

    requests: int = 0
    compared: int = 0
    skipped: int = 0
    gaps: int = 0


@dataclass(slots=True)
class _Asked:
    head: Head
    request: Any
    is_sent: bool


@dataclass(slots=True)
class _Peer:
    """One connection of the recording, and its replay."""

    socket: socket.socket | None
    reader: FrameReader
    frames: deque[bytearray] = field(default_factory=deque)
    asked: Unanswered[_Asked] = field(default_factory=Unanswered)


class Replay:
    """One replay; see the head of this file. `speed` 1 keeps the recorded pace, 0 does not wait."""

    def __init__(
        self,
        address: Address,
        *,
        timeout_s: float,
        speed: float = 0.0,
        connections: frozenset[int] = frozenset(),
        is_strict: bool = False,
    ) -> None:
        self.counts = Counts()
        self.ids = IdMap()
        self._address = address
        self._timeout_s = timeout_s
        self._speed = speed
        self._connections = connections
        self._is_strict = is_strict
        self._peers: dict[int, _Peer] = {}
        self._fetched = FetchedRecords(self.ids)
        self._began: tuple[float, int] | None = None

    def run(self, entries: Iterable[Entry]) -> Iterable[Report]:
        """Replays them; gives each answer that differs when it comes. Raises OSError when the
        broker cannot be reached."""
        # A fetch that waits when the recorded broker stops is answered with an error: what differs
        # in a fetch counts only if something is asked after it.
        fetches: list[Report] = []
        try:
            for entry in entries:
                if self._connections and entry.connection not in self._connections:
                    continue
                if entry.kind is Kind.REQUEST:
                    yield from fetches
                    fetches.clear()
                    self._keep_pace(entry.time_us)
                    self._send(entry)
                elif entry.kind is Kind.RESPONSE:
                    report = self._receive(entry)
                    if report is not None and report.differences:
                        if report.head.api_key == FETCH_KEY:
                            fetches.append(report)
                        else:
                            yield report
                elif entry.kind is Kind.CLOSED:
                    self._close(entry.connection)
                elif entry.kind is Kind.GAP:
                    self.counts.gaps += entry.size
            missing = tuple(self._fetched.differences())
            if missing:
                yield Report(0, Head(FETCH_KEY, -1, -1, ""), missing)
        finally:
            for number in list(self._peers):
                self._close(number)

    def _keep_pace(self, time_us: int) -> None:
        if not self._speed:
            return
        if self._began is None:
            self._began = (time.monotonic(), time_us)
        start, start_us = self._began
        due = start + (time_us - start_us) / 1e6 / self._speed
        time.sleep(max(0.0, due - time.monotonic()))

    def _peer(self, number: int) -> _Peer:
        if number not in self._peers:
            connected = PLAINTEXT.connect(self._address, self._timeout_s)
            connected.settimeout(self._timeout_s)
            self._peers[number] = _Peer(connected, FrameReader(FRAME_BYTES_MAX))
        return self._peers[number]

    def _close(self, number: int) -> None:
        peer = self._peers.pop(number, None)
        if peer is not None and peer.socket is not None:
            peer.socket.close()

    def _send(self, entry: Entry) -> None:
        peer = self._peer(entry.connection)
        try:
            head = read_head(entry.data)
        except ProtocolError:
            head = Head(-1, -1, -1, "")
        request = None
        frame = entry.data
        if not entry.is_cut:
            try:
                # Twice: what is sent is changed, what was recorded is compared by.
                request = decode_request(head, frame)
                frame = self._rewritten(head, frame)
            except (ProtocolError, ValueError):
                frame = entry.data
        is_sent = not entry.is_cut and peer.socket is not None
        peer.asked.add(head.correlation_id, _Asked(head, request, is_sent))
        if not is_sent or peer.socket is None:
            self.counts.skipped += 1
            return
        self.counts.requests += 1
        try:
            peer.socket.sendall(len(frame).to_bytes(4, "big") + frame)
        except OSError:
            # What there is to say is said when the answer is asked for.
            peer.socket.close()
            peer.socket = None

    def _rewritten(self, head: Head, frame: bytes) -> bytes:
        message = decode_request(head, frame)
        self.ids.put_into(message)
        _, position = decode_request_header(frame)
        codec = API_BY_KEY[head.api_key].request_codec(head.version)
        return frame[:position] + codec.encode(message)

    def _receive(self, entry: Entry) -> Report | None:
        peer = self._peers.get(entry.connection)
        asked = None if peer is None else peer.asked.answered(entry.data)[1]
        if peer is None or asked is None or not asked.is_sent:
            return None
        frame = self._next_frame(peer, asked.head.correlation_id)
        if isinstance(frame, str):
            return Report(entry.connection, asked.head, (Difference("", "an answer", frame),))
        if entry.is_cut:
            return None
        self.counts.compared += 1
        try:
            recorded = decode_response(asked.head, entry.data)
        except ProtocolError:
            return None
        try:
            replayed = decode_response(asked.head, frame)
        except ProtocolError as error:
            text = f"(cannot be decoded: {error})"
            return Report(entry.connection, asked.head, (Difference("", "an answer", text),))
        if asked.request is not None:
            self.ids.learn(asked.request, recorded, replayed)
        if type(recorded).__name__ == "FetchResponse":
            self._fetched.add(recorded, replayed)
        found = tuple(differences(recorded, replayed, self.ids, is_strict=self._is_strict))
        return Report(entry.connection, asked.head, found)

    def _next_frame(self, peer: _Peer, correlation_id: int) -> bytearray | str:
        """The answer with this correlation id; in words why there is none."""
        while True:
            while peer.frames:
                frame = peer.frames.popleft()
                if int.from_bytes(frame[:4], "big", signed=True) == correlation_id:
                    return frame
            if peer.socket is None:
                return CLOSED
            try:
                count = peer.socket.recv_into(peer.reader.buffer())
            except TimeoutError:
                return f"{NO_ANSWER[:-1]} within {self._timeout_s:g} s)"
            except OSError:
                count = 0
            if count == 0:
                peer.socket.close()
                peer.socket = None
            else:
                peer.frames.extend(peer.reader.received(count))
                if peer.reader.error is not None:
                    return f"(no Kafka: {peer.reader.error})"


def report_lines(report: Report) -> list[str]:
    """A report for a person: the request, and a line for each field."""
    lines = [f"connection {report.connection}  {report.head}  #{report.head.correlation_id}"]
    for found in report.differences:
        path = found.path or "answer"
        lines.append(f"    {path}: {_short(found.recorded)} -> {_short(found.replayed)}")
    return lines


def _short(value: Any) -> str:
    return printable(value if value == MISSING else repr(value))
