"""What is shown of an exchange, and of which: text that strangers wrote, choices, secrets."""

from __future__ import annotations

import io
import json

import pytest

from asyncbroker.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from asyncbroker.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from asyncbroker.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from asyncbroker.protocol.messages.delete_groups import DeleteGroupsRequest
from asyncbroker.protocol.messages.describe_groups import DescribeGroupsRequest
from asyncbroker.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from asyncbroker.protocol.messages.find_coordinator import FindCoordinatorRequest
from asyncbroker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from asyncbroker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from asyncbroker.protocol.records import Record, build_batch
from asyncbroker.tests.edge_harness import request_frame
from asyncbroker.tracing.api_names import known_names
from asyncbroker.tracing.choice import BadChoice, Choice, parse_choice
from asyncbroker.tracing.describe import groups_of, parts_of
from asyncbroker.tracing.exchange import Exchange, PartitionPart
from asyncbroker.tracing.lines import json_line, line_printer, plain_line
from asyncbroker.tracing.plain import plain
from asyncbroker.tracing.secrets import WITHHELD, without_secrets
from asyncbroker.tracing.text import printable, size_text

TOPIC_ID = bytes(range(16))
HOSTILE = "a\x1b[31m\r\n\u202eb\ud800[bold]"


def exchange(**fields: object) -> Exchange:
    values: dict[str, object] = {
        "at": 0.5,
        "connection": 1,
        "peer": "127.0.0.1:5",
        "api": "Produce",
        "version": 9,
        "correlation_id": 7,
        "client_id": "c",
        "request_bytes": 100,
        "response_bytes": 2048,
        "milliseconds": 1.25,
        "parts": (PartitionPart("t", 0, None, 12, 214, 3),),
    }
    return Exchange(**{**values, **fields})  # type: ignore[arg-type]


def test_a_line_says_what_was_asked_and_what_came_of_it() -> None:
    line = plain_line(exchange(errors=("X",), faults=("delay 3 ms",), problem="closed"))
    assert line.endswith(
        "Produce v9 #7 c t-0 (3 records, 214 B) = 12  100 B > 2.0 KiB 1.2 ms X "
        "[fault: delay 3 ms] (closed)"
    )
    assert "no answer" in plain_line(exchange(response_bytes=None))


def test_an_error_stands_with_its_partition_and_only_there() -> None:
    part = PartitionPart("t", 0, error="NOT_LEADER_OR_FOLLOWER")
    line = plain_line(exchange(parts=(part,), errors=("NOT_LEADER_OR_FOLLOWER",)))
    assert line.count("NOT_LEADER_OR_FOLLOWER") == 1


def test_nothing_that_a_stranger_wrote_moves_a_terminal() -> None:
    part = PartitionPart(HOSTILE, 0)
    hostile = exchange(client_id=HOSTILE, groups=(HOSTILE,), parts=(part,), problem=HOSTILE)
    line = plain_line(hostile)
    assert line.isprintable()
    assert "[bold]" in line
    assert json_line(hostile).isascii()
    assert "\n" not in json_line(hostile)


def test_colours_leave_brackets_of_strangers_alone() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    line_printer(Choice(), terminal)(exchange(client_id="[bold]x[/]" + HOSTILE))
    written = terminal.getvalue()
    assert "[bold]x[/]" in written
    assert "\x1b[31m\r" not in written
    assert "\\x1b[31m" in written


def test_long_text_is_cut() -> None:
    assert printable("x" * 1000) == "x" * 200 + "... (1000 characters)"
    assert [size_text(size) for size in (0, 1023, 1536, 5 << 30)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "5.0 GiB",
    ]


@pytest.mark.parametrize(
    ("text", "is_wanted"),
    [
        ("", True),
        ("api=fetch,produce topic=t client=c", True),
        ("api=Fetch", False),
        ("topic=u", False),
        ("client=d", False),
        ("group=g", False),
        ("errors", False),
        ("slower-than=1ms", True),
        ("slower-than=0.5s", False),
        ("slower-than=1.25", True),
    ],
)
def test_a_choice_holds_each_exchange_against_all_its_words(text: str, is_wanted: bool) -> None:
    assert parse_choice(text).wants(exchange()) is is_wanted


@pytest.mark.parametrize("text", ["api=Prodce", "x", "slower-than=soon", "topic=", "errors=1"])
def test_a_choice_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(BadChoice):
        parse_choice(text)


def test_records_are_counted_and_shown_up_to_a_bound() -> None:
    batch = build_batch([Record(0, 1000, b"k", b"v" * 1000, [("h", None)])] * 100)
    request = FetchRequest(topics=[FetchTopic("t", partitions=[FetchPartition(3)])])
    response = FetchResponse(
        responses=[FetchableTopicResponse("t", partitions=[PartitionData(3, records=batch)])]
    )
    (part,) = parts_of(request, response, lambda _: None)
    assert (part.topic, part.partition, part.records) == ("t", 3, 100)
    shown = plain(response)["responses"][0]["partitions"][0]["records"][0]
    assert (shown["record_count"], len(shown["records"])) == (100, 20)
    assert shown["records"][0]["value"].endswith("... (1000 bytes)")
    assert len(json.dumps(plain(response))) < 20_000


@pytest.mark.parametrize(
    "request_",
    [
        OffsetCommitRequest(
            topics=[
                OffsetCommitRequestTopic(
                    topic_id=TOPIC_ID, partitions=[OffsetCommitRequestPartition(3, 7)]
                )
            ]
        ),
        OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    "g", topics=[OffsetFetchRequestTopics(topic_id=TOPIC_ID, partition_indexes=[3])]
                )
            ]
        ),
    ],
)
def test_offsets_by_topic_ids_are_told_with_the_names(request_: object) -> None:
    (part,) = parts_of(request_, None, {TOPIC_ID: "t"}.get)
    assert (part.topic, part.partition) == ("t", 3)
    (part,) = parts_of(request_, None, lambda _: None)
    assert part.topic == f"topic id {TOPIC_ID.hex()}"


def test_damaged_records_are_said_to_be_damaged() -> None:
    response = PartitionData(3, records=b"\xff" * 100)
    assert "damaged" in plain(response)["records"][0]


@pytest.mark.parametrize(
    "request_",
    [
        ConsumerGroupDescribeRequest(group_ids=["g"]),
        ConsumerGroupHeartbeatRequest("g", "m", 1),
        DeleteGroupsRequest(groups_names=["g"]),
        DescribeGroupsRequest(groups=["g"]),
        FindCoordinatorRequest(coordinator_keys=["g"]),
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g")]),
    ],
    ids=lambda request: type(request).__name__,
)
def test_groups_are_found_wherever_a_request_names_them(request_: object) -> None:
    assert list(groups_of(request_)) == ["g"]


def test_every_api_has_one_name() -> None:
    assert len(set(known_names())) == len(known_names())


def test_secret_settings_are_neither_shown_nor_kept() -> None:
    request = AlterConfigsRequest(
        [
            AlterConfigsResource(
                4, "1", [AlterableConfig("ssl.key.password", "hunter2"), AlterableConfig("a", "b")]
            )
        ]
    )
    assert "hunter2" not in json.dumps(plain(request))
    frame = request_frame("AlterConfigs", 2, request)[4:]
    kept = without_secrets(33, 2, frame)
    assert kept is not None
    assert b"hunter2" not in kept
    assert WITHHELD.encode() in kept
    assert without_secrets(36, 2, b"anything") is None
