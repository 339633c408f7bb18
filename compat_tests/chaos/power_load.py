"""One recording: a broker with all sorts of clients for a while, killed and stopped meanwhile."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from asyncbroker.log.tests.crash_files import CrashFiles
from asyncbroker.tests.history.history import End, Ended, History, Outcome
from asyncbroker.tests.simulation.admins import ANY_TIME, Admin, TopicSpec
from asyncbroker.tests.simulation.client import Shared, place_of
from asyncbroker.tests.simulation.consumers import Member, Reader
from asyncbroker.tests.simulation.simulate import COMPACTED, EXPIRING
from compat_tests.chaos.mounts import Mount
from compat_tests.chaos.nemesis import ChaosBroker, fill
from compat_tests.chaos.power_clients import (
    Life,
    LifeChurn,
    NextMember,
    SizedProducer,
    TcpNetwork,
    shared_by_all,
)
from compat_tests.chaos.recording import Fingerprint, fingerprint, recorded, write_out

# How long the clients work between two ends of the broker, at most.
LIFE_SECONDS_MAX: Final = 4.0
# Of a disk that is full now and then, in bytes.
RESERVES: Final = ("65536", "262144")
# A twentieth of a second each.
FIRST_ANSWER_LOOKS_MAX: Final = 600
CLASSIC_GROUP: Final = "g"
NEXT_GROUP: Final = "next"


@dataclass(slots=True)
class Load:
    """What was recorded, and who did what meanwhile."""

    seed: int
    directory: Path
    records: Path
    settings: dict[str, str]
    history: History = field(default_factory=History)
    after_kill: list[Fingerprint] = field(default_factory=list)
    # How many partitions topics are to have, and those that somebody knows to be there.
    partitions: dict[str, int] = field(default_factory=dict)
    topics: dict[str, int] = field(default_factory=dict)
    producers: list[SizedProducer] = field(default_factory=list)
    members: list[NextMember] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    # What an earlier loss of power has left, and how many there were.
    before: CrashFiles | None = None
    generation: int = 0


def settings_of(random: Random) -> dict[str, str]:
    """Settings that have much happen in little time."""
    choose = random.choice
    return {
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "100",
        "log.flush.offset.checkpoint.interval.ms": choose(["200", "1000", "60000"]),
        "log.cleaner.backoff.ms": choose(["100", "1000"]),
        "log.retention.check.interval.ms": choose(["200", "1000"]),
        "log.journal.bytes": choose(["65536", "65536", "262144", "1048576", "0"]),
        "log.journal.stretch.max.bytes": choose(["1000", "20000", "131072"]),
        "log.index.interval.bytes": choose(["1", "4096"]),
        "log.index.size.max.bytes": choose(["80", "400", "10485760"]),
        "log.segment.bytes": "1048576",
        "offsets.topic.num.partitions": choose(["1", "2"]),
        "offsets.topic.segment.bytes": "1048576",
        "asyncbroker.append.inline.max.bytes": choose(["0", "1000", "262144"]),
        "asyncbroker.writeback.bytes": choose(["5000", "8388608"]),
        "asyncbroker.worker.threads": choose(["1", "4"]),
        "asyncbroker.max.open.files": choose(["2", "0"]),
        "asyncbroker.reserve.bytes": "0",
    }


def assignments(settings: Mapping[str, str]) -> tuple[str, ...]:
    """As the command line takes them."""
    return tuple(f"{name}={text}" for name, text in settings.items())


def record(
    seed: int, seconds: float, library: Path, folder: Path, *, disk_mb: int | None = None
) -> Load:
    """Runs a broker in `folder` for about so long, recorded. With `disk_mb` its disk has so much
    room, and is full now and then; that takes root."""
    random = Random(seed)
    disk, records = folder / "disk", folder / "records"
    shutil.rmtree(disk, ignore_errors=True)
    records.unlink(missing_ok=True)
    disk.mkdir()
    load = Load(seed, disk / "data", records, settings_of(random))
    if disk_mb is None:
        record_life(load, library, random, seconds)
        return load
    load.settings["asyncbroker.reserve.bytes"] = random.choice(RESERVES)
    mount = Mount(disk, "-t", "tmpfs", "-o", f"size={disk_mb}m", "tmpfs")
    try:
        record_life(load, library, random, seconds, filler=disk / "filler")
    finally:
        mount.unmount()
    return load


def record_life(
    load: Load, library: Path, random: Random, seconds: float, *, filler: Path | None = None
) -> None:
    """Runs the broker of a load, on what was there before."""
    directory = load.directory
    sync_us = random.choice([0, 2_000, 20_000])
    broker = ChaosBroker(directory, assignments(load.settings))
    # The directory that is recorded is there: its own name is durable.
    write_out(load.before or CrashFiles(), directory)
    broker.environment = recorded(library, directory, load.records, sync_us)
    broker.start()
    try:
        asyncio.run(work(load, broker, random, seconds, filler))
    finally:
        broker.kill()
    load.after_kill.append(fingerprint(directory))
    shutil.rmtree(directory)


async def _fill_now_and_then(filler: Path, random: Random, is_serving: asyncio.Event) -> None:
    """Takes all the room that there is, and gives it back; not while the broker starts, which needs
    more than a small reserve."""
    # Until the file system itself is gone.
    with suppress(OSError):
        while True:
            await asyncio.sleep(random.random())
            await is_serving.wait()
            fill(filler)
            await asyncio.sleep(random.random())
            _remove(filler)


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)


async def work(
    load: Load,
    broker: ChaosBroker,
    random: Random,
    seconds: float,
    filler: Path | None = None,
    end: Callable[[], None] | None = None,
) -> None:
    """Has clients at work, and kills and stops the broker meanwhile; in the end, while they go on,
    `end` is called in a thread."""
    loop = asyncio.get_running_loop()
    failures: list[str] = []
    loop.set_exception_handler(lambda _, context: failures.append(str(context)))
    shared = shared_by_all(load.seed, load.history)
    network: Any = shared.network
    _point(network, broker)
    churns = [] if load.generation else [LifeChurn(shared, "churn")]
    tasks = [loop.create_task(work) for work in _clients(load, shared, random, churns)]
    is_serving = asyncio.Event()
    is_serving.set()
    if filler is not None:
        tasks.append(loop.create_task(_fill_now_and_then(filler, random, is_serving)))
    await _first_answer(load.history)
    left = seconds
    while left > 0:
        life = min(left, LIFE_SECONDS_MAX * random.uniform(0.2, 1.0))
        left -= life
        await asyncio.sleep(life)
        is_serving.clear()
        if random.random() < 0.7:
            await loop.run_in_executor(None, broker.kill)
            how = End.KILL
        else:
            await loop.run_in_executor(None, broker.stop)
            how = End.STOP
        load.history.add(Ended(how, time.monotonic()))
        load.after_kill.append(fingerprint(load.directory))
        if filler is not None:
            _remove(filler)
        await loop.run_in_executor(None, broker.start)
        is_serving.set()
    if end is not None:
        await asyncio.sleep(random.uniform(0.0, LIFE_SECONDS_MAX))
        await loop.run_in_executor(None, end)
    load.topics = dict(shared.topics)
    load.lives += [life for churn in churns for life in churn.lives]
    load.complaints += shared.complaints
    world: Any = shared.world
    load.lines = world.lines
    for task in tasks:
        if task.done() and task.exception() is not None:
            failures.append(repr(task.exception()))
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await network.close()
    load.complaints += [text for text in failures if "InvalidStateError" not in text]


async def _first_answer(history: History) -> None:
    """Returns when somebody's records are acknowledged: where everything is slow, a recording of
    some seconds would have nothing in it. Not for ever, if there is something wrong."""
    for _ in range(FIRST_ANSWER_LOOKS_MAX):
        if any(each.outcome is Outcome.OK for each in history.sends()):
            return
        await asyncio.sleep(0.05)


def _point(network: TcpNetwork, broker: ChaosBroker) -> None:
    network.port = int(broker.bootstrap_servers.rpartition(":")[2])


def _clients(
    load: Load, shared: Shared, random: Random, churns: list[LifeChurn]
) -> list[Coroutine[Any, Any, None]]:
    """All of them, at work; those of a later generation have other names."""
    mark = f"again{load.generation}-" if load.generation else ""
    counts = load.partitions = load.partitions or {
        "events": random.randint(1, 4),
        "orders": random.randint(1, 2),
        "fading": 1,
    }
    plain = {**ANY_TIME, "segment.ms": random.choice(["100", "1000", "604800000"])}
    specs = [
        TopicSpec("events", counts["events"], plain),
        TopicSpec(
            "orders",
            counts["orders"],
            {**plain, "segment.ms": "100", **COMPACTED},
        ),
        TopicSpec("fading", counts["fading"], {**plain, "segment.ms": "100", **EXPIRING}),
    ]
    names = [spec.name for spec in specs]
    for spec in specs:
        places = [place_of(spec.name, index) for index in range(spec.partitions)]
        if spec.name == "orders":
            load.history.compacted.update(places)
        elif spec.name == "fading":
            load.history.expiring.update(places)
    for number in range(5):
        is_idempotent = number < 3
        topic = names[number % 3] if random.random() < 0.5 else "events"
        load.producers.append(
            SizedProducer(
                shared,
                f"{mark}{'idem' if is_idempotent else 'plain'}{number}",
                topic,
                is_idempotent=is_idempotent,
                acks=random.choice([0, 1, -1]),
                pace_seconds=random.choice([0.005, 0.02, 0.1]),
                keys=5 if topic == "orders" else random.choice([0, 5]),
            )
        )
    classic, newer = f"{mark}{CLASSIC_GROUP}", f"{mark}{NEXT_GROUP}"
    load.groups += [classic, newer]
    load.members = [NextMember(shared, f"{mark}next{each}", newer, names) for each in range(2)]
    others = [
        Admin(shared, f"{mark}admin", specs, trims=True),
        Reader(shared, f"{mark}reader", names),
        *(Member(shared, f"{mark}member{each}", classic, names, None) for each in range(2)),
    ]
    clients: list[Any] = [*load.producers, *load.members, *churns, *others]
    return [client.run() for client in clients]


def folder_for_recordings(fallback: Path) -> Path:
    """Memory, where there is some for files: nothing here needs a disk."""
    memory = Path("/dev/shm")
    if memory.is_dir() and shutil.disk_usage(memory).free > 1 << 30 and os.access(memory, os.W_OK):
        return memory
    return fallback
