"""Every call to the disk fails once: nothing that was acknowledged is lost, nothing false is read.

A scenario is lived through to see from where in the code its files are called. Then it is lived
through again for each of these places, and a call from there fails: with EIO, with ENOSPC, or after
a part of a write; that one alone, or every call of its kind from there on. The rest of that life is
held against what the design says of such an error. Then the process is killed, or the power fails,
and the next broker on these files, which work again, has to keep all promises. With
ASYNCBROKER_LONG=1 not only one call from each place fails, but every one.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import PurePath
from random import Random
from typing import Final

import pytest

from asyncbroker.log.errors import CorruptLog, DirectoryRefused
from asyncbroker.log.tests.crash_disk import everything, sampled
from asyncbroker.log.tests.crash_files import Died, PartialWrite
from asyncbroker.protocol.errors import KafkaError
from asyncbroker.tests.crash_client import Client
from asyncbroker.tests.crash_machine import Machine
from asyncbroker.tests.crash_scenarios import SCENARIOS, Scenario, work_on
from asyncbroker.tests.long import IS_LONG

# How many callers tell one place from another.
_CALLERS: Final = 4


ERRORS: Final = {
    "EIO": OSError(errno.EIO, "Input/output error"),
    "ENOSPC": OSError(errno.ENOSPC, "No space left on device"),
    "short": PartialWrite(errno.ENOSPC, 0.6),
    "all of it": PartialWrite(errno.EIO, 1.0),
    "EMFILE": OSError(errno.EMFILE, "Too many open files"),
}
# Where an error can come from, if not from everywhere.
_PLACES: Final = {
    "short": ("pwrite",),
    "all of it": ("pwrite",),
    "EMFILE": ("open", "create", "read_whole", "list_files", "sync_directory"),
}
# What an operator can mend while the broker runs. A sync that fails is none of it.
_PASSING: Final = frozenset({errno.ENOSPC, errno.EMFILE})
_WRITES: Final = frozenset(
    {"pwrite", "open", "create", "truncate", "make_directory", "rename", "remove"}
)

Place = tuple[str, ...]


@dataclass(slots=True)
class Calls:
    """Every call of a life, by the place that it came from."""

    places: dict[Place, list[int]] = field(default_factory=dict)
    count: int = 0

    def __call__(self, operation: str, path: str) -> None:
        self.count += 1
        self.places.setdefault((operation, PurePath(path).suffix, *_callers()), []).append(
            self.count
        )


@dataclass(slots=True)
class Fault:
    """Fails the call number `at`; or with `is_lasting` all of its kind from there on."""

    at: int
    error: OSError | MemoryError
    is_lasting: bool
    count: int = 0
    operation: str = ""
    path: str = ""
    is_over: bool = False
    # A partition that cannot be opened at start stays offline until the next one.
    is_in_start: bool = False
    # So does one whose files were getting the names of compacted ones.
    is_in_swap: bool = False

    def __call__(self, operation: str, path: str) -> None:
        self.count += 1
        if self.count == self.at:
            self.operation, self.path = operation, path
        elif not self.operation or self.is_over:
            return
        elif operation == "datasync" == self.operation and path == self.path:
            assert not path.endswith(".log"), f"{path} is synced again after an error"
        elif not self.is_lasting or operation != self.operation:
            return
        self.is_in_swap |= any(caller.endswith("_rename") for caller in _callers())
        raise self.error


def _callers() -> tuple[str, ...]:
    """From where in the broker's code the files are called."""
    found: list[str] = []
    frame = sys._getframe(2)
    while frame is not None and len(found) < _CALLERS:
        code = frame.f_code
        if "/tests/" not in code.co_filename:
            found.append(code.co_qualname if sys.version_info >= (3, 11) else code.co_name)
        frame = frame.f_back  # type: ignore[assignment]
    return tuple(found)


def prepared(scenario: Scenario) -> Machine:
    machine = Machine()
    if scenario.before is not None:
        machine.live(scenario.before, keeps_points=False)
    return machine


async def faulty_life(machine: Machine, scenario: Scenario, fault: Fault) -> None:
    """A life with a fault in it, up to a moment before the process is killed."""
    try:
        client = await machine.start()
    except (OSError, DirectoryRefused):
        return  # it says so, and does not start
    fault.is_in_start = bool(fault.operation)
    try:
        await scenario.script(client)
    except KafkaError as error:
        client.errors.append(error.code)
    await after_fault(client, fault)
    await client.stop()


