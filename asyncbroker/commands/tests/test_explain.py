"""`asyncbroker explain`: the same request in every form in which people keep bytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from asyncbroker.__main__ import cli
from asyncbroker.protocol.messages.heartbeat import HeartbeatRequest
from asyncbroker.tests.edge_harness import request_frame
from asyncbroker.tracing.captured import bytes_of
from asyncbroker.tracing.recording import RecordingWriter

FRAME = request_frame("Heartbeat", 4, HeartbeatRequest("billing", 7, "a-member"), 12)
DIGITS = FRAME.hex()


def explain(data: bytes | Path, *options: str) -> Result:
    if isinstance(data, Path):
        return CliRunner().invoke(cli, ["explain", str(data), *options])
    return CliRunner().invoke(cli, ["explain", "-", *options], input=data)


def dump(*, between: str, group: int, text: str) -> str:
    """A dump of 16 bytes a line."""
    lines = []
    for start in range(0, len(FRAME), 16):
        row = FRAME[start : start + 16].hex()
        words = " ".join(row[at : at + group] for at in range(0, len(row), group))
        lines.append(f"{start:08x}{between}{words:<50}{text}")
    return "\n".join(lines)


@pytest.mark.parametrize(
    "data",
    [
        FRAME,
        FRAME[4:],
        DIGITS.encode(),
        DIGITS.upper().encode() + b"\n",
        " ".join(DIGITS[at : at + 2] for at in range(0, len(DIGITS), 2)).encode(),
        "".join(f"\\x{byte:02x}" for byte in FRAME).encode(),
        dump(between=": ", group=4, text=" ....billing be ef").encode(),
        (dump(between="  ", group=2, text=" |..be ef..|") + f"\n{len(FRAME):08x}\n").encode(),
    ],
    ids=["stream", "frame", "hex", "upper", "spaced", "escapes", "xxd", "hexdump"],
)
def test_a_request_is_decoded_from_any_form(data: bytes) -> None:
    result = explain(data, "--json")
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)
    assert (shown["api"], shown["correlation_id"]) == ("Heartbeat v4", 12)
    assert (shown["request"]["group_id"], shown["request"]["generation_id"]) == ("billing", 7)


def test_responses_need_to_be_told_what_they_answer() -> None:
    frame = b"\0\0\0\x0c\0\0\0\0\0\0\x1b\0"
    shown = json.loads(explain(frame, "--response-to", "heartbeat:4", "--json").stdout)
    assert (shown["correlation_id"], shown["response"]["error_code"]) == (12, 27)
    assert explain(frame, "--response-to", "Heartbeat:99").exit_code == 2


def test_an_unfinished_frame_and_nonsense_are_said() -> None:
    result = explain(FRAME + FRAME[:10], "--json")
    assert "10 bytes of an unfinished frame" in result.output
    assert "problem" in explain(b"\xff" * 20, "--json").stdout
    assert explain(b"").exit_code == 1


def test_more_than_is_looked_at_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncbroker.commands.explain.FILE_BYTES_MAX", len(FRAME))
    assert "only the first" in explain(FRAME * 2).output
    assert "only the first" not in explain(FRAME).output


def test_a_recording_is_shown_as_it_would_have_been_traced(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "r")
    writer.request(1, "peer:1", FRAME[4:])
    writer.response(1, 12, (bytes(4), b"\0\0\0\x0c\0\0\0\0\0\0\x1b\0"))
    writer.request(1, "peer:1", FRAME[4:])
    writer.close()
    answered, unanswered = explain(tmp_path / "r", "--brief").stdout.splitlines()
    assert "Heartbeat v4 #12" in answered
    assert answered.endswith("REBALANCE_IN_PROGRESS")
    assert "no answer" in unanswered
    assert json.loads(explain(tmp_path / "r", "--json").stdout.splitlines()[0])["request"]
    whole = (tmp_path / "r").read_bytes()
    (tmp_path / "r").write_bytes(whole[:-3])
    assert "are torn" in explain(tmp_path / "r").output
    for end in range(1, 12):
        (tmp_path / "r").write_bytes(whole[:end])
        cut = explain(tmp_path / "r")
        assert (cut.exit_code, "ends within its head" in cut.output) == (1, True)


def test_an_answer_goes_to_its_request_whatever_is_missing(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "r")
    answer = "{:08x} 00 00000000 {:04x} 00"

    def answered(correlation_id: int, code: int) -> None:
        frame = bytes.fromhex(answer.format(correlation_id, code))
        writer.response(1, 12, (bytes(4), frame))

    answered(1, 27)
    for correlation_id in (2, 3):
        request = HeartbeatRequest("billing", 7, "a-member")
        writer.request(1, "peer:1", request_frame("Heartbeat", 4, request, correlation_id)[4:])
    answered(1, 27)
    answered(3, 22)
    writer.closed(1)
    writer.close()
    second, third = explain(tmp_path / "r", "--brief").stdout.splitlines()
    assert "#2 " in second
    assert "no answer" in second
    assert "#3 " in third
    assert third.endswith("ILLEGAL_GENERATION")


def test_bytes_that_are_no_text_stay_what_they_are() -> None:
    for data in (b"", b"\xff\xfe", b"hello", b"abc"):
        assert bytes_of(data) == data
