"""Packet captures: packets in any order, twice or missing, other traffic, cut and damaged files."""

from __future__ import annotations

import io
import random
import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import dpkt
import pytest
from click.testing import CliRunner

from asyncbroker.__main__ import cli
from asyncbroker.protocol.messages.heartbeat import HeartbeatRequest
from asyncbroker.tests.edge_harness import request_frame
from asyncbroker.tracing.capture import NotACapture, entries_of
from asyncbroker.tracing.recording import Entry, Kind

CLIENT, BROKER = ("10.0.0.7", 50_000), ("10.0.0.1", 9092)
FRAMES = [request_frame("Heartbeat", 4, HeartbeatRequest("g", n, "m"), n) for n in range(1, 4)]
ANSWERS = [
    bytes.fromhex(f"0000000c {n:08x} 00 00000000 0019 00".replace(" ", "")) for n in range(1, 4)
]
SYN, ACK = dpkt.tcp.TH_SYN, dpkt.tcp.TH_ACK

Address = tuple[str, int]


def packet(source: Address, target: Address, seq: int, data: bytes, flags: int = ACK) -> bytes:
    """An Ethernet frame with a TCP segment."""
    segment = dpkt.tcp.TCP(
        sport=source[1], dport=target[1], seq=seq % 2**32, flags=flags, data=data
    )
    inner = dpkt.ip.IP(
        src=socket.inet_aton(source[0]), dst=socket.inet_aton(target[0]), p=6, data=segment
    )
    inner.len = len(inner)
    return bytes(dpkt.ethernet.Ethernet(data=inner, type=dpkt.ethernet.ETH_TYPE_IP))


def capture(packets: Iterable[bytes]) -> io.BytesIO:
    file = io.BytesIO()
    writer = dpkt.pcap.Writer(file)
    for number, each in enumerate(packets):
        writer.writepkt(each, ts=1_700_000_000 + number / 1000)
    file.seek(0)
    return file


def cut(data: bytes, sizes: Sequence[int], start: int) -> list[tuple[int, bytes]]:
    """Pieces of a stream, each with its sequence number."""
    pieces = []
    at = 0
    for size in [*sizes, len(data)]:
        if data[at : at + size]:
            pieces.append((start + at, data[at : at + size]))
        at += size
    return pieces


def kinds(entries: Iterable[Entry]) -> list[tuple[Kind, bytes]]:
    return [(entry.kind, entry.data) for entry in entries]


def conversation(start: int = 1000, *, opened: bool = True) -> list[bytes]:
    """A connection with three requests and their answers, cut anywhere."""
    packets = []
    if opened:
        packets += [packet(CLIENT, BROKER, start - 1, b"", SYN)]
        packets += [packet(BROKER, CLIENT, start - 1, b"", SYN | ACK)]
    for seq, piece in cut(b"".join(FRAMES), [3, 30, 1], start):
        packets.append(packet(CLIENT, BROKER, seq, piece))
    for seq, piece in cut(b"".join(ANSWERS), [5, 20], start):
        packets.append(packet(BROKER, CLIENT, seq, piece))
    return packets


EXPECTED = [
    (Kind.OPENED, b"10.0.0.7:50000"),
    *((Kind.REQUEST, frame[4:]) for frame in FRAMES),
    *((Kind.RESPONSE, answer[4:]) for answer in ANSWERS),
    (Kind.CLOSED, b""),
]


@pytest.mark.parametrize("start", [1000, 2**32 - 20], ids=["usual", "around zero"])
def test_a_conversation_is_put_together(start: int) -> None:
    assert kinds(entries_of(capture(conversation(start)))) == EXPECTED


def test_packets_come_in_any_order_and_twice() -> None:
    first, second, *rest = conversation()
    for seed in range(30):
        chance = random.Random(seed)
        mixed = [*rest, *chance.choices(rest, k=3)]
        chance.shuffle(mixed)
        found = kinds(entries_of(capture([first, second, *mixed])))
        assert sorted(found) == sorted(EXPECTED)