async def after_fault(client: Client, fault: Fault) -> None:
    """What must hold once the disk works again and the broker runs still."""
    if not fault.operation:
        return
    broker = client.test.broker
    fault.is_over = True
    is_offline = broker.storage.error is not None
    if fault.operation == "datasync" and fault.path.endswith(".log"):
        assert is_offline, "a failed sync takes the directory offline"
    elif (
        isinstance(fault.error, OSError)
        and fault.error.errno in _PASSING
        and fault.operation in _WRITES
        and not fault.is_in_start
    ):
        assert not is_offline, f"this error passes; {broker.storage.error}"
        client.errors.clear()
        await work_on(client)
        assert not client.errors or fault.is_in_swap, f"this error passes: {client.errors}"
    elif fault.operation in ("pread", "pread_nowait", "read_whole"):
        assert not is_offline, "a read error is that of one partition"
    client.check_readable()


def faults(scenario: Scenario) -> Iterator[tuple[Place, int]]:
    """Places, and the number of a call from there."""
    machine, calls = prepared(scenario), Calls()
    machine.files.on_call = calls

    async def life() -> None:
        client = await machine.start()
        await scenario.script(client)
        await client.stop()

    machine.run(life())
    for place, numbers in calls.places.items():
        for number in numbers if IS_LONG else numbers[:1]:
            yield place, number


@pytest.mark.timeout(1800 if IS_LONG else 120)
@pytest.mark.parametrize("scenario_name", ["everything", "compaction", "retention"])
@pytest.mark.parametrize("name", ERRORS)
def test_any_call_may_fail(name: str, scenario_name: str) -> None:
    scenario, random = SCENARIOS[scenario_name], Random(1)
    first = prepared(scenario).point("start")
    count = 0
    for place, at in faults(scenario):
        if place[0] not in _PLACES.get(name, place):
            continue
        for is_lasting in (False, True) if IS_LONG else (bool(count % 2),):
            count += 1
            fault = Fault(at, ERRORS[name], is_lasting)
            machine = first.killed()
            machine.files.on_call = fault
            try:
                machine.run(faulty_life(machine, scenario, fault))
            except (AssertionError, Died, OSError, CorruptLog) as error:
                raise AssertionError(
                    f"call {at}, {place}, lasting {is_lasting}: {error}"
                ) from error
            assert fault.operation == place[0]
            point = machine.point("end")
            choices = [everything, sampled(random)]
            for after in (point.killed(), *map(point.crashed, choices)):
                try:
                    after.live(work_on, keeps_points=False, stops=False)
                except AssertionError as error:
                    text = f"after call {at}, {place}, lasting {is_lasting}: {error}"
                    raise AssertionError(text) from error
    assert count > 10


async def life_short_of_memory(machine: Machine, scenario: Scenario, fault: Fault) -> None:
    """Whoever asked gets an error or loses the connection; the broker goes on."""
    try:
        client = await machine.start()
    except (OSError, DirectoryRefused, MemoryError):
        return
    with suppress(KafkaError, MemoryError):
        await scenario.script(client)
    client.check_readable()
    with suppress(KafkaError, MemoryError):
        await client.stop()


@pytest.mark.timeout(600 if IS_LONG else 120)
def test_a_lack_of_memory_at_any_call_loses_nothing_and_leaves_nobody_waiting() -> None:
    scenario, random = SCENARIOS["everything"], Random(1)
    first = prepared(scenario).point("start")
    count = 0
    for place, at in faults(scenario):
        if place[0] == "datasync":
            continue  # takes none
        fault = Fault(at, MemoryError(), is_lasting=False)
        machine = first.killed()
        machine.files.on_call = fault
        try:
            machine.run(life_short_of_memory(machine, scenario, fault), may_have_bugs=True)
            machine.point("end").crashed(sampled(random)).live(work_on, keeps_points=False)
        except AssertionError as error:
            raise AssertionError(f"call {at}, {place}: {error}") from error
        assert fault.operation == place[0]
        count += 1
    assert count > 10
