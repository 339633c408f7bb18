"""Packet captures: packets in any order, twice or missing, other traffic, cut and damaged files."""

from __future__ import annotations

import io
import random
import socket
from collections.abc import Iterable, Sequence
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
        assert len(list(entries_of(io.BytesIO(whole[:end])))) <= len(EXPECTED)
    chance = random.Random(3)
    for _ in range(500):
        damaged = bytearray(whole)
        damaged[chance.randrange(24, len(whole))] ^= 1 << chance.randrange(8)
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
