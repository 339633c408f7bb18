"""Packet captures: from the packets of tcpdump or Wireshark to requests and responses.

A capture is read packet by packet. Each direction of a TCP connection is put in order again by its
sequence numbers (what comes early waits, within a bound; what comes twice is left out), and cut
into frames. Which side is the broker is told by the first SYN, or else by the port: the one that
was named, or the lower one. Bytes that were not captured cannot be known: such a direction ends
where the hole is, with a gap.

`dpkt` knows the file formats, links and headers; it is imported here only.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from ipaddress import ip_address
from typing import Any, BinaryIO, Final

import dpkt

from asyncbroker.context import Address
from asyncbroker.tracing.frames import FRAME_BYTES_MAX
from asyncbroker.tracing.recording import Entry, Kind

# What waits of one direction for packets that come before it, and what each costs beside its bytes.
EARLY_BYTES_MAX: Final = 4 << 20
SEGMENT_BYTES: Final = 200
# What is held of all connections together, and how many are followed at the same time; more, and
# those that have said nothing for longest are left alone.
HELD_BYTES_MAX: Final = 256 << 20
CONNECTIONS_MAX: Final = 4096

_SEQUENCES: Final = 1 << 32
_HALF: Final = _SEQUENCES // 2
# The end of the year 9999: files may claim any time.
_TIME_US_MAX: Final = 253_402_300_799_000_000

Endpoint = tuple[bytes, int]


class NotACapture(Exception):
    """A file that cannot be read as a packet capture."""


def entries_of(file: BinaryIO, broker_port: int | None = None) -> Iterator[Entry]:
    """What passed, as the entries of a recording; with a port, only what passed there. Raises
    NotACapture."""
    try:
        packets = dpkt.pcap.UniversalReader(file)
    except (ValueError, OSError, struct.error, dpkt.Error) as error:
        raise NotACapture(f"this is no packet capture: {error}") from error
    unpack = _LINKS.get(packets.datalink())
    if unpack is None:
        raise NotACapture(f"packets of the link type {packets.datalink()} are not known")
    capture = _Capture(broker_port)
    for time, data in _whole(packets):
        found = _segment_of(unpack, data)
        if found is not None:
            yield from capture.take(*found, min(max(0, int(time * 1_000_000)), _TIME_US_MAX))
    yield from capture.end()


class _Capture:
    """The connections that are followed, those that have been silent for longest first."""

    def __init__(self, port: int | None) -> None:
        self._port = port
        self._connections: dict[frozenset[Endpoint], _Connection] = {}
        self._held_bytes = 0
        self._count = 0

    def take(
        self, source: Endpoint, target: Endpoint, segment: Any, time_us: int
    ) -> Iterator[Entry]:
        """What a segment completes."""
        if self._port not in (None, source[1], target[1]):
            return
        key = frozenset((source, target))
        connection = self._connections.pop(key, None)
        is_opening = segment.flags & dpkt.tcp.TH_SYN and not segment.flags & dpkt.tcp.TH_ACK
        if connection is not None and is_opening and connection.began_at != segment.seq:
            # The same ports once more, not the same packet.
            yield from self._end(connection)
            connection = None
        if connection is None:
            self._count += 1
            broker = _broker_of(source, target, segment, self._port)
            began_at = segment.seq if is_opening else None
            connection = _Connection(self._count, broker, began_at)
            host, port = source if target == broker else target
            peer = str(Address(str(ip_address(host)), port)).encode()
            yield Entry(Kind.OPENED, self._count, time_us, len(peer), peer)
        self._connections[key] = connection
        self._held_bytes -= connection.held_bytes
        yield from connection.take(source, segment, time_us)
        self._held_bytes += connection.held_bytes
        while len(self._connections) > CONNECTIONS_MAX or self._held_bytes > HELD_BYTES_MAX:
            yield from self._end(self._connections.pop(next(iter(self._connections))))

    def end(self) -> Iterator[Entry]:
        """The capture is over."""
        while self._connections:
            yield from self._end(self._connections.pop(next(iter(self._connections))))

    def _end(self, connection: _Connection) -> Iterator[Entry]:
        self._held_bytes -= connection.held_bytes
        yield from connection.end()


class _Direction:
    """The bytes of one side, in order. Positions are sequence numbers that count on."""

    def __init__(self) -> None:
        self.is_lost = False
        self._next: int | None = None
        # By position, the first on top.
        self._early: list[tuple[int, bytes]] = []
        self._early_bytes = 0
        self._held = bytearray()

    @property
    def held_bytes(self) -> int:
        """The memory that it takes."""
        return len(self._held) + self._early_bytes

    def begin(self, sequence: int) -> None:
        """The side's SYN: its first byte comes next."""
        if self._next is None:
            self._next = sequence + 1

    def add(self, sequence: int, data: bytes) -> None:
        """Takes a segment, in any order; sets `is_lost` where there are too many before a hole."""
        if self.is_lost or not data:
            return
        if self._next is None:
            self._next = sequence
        position = self._next + (sequence - self._next + _HALF) % _SEQUENCES - _HALF
        if position > self._next:
            heappush(self._early, (position, data))
            self._early_bytes += len(data) + SEGMENT_BYTES
            if self._early_bytes > EARLY_BYTES_MAX:
                self.lose()
            return
        self._next = self._appended(self._next, position, data)
        while self._early and self._early[0][0] <= self._next:
            position, data = heappop(self._early)
            self._early_bytes -= len(data) + SEGMENT_BYTES
            self._next = self._appended(self._next, position, data)

    def frames(self) -> Iterator[tuple[int, bytes]]:
        """The whole frames that are there now, with their sizes; at one that is too large, or that
        is none, it sets `is_lost`."""
        while len(self._held) >= 4:
            size = int.from_bytes(self._held[:4], "big", signed=True)
            if not 0 <= size <= FRAME_BYTES_MAX:
                self.lose()
                return
            if len(self._held) < 4 + size:
                return
            frame = bytes(self._held[4 : 4 + size])
            del self._held[: 4 + size]
            yield size, frame

    def lose(self) -> None:
        """Gives up what is held, and all that comes."""
        self.is_lost = True
        self._early = []
        self._early_bytes = 0
        self._held = bytearray()

    def _appended(self, known_to: int, position: int, data: bytes) -> int:
        """Appends what is new of a segment; returns where the next one begins."""
        known = known_to - position
        if known >= len(data):
            return known_to
        self._held += data[known:]
        return position + len(data)


