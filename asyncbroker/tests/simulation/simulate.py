"""One run: a world made from a seed, its clients, what goes wrong in it, and the verdict.

A seed decides the broker's settings, the topics, the clients and the faults. Clients work until
they have done so many operations and so many faults have happened. Then everything is mended, the
broker is started once more, all clients come to their end, everything is read, and the history is
checked. A run that is given the same seed is the same run.
"""

from __future__ import annotations

import logging
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.tests.history.checker import check
from asyncbroker.tests.history.history import FinalRead, History, Outcome, Seen
from asyncbroker.tests.simulation.admins import ANY_TIME, Admin, Churn, TopicSpec
from asyncbroker.tests.simulation.client import Client, Shared, place_of
from asyncbroker.tests.simulation.consumers import Member, Reader, committed
from asyncbroker.tests.simulation.fetching import fetch, next_position, offset_at
from asyncbroker.tests.simulation.jobs import simulated_locks
from asyncbroker.tests.simulation.link import Lost
from asyncbroker.tests.simulation.machine import Machine
from asyncbroker.tests.simulation.nemesis import Nemesis
from asyncbroker.tests.simulation.network import Network
from asyncbroker.tests.simulation.producers import Producer
from asyncbroker.tests.simulation.world import VirtualLoop, World

# What a run has at least. The end of it comes with so many operations itself, mostly.
OPERATIONS: Final = 300
FAULTS_MIN: Final = 3
LAST_OPERATIONS: Final = 25

# How long a run may take in its own time, and how long its clients may take to come to an end.
RUN_SECONDS_MAX: Final = 600.0
FINISH_SECONDS_MAX: Final = 60.0

EVENTS_MAX: Final = 100_000

LINES_MAX: Final = 4000

# A reader that gets nothing asks again so often.
EMPTY_ANSWERS_MAX: Final = 20

COMPACTED: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}

EXPIRING: Final = {"retention.ms": "1500", "file.delete.delay.ms": "200"}

# Each run uses one version of each API.
VERSIONS: Final[dict[str, tuple[int, ...]]] = {
    "Produce": (7, 9, 11),
    "Fetch": (6, 12, 17),
    "ListOffsets": (5, 7),
    "Metadata": (10, 12),
    "OffsetCommit": (7, 8),
    "OffsetFetch": (5, 8),
    "FindCoordinator": (3, 4),
    "JoinGroup": (3, 5, 9),
    "SyncGroup": (3, 5),
    "Heartbeat": (3, 4),
    "LeaveGroup": (2, 3),
    "InitProducerId": (1, 4),
    "CreateTopics": (7,),
    "DeleteTopics": (5, 6),
    "DeleteRecords": (1, 2),
    "IncrementalAlterConfigs": (0, 1),
}


@dataclass(slots=True)
class Result:
    """What one run came to."""

    seed: int
    problems: list[str]
    # Requests that were sent, faults, and what the checker had to look at, by kinds.
    operations: Counter[str]
    faults: Counter[str]
    checked: Counter[str]
    starts: int
    seconds: float
    events: int
    digest: int
    lines: list[str] = field(default_factory=list)


def simulate(
    seed: int,
    *,
    operations: int = OPERATIONS,
    keeps_lines: bool = False,
    change: Callable[[Run], object] | None = None,
) -> Result:
    """Runs one seed. `change` may break something, to see whether it is noticed."""
    with simulated_locks():
        run = Run(seed, operations, keeps_lines=keeps_lines)
        if change is not None:
            change(run)
        with _listening(run, logging.INFO if keeps_lines else logging.ERROR):
            return run.run()


@contextmanager
def _listening(run: Run, level: int) -> Iterator[None]:
    """Hears what the broker logs. An error with a traceback is a bug of its own, wherever it was
    caught; the rest is for the lines of the run."""
    broker = logging.getLogger("asyncbroker")
    before = broker.level, broker.propagate, broker.handlers
    broker.setLevel(level)
    broker.propagate = False
    broker.handlers = [_Listener(run)]
    try:
        yield
    finally:
        broker.level, broker.propagate, broker.handlers = before
        broker.setLevel(before[0])


