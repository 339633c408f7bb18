"""Fetch sessions (KIP-227): what they remember, and the order in which they read."""

from __future__ import annotations

import random

import pytest

from asyncbroker.clock import ManualClock
from asyncbroker.fetch_sessions import (
    EPOCH_MAX,
    EVICTION_AGE_SECONDS,
    FetchContext,
    FetchSessions,
    next_epoch,
)
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

NAMES_VERSION = 12
IDS_VERSION = 13
TOPIC_ID = bytes(range(16))


def sessions_on(clock: ManualClock, slots_max: int = 10) -> FetchSessions:
    return FetchSessions(clock, slots_max=slots_max, random_below=random.Random(20).randrange)


def request(
    *partitions: int,
    session_id: int = 0,
    epoch: int = 0,
    topic: str = "flights",
    topic_id: bytes = bytes(16),
    offset: int = 0,
    forget: tuple[ForgottenTopic, ...] = (),
) -> FetchRequest:
    wanted = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1000)
        for index in partitions
    ]
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic, topic_id, wanted)] if wanted else [],
        forgotten_topics_data=list(forget),
    )


def answer(
    index: int, *, high_watermark: int = 0, records: bytes = b"", error_code: int = 0
) -> PartitionData:
    return PartitionData(
        partition_index=index,
        high_watermark=high_watermark,
        log_start_offset=0,
        records=records,
        error_code=error_code,
    )


def indexes(context: FetchContext) -> list[int]:
    return [fetched.wanted.partition for fetched in context.partitions]


def selected(context: FetchContext, *answers: PartitionData) -> list[int]:
    return [data.partition_index for _, data in context.select(list(answers))]


def opened(sessions: FetchSessions, *partitions: int) -> int:
    context = sessions.open(request(*partitions), NAMES_VERSION)
    context.select([answer(index) for index in partitions])
    return context.session_id


def error_of(sessions: FetchSessions, wanted: FetchRequest, version: int) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        sessions.open(wanted, version)
    return raised.value.code


def test_epoch_0_opens_a_session_with_a_full_answer() -> None:
    sessions = sessions_on(ManualClock())
    context = sessions.open(request(0, 1), NAMES_VERSION)
    assert context.session_id > 0
    assert selected(context, answer(0), answer(1)) == [0, 1]
    assert len(sessions) == 1


def test_epoch_minus_1_reads_without_a_session_and_ends_the_one_named() -> None:
    sessions = sessions_on(ManualClock())
    id = opened(sessions, 0)
    context = sessions.open(request(0, session_id=id, epoch=-1), NAMES_VERSION)
    assert context.session_id == 0
    assert selected(context, answer(0)) == [0]
    assert len(sessions) == 0


def test_a_full_request_that_names_a_session_replaces_it() -> None:
    sessions = sessions_on(ManualClock())
    id = opened(sessions, 0)
    context = sessions.open(request(1, session_id=id, epoch=0), NAMES_VERSION)
    assert context.session_id not in (0, id)
    assert indexes(context) == [1]
    assert len(sessions) == 1


def test_an_incremental_request_without_partitions_reads_all_of_the_session() -> None:
    sessions = sessions_on(ManualClock())
    id = opened(sessions, 0, 1)
    context = sessions.open(request(session_id=id, epoch=1), NAMES_VERSION)
    assert indexes(context) == [0, 1]
    assert context.session_id == id


def test_an_incremental_request_adds_changes_and_forgets_partitions() -> None:
    sessions = sessions_on(ManualClock())
    id = opened(sessions, 0, 1)
    forget = ForgottenTopic(topic="flights", partitions=[0])
    context = sessions.open(
        request(1, 2, session_id=id, epoch=1, offset=70, forget=(forget,)), NAMES_VERSION
    )
    assert indexes(context) == [1, 2]
    assert [fetched.wanted.fetch_offset for fetched in context.partitions] == [70, 70]


def test_forgetting_what_is_unknown_or_a_topic_id_of_zeros_changes_nothing() -> None:
    """franz-go sends zero ids, on which Kafka once failed."""
    sessions = sessions_on(ManualClock())
    context = sessions.open(request(0, topic_id=TOPIC_ID), IDS_VERSION)
    context.select([answer(0)])
    forget = (
        ForgottenTopic(topic_id=bytes(16), partitions=[0]),
        ForgottenTopic(topic_id=TOPIC_ID, partitions=[9]),
    )
    later = sessions.open(
        request(session_id=context.session_id, epoch=1, forget=forget), IDS_VERSION
    )
    assert indexes(later) == [0]


def test_a_session_that_has_forgotten_everything_ends() -> None:
    sessions = sessions_on(ManualClock())
    id = opened(sessions, 0)
    forget = ForgottenTopic(topic="flights", partitions=[0])
    context = sessions.open(request(session_id=id, epoch=1, forget=(forget,)), NAMES_VERSION)
    assert (context.session_id, indexes(context), len(sessions)) == (0, [], 0)


def test_errors_of_an_unknown_session_and_of_a_wrong_epoch_and_of_ids_for_names() -> None:
    sessions = sessions_on(ManualClock())
    id = opened(sessions, 0)
    unknown = request(session_id=id + 1, epoch=1)
    assert error_of(sessions, unknown, NAMES_VERSION) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    early = request(session_id=id, epoch=2)
    assert error_of(sessions, early, NAMES_VERSION) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    mixed = request(session_id=id, epoch=1)
    assert error_of(sessions, mixed, IDS_VERSION) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert sessions.open(request(session_id=id, epoch=1), NAMES_VERSION).session_id == id


