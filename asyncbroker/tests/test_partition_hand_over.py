"""A partition that gets another leader: what the old one refuses, and what the new one has."""

from __future__ import annotations

import asyncio

import pytest

from asyncbroker.log.appended import Appended
from asyncbroker.protocol.errors import ErrorCode, KafkaError
from asyncbroker.tests.test_partition import LARGE, SMALL, Fixture


async def test_the_new_leader_goes_on_with_the_log_in_a_later_epoch() -> None:
    made = Fixture()
    old = made.partition
    first = made.append(SMALL)
    assert isinstance(first, Appended)
    new = await old.hand_over()
    assert (new.name, new.high_watermark) == (old.name, old.high_watermark)
    assert new.leader_epoch == old.leader_epoch + 1
    end_offset = first.last_offset + 1
    assert new.end_offset_for_epoch(old.leader_epoch) == (old.leader_epoch, end_offset)
    with pytest.raises(KafkaError) as refused:
        old.check_readable()
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(KafkaError) as fenced:
        new.check_leader_epoch(old.leader_epoch)
    assert fenced.value.code is ErrorCode.FENCED_LEADER_EPOCH
    second = made.append(SMALL, new)
    assert isinstance(second, Appended)
    assert second.base_offset == end_offset


async def test_what_was_handed_to_a_thread_is_appended_first() -> None:
    made = Fixture()
    appending = made.append(LARGE)
    assert isinstance(appending, asyncio.Future)
    handing_over = asyncio.create_task(made.partition.hand_over())
    await asyncio.sleep(0)
    assert not handing_over.done()
    await made.workers.step()
    appended = await appending
    new = await handing_over
    assert new.high_watermark == appended.last_offset + 1
