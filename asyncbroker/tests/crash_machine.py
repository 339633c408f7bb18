"""A broker on a machine that can crash at any moment, and the clients that hold it to its word.

    machine = Machine()
    points = machine.live(script)      # a life, and the moments at which it could have ended
    for point in points:
        for after in point.crashes(5, random):
            after.live()               # recovers, is checked, works, and stops

A `Machine` is a disk, what the metadata store holds (its commits are atomic), and an oracle that
knows what clients were told. `live` starts a real Broker on it, without sockets or threads, has
everything checked, runs a script of requests and stops the broker in order. All of it happens on
one thread, and the same in every run. Before each change of the disk the state of everything is
kept as a `Point`, which costs a few microseconds (see `crash_files.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from asyncbroker.broker import Broker
from asyncbroker.clock import ManualClock
from asyncbroker.config import BrokerConfig
from asyncbroker.log.tests.crash_disk import Choose
from asyncbroker.log.tests.crash_files import CHANGES, CrashFiles, Died
from asyncbroker.metadata_store import Change, StoredState
from asyncbroker.tests.crash_client import Client
from asyncbroker.tests.crash_oracle import Oracle
from asyncbroker.tests.data_path_harness import UnderTest
from asyncbroker.workers import InlineWorkers

# Small, so that small batches lie in several; a real disk's are 512 and more.
SECTOR_BYTES: Final = 64
# A journal that is quickly made, and full now and then.
SMALL_JOURNAL: Final = {"log.journal.bytes": "65536"}

# What goes on without an end goes on for ever.
_STEPS_MAX: Final = 100_000

Script = Callable[[Client], Coroutine[Any, Any, None]]


class CrashMetadataStore:
    """The metadata store of a machine: each of its commits is one change of the disk."""

    def __init__(self, files: CrashFiles, state: StoredState) -> None:
        self._files = files
        self.state = state

    def open(self) -> StoredState:
        return copied(self.state)

    def apply(self, changes: Sequence[Change]) -> None:
        self._files.called("apply_metadata", "")
        for change in changes:
            change.apply_to(self.state)

    def close(self) -> None:
        """Nothing is held."""


def copied(state: StoredState) -> StoredState:
    return StoredState(
        topics=dict(state.topics),
        deleted_topics=dict(state.deleted_topics),
        broker_configs=dict(state.broker_configs),
        group_configs=dict(state.group_configs),
        values=dict(state.values),
    )


class Machine:
    """See the head of this file."""

    def __init__(
        self,
        config: BrokerConfig | None = None,
        *,
        files: CrashFiles | None = None,
        state: StoredState | None = None,
        oracle: Oracle | None = None,
        clock: ManualClock | None = None,
    ) -> None:
        self.config = config or BrokerConfig.from_settings(SMALL_JOURNAL)
        self.files = files or CrashFiles(sector_bytes=SECTOR_BYTES)
        self.store = CrashMetadataStore(self.files, state or StoredState())
        self.oracle = oracle or Oracle()
        self.clock = clock or ManualClock()

    def live(
        self, script: Script | None = None, *, keeps_points: bool = True, stops: bool = True
    ) -> list[Point]:
        """A life in which nothing goes wrong; `stops`: the broker is stopped in order at its end.
        Raises AssertionError for a promise that was broken before, and Died if the files say so."""
        points: list[Point] = []

        def keep(operation: str, path: str) -> None:
            if operation in CHANGES:
                points.append(self.point(f"{operation} {path}"))

        self.files.on_call = keep if keeps_points else None
        try:
            self.run(self._life(script, stops))
        finally:
            self.files.on_call = None
        return points

    def point(self, next_change: str) -> Point:
        """This moment, before a change."""
        return Point(
            next_change,
            Machine(
                self.config,
                files=self.files.killed(),
                state=copied(self.store.state),
                oracle=self.oracle.copied(),
                clock=ManualClock(monotonic=self.clock.monotonic(), wall_ms=self.clock.wall_ms()),
            ),
        )

    async def _life(self, script: Script | None, stops: bool) -> None:
        client = await self.start()
        await client.check()
        if script is not None:
            await script(client)
        if stops:
            await client.stop()

    async def start(self) -> Client:
        """A started broker, and somebody to talk to it."""
        self.oracle.starts += 1
        broker = Broker(
            self.config,
            self.clock,
            InlineWorkers(),
            files=self.files,
            metadata=self.store,
            is_volatile=False,
            random_bytes=Random(self.oracle.starts).randbytes,
        )
        await broker.start()
        return Client(UnderTest(broker, self.clock, self.files), self.oracle, self.files)

    def run(self, work: Coroutine[Any, Any, None], *, may_have_bugs: bool = False) -> None:
        """Runs a life to its end; raises Died if that came early, and AssertionError for a
        traceback in the log, unless there may be some."""
        loop = asyncio.new_event_loop()
        bugs: list[str] = []
        loop.set_exception_handler(lambda _, context: _note_bug(bugs, context))
        with _Errors(bugs):
            task = loop.create_task(work)
            try:
                for _ in range(_STEPS_MAX):
                    loop.call_soon(loop.stop)
                    loop.run_forever()
                    if task.done() or self.files.is_dead:
                        break
                else:
                    raise AssertionError("nothing happens any more")
                if self.files.is_dead:
                    raise Died
                task.result()
                assert may_have_bugs or not bugs, bugs
            finally:
                _end(loop)


@dataclass(frozen=True, slots=True)
class Point:
    """A moment before a change of the disk, with all that there was."""

    next_change: str
    machine: Machine

    def crashes(self, count_max: int, random: Random) -> list[Machine]:
        """What the machine may be after a crash here: of the process, or of the power."""
        states = self.machine.files.states(count_max - 1, random)
        return [self.killed(), *(self._with(files) for files in states)]

    def killed(self) -> Machine:
        """What it is after `kill -9`."""
        return self._with(self.machine.files.killed())

    def crashed(self, choose: Choose) -> Machine:
        """What it is after a loss of power."""
        return self._with(self.machine.files.crashed(choose))

    def _with(self, files: CrashFiles) -> Machine:
        machine = self.machine
        return Machine(
            machine.config,
            files=files,
            state=copied(machine.store.state),
            oracle=machine.oracle.copied(),
            clock=ManualClock(
                monotonic=machine.clock.monotonic(), wall_ms=machine.clock.wall_ms() + 1
            ),
        )


class _Errors(logging.Handler):
    """Collects the tracebacks that the broker logs: only bugs have one."""

    def __init__(self, bugs: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._bugs = bugs

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and not isinstance(record.exc_info[1], Died):
            self._bugs.append(f"{record.getMessage()}: {record.exc_info[1]!r}")

    def __enter__(self) -> None:
        logger = logging.getLogger("asyncbroker")
        logger.addHandler(self)
        self._before = logger.level, logger.propagate
        # Recoveries have much to say.
        logger.setLevel(logging.ERROR)
        logger.propagate = False

    def __exit__(self, *_: object) -> None:
        logger = logging.getLogger("asyncbroker")
        logger.removeHandler(self)
        logger.setLevel(self._before[0])
        logger.propagate = self._before[1]


def _note_bug(bugs: list[str], context: dict[str, Any]) -> None:
    error = context.get("exception")
    if not isinstance(error, Died):
        bugs.append(f"{context['message']}: {error!r}")


def _end(loop: asyncio.AbstractEventLoop) -> None:
    """Takes down what a life that ended early has left; it can do nothing to the disk."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks))
        for task in tasks:
            if not task.cancelled():
                task.exception()
    loop.close()