def test_the_epoch_grows_with_each_request_and_a_repeated_one_is_refused() -> None:
    sessions = sessions_on(ManualClock())
    id = opened(sessions, 0)
    for epoch in (1, 2, 3):
        sessions.open(request(session_id=id, epoch=epoch), NAMES_VERSION)
    again = request(session_id=id, epoch=3)
    assert error_of(sessions, again, NAMES_VERSION) is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_the_epoch_wraps_past_0_which_would_open_a_new_session() -> None:
    assert next_epoch(EPOCH_MAX) == 1


def test_an_incremental_answer_has_only_partitions_with_news() -> None:
    """Data, an error, or a changed high watermark or log start."""
    sessions = sessions_on(ManualClock())
    id = opened(sessions, 0, 1, 2, 3)
    context = sessions.open(request(session_id=id, epoch=1), NAMES_VERSION)
    news = selected(
        context,
        answer(0),
        answer(1, high_watermark=5),
        answer(2, records=b"batch"),
        answer(3, error_code=int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)),
    )
    assert news == [1, 2, 3]


def test_a_partition_is_news_again_when_its_error_is_over() -> None:
    sessions = sessions_on(ManualClock())
    id = opened(sessions, 0)
    failed = answer(0, high_watermark=-1, error_code=int(ErrorCode.KAFKA_STORAGE_ERROR))
    for epoch in (1, 2):
        context = sessions.open(request(session_id=id, epoch=epoch), NAMES_VERSION)
        assert selected(context, failed) == [0]
    context = sessions.open(request(session_id=id, epoch=3), NAMES_VERSION)
    assert selected(context, answer(0)) == [0]
    context = sessions.open(request(session_id=id, epoch=4), NAMES_VERSION)
    assert selected(context, answer(0)) == []


def test_partitions_that_gave_records_are_read_last_next_time() -> None:
    """Under a limit on bytes the tail of a session would starve."""
    sessions = sessions_on(ManualClock())
    id = opened(sessions, 0, 1, 2)
    context = sessions.open(request(session_id=id, epoch=1), NAMES_VERSION)
    context.select([answer(0, records=b"batch"), answer(1), answer(2)])
    later = sessions.open(request(session_id=id, epoch=2), NAMES_VERSION)
    assert indexes(later) == [1, 2, 0]


def test_an_answer_to_a_request_that_was_overtaken_is_an_error() -> None:
    sessions = sessions_on(ManualClock())
    id = opened(sessions, 0)
    slow = sessions.open(request(session_id=id, epoch=1), NAMES_VERSION)
    sessions.open(request(session_id=id, epoch=2), NAMES_VERSION)
    with pytest.raises(KafkaError) as raised:
        slow.select([answer(0)])
    assert raised.value.code is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_a_full_cache_opens_no_session_until_one_is_unused_for_two_minutes() -> None:
    """1000 slots, evict what is idle for more than 120 s."""
    clock = ManualClock()
    sessions = sessions_on(clock, slots_max=2)
    first, second = opened(sessions, 0), opened(sessions, 0)
    assert opened(sessions, 0) == 0
    clock.advance(EVICTION_AGE_SECONDS)
    sessions.open(request(session_id=first, epoch=1), NAMES_VERSION)
    assert opened(sessions, 0) == 0
    clock.advance(1)
    assert opened(sessions, 0) not in (0, first, second)
    gone = request(session_id=second, epoch=1)
    assert error_of(sessions, gone, NAMES_VERSION) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.open(request(session_id=first, epoch=2), NAMES_VERSION).session_id == first


def test_a_larger_session_takes_the_place_of_a_smaller_one_that_is_old_enough() -> None:
    clock = ManualClock()
    sessions = sessions_on(clock, slots_max=1)
    small = opened(sessions, 0)
    clock.advance(EVICTION_AGE_SECONDS + 1)
    sessions.open(request(session_id=small, epoch=1), NAMES_VERSION)
    assert opened(sessions, 0) == 0
    assert opened(sessions, 0, 1) != 0


def test_no_session_is_opened_beyond_the_partitions_that_all_may_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("asyncbroker.fetch_sessions.PARTITIONS_MAX", 4)
    clock = ManualClock()
    sessions = sessions_on(clock)
    assert opened(sessions, *range(5)) == 0
    three = opened(sessions, 0, 1, 2)
    assert opened(sessions, 0, 1) == 0
    one = opened(sessions, 0)
    assert 0 not in (three, one)
    sessions.open(request(session_id=three, epoch=-1), NAMES_VERSION)
    assert opened(sessions, 0, 1, 2) != 0
    clock.advance(EVICTION_AGE_SECONDS + 1)
    assert opened(sessions, 0) != 0


def test_a_session_that_outgrows_the_partitions_that_all_may_have_ends_with_its_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("asyncbroker.fetch_sessions.PARTITIONS_MAX", 3)
    sessions = sessions_on(ManualClock())
    id = opened(sessions, 0, 1)
    assert sessions.open(request(2, session_id=id, epoch=1), NAMES_VERSION).session_id == id
    context = sessions.open(request(3, session_id=id, epoch=2), NAMES_VERSION)
    assert (context.session_id, indexes(context)) == (0, [0, 1, 2, 3])
    assert len(sessions) == 0
    assert opened(sessions, 0, 1, 2) != 0


def test_without_slots_there_are_no_sessions() -> None:
    sessions = sessions_on(ManualClock(), slots_max=0)
    assert opened(sessions, 0) == 0