class _Listener(logging.Handler):
    """Gives the broker's log to a run."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run = run

    def emit(self, record: logging.LogRecord) -> None:
        """One line of the log."""
        world = self._run.world
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            text = "".join(traceback.format_exception(error)[-4:])
            self._run.machine.complaints.append(f"{record.getMessage()}\n{text}")
        if world.lines is not None:
            world.lines.append(f"{world.now:10.6f}      log: {record.getMessage()}")


class Run:
    """One run of one seed."""

    def __init__(self, seed: int, operations: int, *, keeps_lines: bool) -> None:
        self.world = world = World(seed)
        if keeps_lines:
            world.lines = deque(maxlen=LINES_MAX)
        self._operations = operations
        self._random = world.random
        self.network = Network(world)
        self.machine = Machine(world, self.network, self._settings())
        self.history = History()
        self.loop = VirtualLoop(world, "clients")  # type: ignore[abstract]
        self.shared = Shared(
            world,
            self.network,
            self.loop,
            self.history,
            {name: self._random.choice(choices) for name, choices in VERSIONS.items()},
            complaints=[],
        )
        self._compacted: set[str] = set()
        # Topics of which nothing is deleted but by request.
        self._kept: set[str] = set()
        self.clients = self._make_clients()
        self.nemesis = Nemesis(self.machine, self.network, self.history, self._kept)
        self._problems: list[str] = []

    # ---- what there is

    def _settings(self) -> dict[str, str]:
        choose = self._random.choice
        return {
            "auto.create.topics.enable": "false",
            "group.initial.rebalance.delay.ms": choose(["0", "100"]),
            "group.min.session.timeout.ms": "100",
            "log.flush.offset.checkpoint.interval.ms": choose(["500", "3000", "60000"]),
            "log.cleaner.backoff.ms": choose(["100", "1000"]),
            "max.incremental.fetch.session.cache.slots": choose(["1", "1000"]),
            "log.retention.check.interval.ms": choose(["200", "2000"]),
            # The smallest is full soon; some go without one.
            "log.journal.bytes": choose(["65536", "65536", "262144", "0"]),
            "log.journal.stretch.max.bytes": choose(["1000", "131072"]),
            "log.index.interval.bytes": "1",
            "log.index.size.max.bytes": choose(["80", "400", "10485760"]),
            "offsets.topic.num.partitions": choose(["1", "2"]),
            "asyncbroker.append.inline.max.bytes": choose(["0", "150", "262144"]),
            "asyncbroker.writeback.bytes": choose(["500", "8388608"]),
            "asyncbroker.worker.threads": choose(["1", "2", "12"]),
            "asyncbroker.max.open.files": choose(["2", "0"]),
            "asyncbroker.stop.timeout.ms": "10000",
        }

    def _make_clients(self) -> list[Client]:
        random, shared = self._random, self.shared
        specs = [
            TopicSpec(
                "events",
                random.randint(1, 3),
                {**self._topic_settings(), **(EXPIRING if random.random() < 0.3 else {})},
            ),
            TopicSpec(
                "orders",
                random.randint(1, 2),
                {**self._topic_settings(), **(COMPACTED if random.random() < 0.3 else {})},
            ),
        ]
        for spec in specs:
            places = [place_of(spec.name, index) for index in range(spec.partitions)]
            if "cleanup.policy" in spec.configs:
                self._compacted.add(spec.name)
                self.history.compacted.update(places)
            else:
                self._kept.add(spec.name)
            if spec.configs["retention.ms"] != ANY_TIME["retention.ms"]:
                self.history.expiring.update(places)
        names = [spec.name for spec in specs]
        clients: list[Client] = [Admin(shared, "admin", specs, trims=random.random() < 0.5)]
        for number in range(random.randint(1, 2)):
            clients.append(self._producer(f"idem{number}", random.choice(names), True))
        for number in range(random.randint(1, 2)):
            clients.append(self._producer(f"plain{number}", random.choice(names), False))
        clients.append(Reader(shared, "reader", names))
        for number in range(random.choice([0, 1, 2, 2, 3])):
            instance = f"i{number}" if random.random() < 0.3 else None
            clients.append(Member(shared, f"member{number}", "g", names, instance))
        if random.random() < 0.3:
            clients.append(Churn(shared, "churn"))
        return clients

    def _topic_settings(self) -> dict[str, str]:
        choose = self._random.choice
        return {
            "segment.ms": choose(["100", "1000", "604800000"]),
            **ANY_TIME,
            "message.timestamp.type": choose(["CreateTime", "CreateTime", "LogAppendTime"]),
        }

    def _producer(self, name: str, topic: str, is_idempotent: bool) -> Producer:
        random = self._random
        return Producer(
            self.shared,
            name,
            topic,
            is_idempotent=is_idempotent,
            acks=random.choice([0, 1, 1, -1, -1]),
            pace_seconds=random.choice([0.02, 0.1, 0.3]),
            keys=5 if topic in self._compacted else random.choice([0, 5]),
        )

    # ---- the run

    def run(self) -> Result:
        """All of it."""
        self.machine.start()
        for client in self.clients:
            self._begin(client)
        self.nemesis.begin()
        if not self._until(self._is_enough, RUN_SECONDS_MAX):
            self._problems.append(f"stuck: {self.shared.operation_count} operations in all")
        elif self._finish():
            self._problems += map(str, check(self.history))
            self._look_for_too_little()
        self.machine.look_for_bugs()
        self._problems += self.shared.complaints + self.machine.complaints
        self._problems += self.loop.failures
        self.machine.bury()
        self.loop.kill()
        self.loop.bury()
        lines = list(self.world.lines) if self.world.lines is not None else []
        return Result(
            self.world.seed,
            self._problems,
            self.shared.sent,
            self.nemesis.counts,
            _checked(self.history) + self.shared.met,
            self.machine.start_count,
            self.world.now,
            self.world.event_count,
            self.world.digest,
            lines,
        )

    def _begin(self, client: Client) -> None:
        run = client.run  # type: ignore[attr-defined]
        self.loop.call_soon(lambda: self.loop.create_task(run(), name=client.name))

    def _is_enough(self) -> bool:
        return (
            self.nemesis.count >= FAULTS_MIN
            and self.shared.operation_count >= self._operations - LAST_OPERATIONS
        )

    def _look_for_too_little(self) -> None:
        """A run that nothing much happened in shows nothing, and must not be counted."""
        if self.shared.operation_count < self._operations or self.nemesis.count < FAULTS_MIN:
            self._problems.append(
                f"too little: {self.shared.operation_count} operations, {self.nemesis.count} faults"
            )

    def _until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Lets the world go on until something is the case, or somebody complains."""
        complaints = self.shared.complaints
        events_max = self.world.event_count + EVENTS_MAX
        return self.world.run(
            lambda: bool(complaints) or self.world.event_count > events_max or condition(),
            self.world.now + seconds,
        ) and (bool(complaints) or condition())

    def _finish(self) -> bool:
        """Mends everything, and has everybody come to an end; False if there is no use in it."""
        if self.shared.complaints:
            return False
        self.nemesis.end()
        if not self._until(self.nemesis.is_calm, FINISH_SECONDS_MAX):
            self._problems.append("stuck: the broker does not come up again")
            return False
        self.shared.is_finishing = True
        if not self._until(self._all_done, FINISH_SECONDS_MAX):
            self.history.stuck += [each.name for each in self.clients if not each.is_done]
        auditor = Auditor(self.shared, "auditor", self._operations)
        self._begin(auditor)
        if not self._until(lambda: auditor.is_done, FINISH_SECONDS_MAX):
            self.history.stuck.append("auditor")
            self.history.is_complete = False
        return not self.shared.complaints

    def _all_done(self) -> bool:
        return all(client.is_done for client in self.clients)


