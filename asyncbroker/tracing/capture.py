"""Packet captures: from the packets of tcpdump or Wireshark to requests and responses.

A capture is read packet by packet. Each direction of a TCP connection is put in order again by its
sequence numbers (what comes early waits, within a bound; what comes twice is left out), and cut
into frames. Which side is the broker is told by the first SYN, or else by the port: the one that
was named, or the lower one. Bytes that were not captured cannot be known: such a direction ends
where the hole is, with a gap.

`dpkt` knows the file formats, links and headers; it is imported here only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Final

import dpkt

from asyncbroker.tracing.recording import Entry, Kind

# What waits of one direction for packets that come before it, and how large a frame may be.
EARLY_BYTES_MAX: Final = 4 << 20
FRAME_BYTES_MAX: Final = 8 << 20
# Connections that are followed at the same time; more, and the oldest is left alone.
CONNECTIONS_MAX: Final = 4096

_SEQUENCES: Final = 1 << 32

Endpoint = tuple[bytes, int]


class NotACapture(Exception):
    """A file that cannot be read as a packet capture."""


def entries_of(file: BinaryIO, broker_port: int | None = None) -> Iterator[Entry]:
    """What passed, as the entries of a recording. Raises NotACapture."""
    try:
        packets = dpkt.pcap.UniversalReader(file)
        unpack = _LINKS[packets.datalink()]
    except KeyError as error:
        raise NotACapture(f"packets of the link type {error} are not known") from error
    except (ValueError, OSError, dpkt.Error) as error:
        raise NotACapture(f"this is no packet capture: {error}") from error
    connections: dict[frozenset[Endpoint], _Connection] = {}
    count = 0
    for time, data in _whole(packets):
        found = _segment_of(unpack, data)
        if found is None:
            continue
        source, target, segment = found
        key = frozenset((source, target))
        connection = connections.get(key)
        is_opening = segment.flags & dpkt.tcp.TH_SYN and not segment.flags & dpkt.tcp.TH_ACK
        if connection is None or is_opening:
            count += 1
            broker = _broker_of(source, target, segment, broker_port)
            connection = connections[key] = _Connection(count, broker)
            peer = f"{_address(source if target == broker else target)}"
            yield Entry(Kind.OPENED, count, int(time * 1e6), len(peer), peer.encode())
            if len(connections) > CONNECTIONS_MAX:
                del connections[next(iter(connections))]
        yield from connection.take(source, segment, int(time * 1e6))


class _Direction:
    """The bytes of one side, in order."""

    def __init__(self) -> None:
        self._next: int | None = None
        self._early: dict[int, bytes] = {}
        self._early_bytes = 0
        self._held = bytearray()
        self.is_lost = False

    def begin(self, sequence: int) -> None:
        """The side's SYN: its first byte comes next."""
        self._next = (sequence + 1) % _SEQUENCES

    def add(self, sequence: int, data: bytes) -> None:
        """Takes a segment, in any order; sets `is_lost` where there are too many before a hole."""
        if self.is_lost or not data:
            return
        if self._next is None:
            self._next = sequence
        ahead = (sequence - self._next) % _SEQUENCES
        if 0 < ahead < _SEQUENCES // 2:
            known = self._early.get(sequence, b"")
            if len(data) > len(known):
                self._early[sequence] = data
                self._early_bytes += len(data) - len(known)
            self.is_lost = self._early_bytes > EARLY_BYTES_MAX
            return
        self._append(sequence, data)
        while (found := self._reachable()) is not None:
            data = self._early.pop(found)
            self._early_bytes -= len(data)
            self._append(found, data)

    def frames(self) -> Iterator[tuple[int, bytes]]:
        """The whole frames that are there now, with their sizes; a huge one only with its head."""
        while len(self._held) >= 4 and not self.is_lost:
            size = int.from_bytes(self._held[:4], "big", signed=True)
            if not 0 <= size <= FRAME_BYTES_MAX:
                self.is_lost = True
                return
            if len(self._held) < 4 + size:
                return
            frame = bytes(self._held[4 : 4 + size])
            del self._held[: 4 + size]
            yield size, frame

    def _append(self, sequence: int, data: bytes) -> None:
        assert self._next is not None
        known = (self._next - sequence) % _SEQUENCES
        if known < len(data):
            self._held += data[known:]
            self._next = (sequence + len(data)) % _SEQUENCES

    def _reachable(self) -> int | None:
        assert self._next is not None
        for sequence in self._early:
            if (self._next - sequence) % _SEQUENCES < _SEQUENCES // 2:
                return sequence
        return None


class _Connection:
    """One TCP connection to a broker."""

    def __init__(self, number: int, broker: Endpoint) -> None:
        self._number = number
        self._broker = broker
        self._requests = _Direction()
        self._responses = _Direction()

    def take(self, source: Endpoint, segment: Any, time_us: int) -> Iterator[Entry]:
        """The frames that a segment completes."""
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
            yield Entry(Kind.GAP, self._number, time_us, 0, b"")


def _whole(packets: Any) -> Iterator[tuple[float, bytes]]:
    """The packets; a capture that was cut ends with its last whole one."""
    iterator = iter(packets)
    while True:
        try:
            yield next(iterator)
        except (StopIteration, dpkt.Error, ValueError):
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
    except (dpkt.Error, ValueError, IndexError):
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


def _address(endpoint: Endpoint) -> str:
    host, port = endpoint
    return f"{dpkt.utils.inet_to_str(host)}:{port}"


# By the link type of the file: Ethernet, loopback of the BSDs, bare IP, and Linux's "any".
_LINKS: Final[dict[int, Callable[[bytes], Any]]] = {
    dpkt.pcap.DLT_EN10MB: dpkt.ethernet.Ethernet,
    dpkt.pcap.DLT_NULL: dpkt.loopback.Loopback,
    dpkt.pcap.DLT_LOOP: dpkt.loopback.Loopback,
    dpkt.pcap.DLT_LINUX_SLL: dpkt.sll.SLL,
    dpkt.pcap.DLT_LINUX_SLL2: dpkt.sll2.SLL2,
    dpkt.pcap.DLT_RAW: dpkt.ip.IP,
    101: dpkt.ip.IP,
}