def test_without_its_beginning_the_lower_port_is_the_broker_or_the_named_one() -> None:
    packets = conversation(opened=False)
    assert kinds(entries_of(capture(packets))) == EXPECTED
    turned = kinds(entries_of(capture(packets), broker_port=CLIENT[1]))
    assert {kind for kind, data in turned if data == FRAMES[0][4:]} == {Kind.RESPONSE}


def test_a_hole_ends_its_direction_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncbroker.tracing.capture.EARLY_BYTES_MAX", 20)
    packets = conversation()
    del packets[3]
    found = kinds(entries_of(capture(packets)))
    assert (Kind.GAP, b"") in found
    assert [data for kind, data in found if kind is Kind.RESPONSE] == [a[4:] for a in ANSWERS]
    assert not [data for kind, data in found if kind is Kind.REQUEST]


def test_other_traffic_and_cut_or_damaged_files_are_borne() -> None:
    noise = [b"", bytes(14), b"\xff" * 60, bytes(dpkt.ethernet.Ethernet(data=b"arp", type=0x806))]
    whole = capture([*noise, *conversation(), *noise]).getvalue()
    assert kinds(entries_of(io.BytesIO(whole))) == EXPECTED
    for end in range(24, len(whole), 7):
        found = kinds(entries_of(io.BytesIO(whole[:end])))
        assert all(each in EXPECTED for each in found if each[0] is not Kind.GAP)
    chance = random.Random(3)
    for _ in range(500):
        damaged = bytearray(whole)
        damaged[chance.randrange(24, len(whole))] ^= 1 << chance.randrange(8)
        list(entries_of(io.BytesIO(bytes(damaged))))


def test_a_hole_that_the_capture_ends_after_is_said_too() -> None:
    packets = conversation()
    del packets[3]
    found = kinds(entries_of(capture(packets)))
    assert found.count((Kind.GAP, b"")) == 1
    assert found[-1] == (Kind.CLOSED, b"")


def test_very_many_small_packets_in_the_wrong_order_take_no_time() -> None:
    data = FRAMES[0] * 200
    pieces = [packet(CLIENT, BROKER, 1000 + at, data[at : at + 1]) for at in range(len(data))]
    opening = packet(CLIENT, BROKER, 999, b"", SYN)
    found = kinds(entries_of(capture([opening, *reversed(pieces)])))
    assert found[1:-1] == [(Kind.REQUEST, FRAMES[0][4:])] * 200


def test_what_is_held_has_a_bound_over_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncbroker.tracing.capture.HELD_BYTES_MAX", 1000)
    beginning = (1 << 20).to_bytes(4, "big") + bytes(396)
    packets = [packet(("10.0.0.7", port), BROKER, 1, beginning) for port in range(5000, 5005)]
    found = [(entry.kind, entry.connection) for entry in entries_of(capture(packets))]
    third = found.index((Kind.OPENED, 3))
    assert found[third + 1 : third + 3] == [(Kind.GAP, 1), (Kind.CLOSED, 1)]
    assert sum(kind is Kind.CLOSED for kind, _ in found) == 5


def test_the_same_packets_twice_are_one_connection_and_the_same_ports_again_another() -> None:
    twice = [each for each in conversation() for _ in range(2)]
    assert kinds(entries_of(capture(twice))) == EXPECTED
    again = [*conversation(), *conversation(start=77_000)]
    assert kinds(entries_of(capture(again))) == EXPECTED * 2


def test_with_a_port_what_passes_elsewhere_is_left_out() -> None:
    other = packet(CLIENT, ("10.0.0.1", 80), 1, b"GET / HTTP/1.1")
    found = kinds(entries_of(capture([other, *conversation()]), broker_port=BROKER[1]))
    assert found == EXPECTED


