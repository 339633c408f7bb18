"""Wall time that does not jump, at its edges."""

from __future__ import annotations

from asyncbroker.trusted_time import DOUBT_SECONDS, JUMP_MS, STOP_MS_MAX, TrustedTime

DAY_MS = 86_400_000
NOW_MS = 1_700_000_000_000


def test_a_clock_that_moves_evenly_or_is_adjusted_is_believed() -> None:
    time = TrustedTime(0.0, NOW_MS)
    assert time.now_ms(300.0, NOW_MS + 300_000) == NOW_MS + 300_000
    assert time.now_ms(600.0, NOW_MS + 600_000 + JUMP_MS) == NOW_MS + 600_000 + JUMP_MS


def test_a_clock_that_goes_back_is_believed_at_once() -> None:
    time = TrustedTime(0.0, NOW_MS)
    assert time.now_ms(1.0, NOW_MS - DAY_MS) == NOW_MS - DAY_MS
    assert time.now_ms(2.0, NOW_MS - DAY_MS + 1000) == NOW_MS - DAY_MS + 1000


def test_a_jump_is_believed_when_it_has_stood() -> None:
    time = TrustedTime(0.0, NOW_MS)
    ahead = NOW_MS + DAY_MS
    assert time.now_ms(1.0, ahead + 1000) == NOW_MS + 1000
    late = 1.0 + DOUBT_SECONDS
    assert time.now_ms(late - 1, ahead + int(late - 1) * 1000) < ahead
    assert time.now_ms(late, ahead + int(late) * 1000) > ahead


def test_another_jump_begins_the_wait_anew() -> None:
    time = TrustedTime(0.0, NOW_MS)
    time.now_ms(1.0, NOW_MS + DAY_MS)
    hour, ahead = int(DOUBT_SECONDS) * 1000, NOW_MS + 3 * DAY_MS
    time.now_ms(DOUBT_SECONDS, ahead + hour)
    assert time.now_ms(DOUBT_SECONDS + 2, ahead + hour) < NOW_MS + DAY_MS
    assert time.now_ms(2 * DOUBT_SECONDS, ahead + 2 * hour) == ahead + 2 * hour


def test_a_long_stop_is_a_jump_and_a_short_one_is_none() -> None:
    short = TrustedTime(0.0, NOW_MS, NOW_MS - STOP_MS_MAX)
    assert short.now_ms(0.0, NOW_MS) == NOW_MS
    long = TrustedTime(0.0, NOW_MS, NOW_MS - STOP_MS_MAX - 1)
    assert long.now_ms(0.0, NOW_MS) == NOW_MS - STOP_MS_MAX - 1
    assert long.now_ms(DOUBT_SECONDS, NOW_MS + int(DOUBT_SECONDS) * 1000) > NOW_MS