class _Connection:
    """One TCP connection to a broker; `began_at` is the number of its first SYN."""

    def __init__(self, number: int, broker: Endpoint, began_at: int | None) -> None:
        self.began_at = began_at
        self._number = number
        self._broker = broker
        self._requests = _Direction()
        self._responses = _Direction()
        self._last_us = 0

    @property
    def held_bytes(self) -> int:
        """The memory that it takes."""
        return self._requests.held_bytes + self._responses.held_bytes

    def take(self, source: Endpoint, segment: Any, time_us: int) -> Iterator[Entry]:
        """The frames that a segment completes."""
        self._last_us = time_us
        is_answer = source == self._broker
        direction = self._responses if is_answer else self._requests
        if segment.flags & dpkt.tcp.TH_SYN:
            direction.begin(segment.seq)
        was_lost = direction.is_lost
        direction.add(segment.seq, bytes(segment.data))
        kind = Kind.RESPONSE if is_answer else Kind.REQUEST
        for size, frame in direction.frames():
            yield Entry(kind, self._number, time_us, size, frame)
        if direction.is_lost and not was_lost:
            yield self._gap()

    def end(self) -> Iterator[Entry]:
        """Nothing more comes: what waits for bytes will not be known."""
        for direction in (self._requests, self._responses):
            if direction.held_bytes:
                yield self._gap()
        yield Entry(Kind.CLOSED, self._number, self._last_us, 0, b"")

    def _gap(self) -> Entry:
        return Entry(Kind.GAP, self._number, self._last_us, 0, b"")


def _whole(packets: Any) -> Iterator[tuple[float, bytes]]:
    """The packets; a capture that was cut ends with its last whole one."""
    iterator = iter(packets)
    while True:
        try:
            yield next(iterator)
        except (StopIteration, dpkt.Error, ValueError, struct.error):
            return


def _segment_of(
    unpack: Callable[[bytes], Any], data: bytes
) -> tuple[Endpoint, Endpoint, Any] | None:
    """Who sends which TCP segment to whom; None for any other packet, and for what is damaged."""
    try:
        packet = unpack(data)
        while packet is not None and not isinstance(packet, dpkt.ip.IP | dpkt.ip6.IP6):
            packet = packet.data if isinstance(packet, dpkt.Packet) else None
        segment = packet.data if packet is not None else None
    except (dpkt.Error, ValueError, IndexError, struct.error, RecursionError):
        # The last: packets in packets in packets.
        return None
    if packet is None or not isinstance(segment, dpkt.tcp.TCP):
        return None
    return (packet.src, segment.sport), (packet.dst, segment.dport), segment


def _broker_of(source: Endpoint, target: Endpoint, segment: Any, port: int | None) -> Endpoint:
    if port is not None:
        return source if source[1] == port else target
    if segment.flags & dpkt.tcp.TH_SYN:
        return source if segment.flags & dpkt.tcp.TH_ACK else target
    return min(source, target, key=lambda endpoint: endpoint[1])


def _ip(data: bytes) -> Any:
    """A bare packet of either version."""
    return dpkt.ip6.IP6(data) if data[:1] >= b"\x60" else dpkt.ip.IP(data)


# By the link type of the file: Ethernet, loopback of the BSDs, Linux's "any", and bare IP.
_LINKS: Final[dict[int, Callable[[bytes], Any]]] = {
    dpkt.pcap.DLT_EN10MB: dpkt.ethernet.Ethernet,
    **dict.fromkeys((dpkt.pcap.DLT_NULL, 108), lambda data: _ip(data[4:])),
    dpkt.pcap.DLT_LINUX_SLL: dpkt.sll.SLL,
    dpkt.pcap.DLT_LINUX_SLL2: dpkt.sll2.SLL2,
    **dict.fromkeys((12, 14, 101, dpkt.pcap.DLT_IPV4, dpkt.pcap.DLT_IPV6), _ip),
}