def ip6(source: Address, target: Address, seq: int, data: bytes, flags: int = ACK) -> bytes:
    segment = dpkt.tcp.TCP(sport=source[1], dport=target[1], seq=seq, flags=flags, data=data)
    inner = dpkt.ip6.IP6(nxt=6, hlim=64, data=segment, plen=len(segment))
    inner.src, inner.dst = (
        socket.inet_pton(socket.AF_INET6, f"::{address.rpartition('.')[2]}")
        for address, _ in (source, target)
    )
    return bytes(inner)


ETHERNET = b"\xaa" * 12
FORMS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "vlan": (1, lambda ip: ETHERNET + b"\x81\0\0\5\x86\xdd" + ip),
    "padded": (1, lambda ip: ETHERNET + b"\x86\xdd" + ip + bytes(6)),
    "loopback of macOS": (0, lambda ip: b"\x1e\0\0\0" + ip),
    "loopback of OpenBSD": (108, lambda ip: b"\0\0\0\x18" + ip),
    "bare": (101, lambda ip: ip),
    "bare IPv6": (229, lambda ip: ip),
    "any": (113, lambda ip: b"\0\0\0\1\0\6" + bytes(8) + b"\x86\xdd" + ip),
    "any, newer": (276, lambda ip: b"\x86\xdd" + bytes(18) + ip),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["pcap", "nanoseconds", "pcapng"])
def test_ipv6_in_every_form(form: str, kind: str) -> None:
    link, wrap = FORMS[form]
    packets = [
        wrap(ip6(CLIENT, BROKER, 999, b"", SYN)),
        wrap(ip6(CLIENT, BROKER, 1000, FRAMES[0])),
        wrap(ip6(BROKER, CLIENT, 1000, ANSWERS[0])),
    ]
    file = io.BytesIO()
    if kind == "pcapng":
        block = dpkt.pcapng.InterfaceDescriptionBlockLE(linktype=link)
        writer = dpkt.pcapng.Writer(file, idb=block)
    else:
        writer = dpkt.pcap.Writer(file, linktype=link, nano=kind == "nanoseconds")
    for each in packets:
        writer.writepkt(each, ts=1_700_000_000)
    file.seek(0)
    found = list(entries_of(file))
    assert kinds(found) == [
        (Kind.OPENED, b"[::7]:50000"),
        (Kind.REQUEST, FRAMES[0][4:]),
        (Kind.RESPONSE, ANSWERS[0][4:]),
        (Kind.CLOSED, b""),
    ]
    assert found[0].time_us == 1_700_000_000_000_000


def test_a_damaged_pcapng_is_borne() -> None:
    file = io.BytesIO()
    writer = dpkt.pcapng.Writer(file)
    for each in conversation():
        writer.writepkt(each, ts=1_700_000_000)
    whole = file.getvalue()
    chance = random.Random(5)
    for _ in range(500):
        damaged = bytearray(whole)
        damaged[chance.randrange(4, len(whole))] ^= 1 << chance.randrange(8)
        with suppress(NotACapture):
            list(entries_of(io.BytesIO(bytes(damaged))))


def test_what_is_no_capture_is_refused() -> None:
    with pytest.raises(NotACapture):
        list(entries_of(io.BytesIO(b"\xd4\xc3\xb2\xa1" + bytes(4))))


def test_the_command_tells_requests_with_their_answers(tmp_path: Path) -> None:
    path = tmp_path / "file.pcap"
    path.write_bytes(capture(conversation()).getvalue())
    for data in (None, path.read_bytes()):
        source = "-" if data else str(path)
        result = CliRunner().invoke(cli, ["explain", source, "--brief"], input=data)
        assert result.exit_code == 0, result.output
        lines = result.output.splitlines()
        assert len(lines) == 3
        assert all("Heartbeat" in line and "UNKNOWN_MEMBER_ID" in line for line in lines)