def _checked(history: History) -> Counter[str]:
    """How much there is to be checked."""
    counts = Counter(type(each).__name__ for each in history.operations)
    counts["records sent"] = counts.pop("Send", 0)
    counts["records acknowledged"] = sum(send.outcome is Outcome.OK for send in history.sends())
    counts["records read"] = sum(len(poll.records) for poll in history.polls())
    counts["logs read to the end"] = len(history.final)
    counts["damaged batches"] = sum(map(len, history.damaged.values()))
    return counts


class Auditor(Client):
    """Reads everything in the end; again, if the run has not had its operations yet."""

    def __init__(self, shared: Shared, name: str, operations: int) -> None:
        super().__init__(shared, name)
        self._operations = operations

    async def run(self) -> None:
        """Reads until there is nothing more to do."""
        await self._read_all()
        while self.shared.operation_count < self._operations and not self.shared.complaints:
            await self._read_all()
        self.disconnect()
        self.is_done = True

    async def _read_all(self) -> None:
        """Reads all offsets of the group, and all places from beginning to end."""
        indexes = {name: list(range(count)) for name, count in self.shared.topics.items()}
        while True:
            try:
                if await committed(self, "g", indexes) is not None:
                    break
            except Lost:
                pass
            await self.pause(0.1)
        for name, numbers in indexes.items():
            for index in numbers:
                await self._read(name, index)

    async def _read(self, name: str, index: int) -> None:
        start = await offset_at(self, (name, index), -2)
        end = await offset_at(self, (name, index), -1)
        records: list[Seen] = []
        position = start
        patience = EMPTY_ANSWERS_MAX
        while position < end:
            before = len(self.shared.history.operations)
            answer = (
                await fetch(self, {(name, index): position}, wait_ms=0, partition_bytes_max=65536)
            )[name, index]
            if answer.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                # Retention may have been faster.
                moved = await offset_at(self, (name, index), -2)
                if moved > position:
                    start = position = moved
                    records.clear()
                    continue
            if answer.code is not ErrorCode.NONE:
                before_damage = position
                position = await next_position(self, (name, index), position, answer)
                if position == before_damage:
                    self.shared.complain(self.name, f"{name}-{index} cannot be read")
                    return
                continue
            for poll in self.shared.history.operations[before:]:
                records += getattr(poll, "records", [])
            if answer.next_position == position:
                # The log is being compacted, perhaps; if it stays so, what is behind is lost.
                patience -= 1
                if not patience:
                    break
                await self.pause(0.2)
            position = answer.next_position
        place = place_of(name, index)
        self.shared.history.final[place] = FinalRead(place, start, end, records)
