"""Starts a broker on what a loss of power may have left, and holds it against what was promised."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from asyncbroker.broker import Broker
from asyncbroker.clock import SystemClock
from asyncbroker.config import BrokerConfig
from asyncbroker.listeners import parse_listeners
from asyncbroker.log.errors import DirectoryRefused
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.metadata import MetadataRequest
from asyncbroker.runner import make_server, stop_in_order
from asyncbroker.tests.history.checker import check
from asyncbroker.tests.history.history import (
    End,
    Ended,
    FinalRead,
    History,
    Operation,
    Outcome,
    Poll,
    Removal,
    Seen,
    Send,
)
from asyncbroker.tests.simulation.client import Client, Shared, place_of
from asyncbroker.tests.simulation.consumers import committed
from asyncbroker.tests.simulation.fetching import fetch, offset_at
from asyncbroker.tests.simulation.link import Lost
from asyncbroker.tests.simulation.producers import Batch
from asyncbroker.workers import ThreadWorkers
from compat_tests.chaos.power_clients import NextMember, SizedProducer, shared_by_all
from compat_tests.chaos.power_load import Load

CHECK_SECONDS_MAX: Final = 60.0
STOP_SECONDS_MAX: Final = 20.0
EMPTY_ANSWERS_MAX: Final = 20
IN_FLIGHT_MAX: Final = 5
PROBLEMS_TOLD_MAX: Final = 20


def history_at(history: History, moment: float) -> History:
    """What everybody knew at a moment, at which the power goes."""
    known: list[Operation] = []
    for each in history.operations:
        if isinstance(each, Ended):
            if each.time <= moment:
                known.append(each)
        elif each.started <= moment:
            is_undecided = each.ended == float("inf") and getattr(each, "error", "") == ""
            if each.ended <= moment or (
                is_undecided and isinstance(each, Send) and not each.is_idempotent
            ):
                known.append(each)
            elif isinstance(each, Send):
                # Whatever it became later, at the time nobody knew.
                known.append(_undecided(each, offset=-1))
            elif hasattr(each, "outcome"):
                known.append(_undecided(each))
    known.append(Ended(End.POWER, moment))
    return History(known, compacted=history.compacted, expiring=history.expiring)


def _undecided(operation: Any, **changes: Any) -> Any:
    if hasattr(operation, "error"):
        changes["error"] = ""
    return dataclasses.replace(operation, outcome=Outcome.INFO, ended=float("inf"), **changes)


def answered_before(history: History, moment: float) -> int:
    """How many operations had an answer by a moment."""
    return sum(getattr(each, "ended", moment + 1) <= moment for each in history.operations)


def tell(counts: Counter[str], problems: list[str]) -> None:
    """Prints what was done, and the first problems that were found."""
    for what, count in sorted(counts.items()):
        print(f"{count:10}  {what}")
    for problem in problems[:PROBLEMS_TOLD_MAX]:
        print(problem)


def look(directory: Path, load: Load, moment: float) -> list[str]:
    """What is wrong with a broker on a directory, as the power left it at a moment."""
    return asyncio.run(_look(directory, load, moment))


async def _look(directory: Path, load: Load, moment: float) -> list[str]:
    loop = asyncio.get_running_loop()
    failures: list[str] = []
    loop.set_exception_handler(lambda _, context: failures.append(str(context)))
    config = dataclasses.replace(
        BrokerConfig.from_settings(load.settings),
        data_directory=str(directory),
        listeners=parse_listeners({"listeners": "PLAINTEXT://127.0.0.1:0"}),
    )
    workers = ThreadWorkers(loop, config.worker_threads)
    broker = Broker(config, SystemClock(loop), workers)
    try:
        await asyncio.wait_for(broker.start(), CHECK_SECONDS_MAX)
    except (DirectoryRefused, OSError) as error:
        return [f"the start is refused: {error}"]
    server = make_server(broker)
    address = server.bind()[0]
    server.start()
    shared = shared_by_all(load.seed, history_at(load.history, moment))
    network: Any = shared.network
    network.port = address.port
    problems: list[str] = []
    try:
        await asyncio.wait_for(_examine(shared, load, moment, problems), CHECK_SECONDS_MAX)
    except asyncio.TimeoutError:
        problems.append("the broker does not answer in time")
    except Lost:
        problems.append("the broker was asked for something that it did not answer")
    problems += map(str, check(shared.history))
    await network.close()
    status = await stop_in_order(broker, [server], STOP_SECONDS_MAX)
    if status:
        problems.append(f"it cannot be stopped in order: {status}")
    if broker.metrics.internal_errors:
        problems.append(f"{broker.metrics.internal_errors} internal errors")
    return [*shared.complaints, *problems, *failures]


async def _examine(shared: Shared, load: Load, moment: float, problems: list[str]) -> None:
    """Asks for everything, and has all that was under way sent again."""
    examiner = Examiner(shared, "examiner")
    there = await examiner.topics()
    wanted = {
        name: count
        for name, count in load.topics.items()
        if name in there or any(_is_known(each, name) for each in shared.history.operations)
    }
    for name in wanted:
        if name not in there:
            problems.append(f"topic {name} is gone")
            return
        shared.topic_ids[name], shared.topics[name] = there[name]
    for producer in load.producers:
        if producer.is_idempotent:
            await examiner.send_again(producer, moment, problems)
    for name, count in shared.topics.items():
        for index in range(count):
            await examiner.read(name, index, place_of(name, index))
    for group in load.groups:
        await examiner.offsets(group)
    for member in load.members:
        await examiner.beat(member, moment, problems)
    await _examine_lives(examiner, load, moment, there, problems)
    examiner.disconnect()


def _is_known(operation: Operation, topic: str) -> bool:
    """Whether something was answered that a topic has to be there for."""
    return (
        isinstance(operation, Send)
        and operation.place.startswith(f"{topic}-")
        and operation.outcome is Outcome.OK
    )


async def _examine_lives(
    examiner: Examiner,
    load: Load,
    moment: float,
    there: dict[str, tuple[bytes, int]],
    problems: list[str],
) -> None:
    """Topics that were made, deleted and made again: in the history each life is a place."""
    history = examiner.shared.history
    removals = {
        place: each
        for each in history.operations
        if isinstance(each, Removal)
        for place in each.places
    }
    lives = [life for life in load.lives if life.time <= moment]
    for life in lives:
        place = f"{life.name}/{life.number}"
        if place not in removals and life.name not in there:
            problems.append(f"topic {place} is gone")
    for name, (topic_id, count) in there.items():
        if name in load.topics or name.startswith("__"):
            continue
        examiner.shared.topic_ids[name] = topic_id
        records = [each for index in range(count) for each in await examiner.records(name, index)]
        values = {str(each.value, "ascii").split(":")[0] for each in records if each.value}
        if len(values) > 1:
            problems.append(f"topic {name} has records of {sorted(values)}")
        last = max((life.number for life in lives if life.name == name), default=0)
        place = values.pop() if values else f"{name}/{last}"
        removal = removals.get(place)
        if removal is not None and removal.outcome is Outcome.OK and not values and not records:
            continue  # a later life, of which nobody was told yet
        history.final[place] = FinalRead(place, 0, len(records), records)
    for life in lives:
        place = f"{life.name}/{life.number}"
        if place in removals and removals[place].outcome is not Outcome.OK:
            history.final.setdefault(place, FinalRead(place, 0, 0, []))


class Examiner(Client):
    """Asks a broker that has come back."""

    # A machine that is busy with other things is no failure of the broker's.
    request_seconds_max = CHECK_SECONDS_MAX

    async def topics(self) -> dict[str, tuple[bytes, int]]:
        """All topics: id and number of partitions."""
        response = await self.insist("Metadata", MetadataRequest(topics=None))
        for topic in response.topics:
            for partition in topic.partitions:
                if partition.error_code:
                    code = ErrorCode(partition.error_code).name
                    self.shared.complain(self.name, f"{topic.name}: {code}")
        return {
            topic.name: (bytes(topic.topic_id), len(topic.partitions)) for topic in response.topics
        }

    async def read(self, name: str, index: int, place: str) -> None:
        """Reads a place to its end, for the history."""
        end = await offset_at(self, (name, index), -1)
        records = await self.records(name, index)
        # Asked last: retention goes on meanwhile.
        start = await offset_at(self, (name, index), -2)
        kept = [each for each in records if start <= each.offset < end]
        self.shared.history.final[place] = FinalRead(place, start, end, kept)

    async def records(self, name: str, index: int) -> list[Seen]:
        """All that a partition has."""
        key = (name, index)
        position = await offset_at(self, key, -2)
        end = await offset_at(self, key, -1)
        records: list[Seen] = []
        patience = EMPTY_ANSWERS_MAX
        operations = self.shared.history.operations
        while position < end and patience:
            before = len(operations)
            fetched = await fetch(self, {key: position}, wait_ms=0, partition_bytes_max=1 << 20)
            answer = fetched[key]
            for poll in operations[before:]:
                if isinstance(poll, Poll):
                    records += poll.records
            del operations[before:]
            if answer.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                position = await offset_at(self, key, -2)
                continue
            if answer.code is not ErrorCode.NONE:
                self.shared.complain(self.name, f"{name}-{index} at {position}: {answer.code.name}")
                break
            patience -= answer.next_position == position
            position = answer.next_position
        return records

    async def offsets(self, group: str) -> None:
        """What a group has committed, for the history."""
        indexes = {name: list(range(count)) for name, count in self.shared.topics.items()}
        while indexes and await committed(self, group, indexes) is None:
            await self.pause(0.05)

    async def beat(self, member: NextMember, moment: float, problems: list[str]) -> None:
        """Has a member of the consumer protocol go on in the epoch that it was told last, unless
        it is about to be told another one."""
        heard = [each for each in member.heard if each.started <= moment]
        if not heard or heard[-1].ended > moment:
            return
        again = NextMember(self.shared, member.name, member.group, list(self.shared.topics))
        again.member_id, again._epoch = member.member_id, heard[-1].epoch
        again.request_seconds_max = self.request_seconds_max
        code = await again.beat()
        while code in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR):
            await self.pause(0.05)
            code = await again.beat()
        if code is not ErrorCode.NONE:
            problems.append(f"{member.name} was in epoch {heard[-1].epoch}, and hears {code.name}")
        again.disconnect()

    # ---- producers

    async def send_again(self, producer: SizedProducer, moment: float, problems: list[str]) -> None:
        """Sends what a producer had under way, or else its last batch, once more."""
        copies = {
            each.value: each for each in self.shared.history.operations if isinstance(each, Send)
        }
        made = [each for each in producer.made if each.sends[0].started <= moment]
        made.sort(key=lambda each: each.index)
        for _, batches in itertools.groupby(made, key=lambda each: each.index):
            for batch in _to_send_again(list(batches), moment):
                await self._send_again(producer, batch, copies, moment, problems)

    async def _send_again(
        self,
        producer: SizedProducer,
        batch: Batch,
        copies: dict[bytes, Send],
        moment: float,
        problems: list[str],
    ) -> None:
        response = await self.insist("Produce", producer.again(batch))
        answer = response.responses[0].partition_responses[0]
        code = ErrorCode(answer.error_code)
        first = batch.sends[0]
        what = f"{first.value[:30]!r} sequence {batch.base_sequence} to {first.place}, again"
        if code is not ErrorCode.NONE:
            problems.append(f"{what}: {code.name} {answer.error_message}")
            return
        if first.ended <= moment and answer.base_offset not in (-1, first.offset):
            problems.append(f"{what}: at {answer.base_offset}, was at {first.offset}")
        for place, send in enumerate(batch.sends if first.ended > moment else ()):
            copy = copies[send.value]
            copy.outcome, copy.ended = Outcome.OK, self.now
            copy.offset = answer.base_offset + place if answer.base_offset >= 0 else -1


def _to_send_again(batches: list[Batch], moment: float) -> Iterator[Batch]:
    """What was not acknowledged, and otherwise the last one."""
    pending = [each for each in batches if each.sends[0].ended > moment]
    yield from pending or batches[-1:]
