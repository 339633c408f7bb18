"""The broker's machine: starts the real broker in a simulated process, and ends it in every way.

Put together as `runner.py` does it, with the four seams and the network simulated: nothing between
the bytes of a request and the calls to the files is made up.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from functools import lru_cache
from random import Random

from asyncbroker.broker import Broker
from asyncbroker.config import BrokerConfig
from asyncbroker.log.errors import DirectoryRefused
from asyncbroker.metrics import Metrics
from asyncbroker.runner import make_connections, stop_in_order
from asyncbroker.server import Server
from asyncbroker.tests.simulation import network
from asyncbroker.tests.simulation.disk import Disk, SimulatedStore
from asyncbroker.tests.simulation.jobs import SimulatedWorkers
from asyncbroker.tests.simulation.network import Network
from asyncbroker.tests.simulation.world import VirtualClock, VirtualLoop, WallClock, World

STOP_SECONDS: float = 10.0


@lru_cache(maxsize=64)
def _config(settings: tuple[tuple[str, str], ...]) -> BrokerConfig:
    return BrokerConfig.from_settings(dict(settings))


class Process:
    """One life of the broker."""

    def __init__(self, world: World, number: int, threads_max: int) -> None:
        self.number = number
        self.loop = VirtualLoop(world, f"broker {number}")  # type: ignore[abstract]
        self.workers = SimulatedWorkers(world, self.loop, threads_max)
        self.broker: Broker | None = None
        self.server: Server | None = None
        self.metrics = Metrics()
        self.is_serving = False
        self.is_stopping = False

    def bury(self) -> None:
        """Unwinds what the process was at when it ended."""
        self.workers.bury()
        self.loop.bury()


class Machine:
    """Disk, clock and, at most of the time, a process."""

    def __init__(self, world: World, net: Network, settings: Mapping[str, str]) -> None:
        self.world = world
        self.network = net
        self.disk = Disk(world)
        self.disk.on_death = self._died_in_call
        self.wall = WallClock(1_700_000_000_000)
        self.config = _config(tuple(sorted(settings.items())))
        self.store = SimulatedStore(self.disk)
        self.process: Process | None = None
        self.start_count = 0
        # What no broker may do: bugs that it met in itself, starts that failed.
        self.complaints: list[str] = []
        # Told when the process has gone: "kill", "power", "stop", or "refused".
        self.on_gone: Callable[[str], object] = lambda how: None
        # How a death in a call is to go on.
        self._power_goes = False
        self._random_bytes = Random(world.random.getrandbits(64)).randbytes

    @property
    def is_serving(self) -> bool:
        return self.process is not None and self.process.is_serving

    # ---- start

    def start(self) -> None:
        """Starts a process; it serves some time later."""
        assert self.process is None
        self.start_count += 1
        process = self.process = Process(self.world, self.start_count, self.config.worker_threads)
        self.world.note("start", process.number)
        process.loop.call_soon(self._begin, process)

    def _begin(self, process: Process) -> None:
        process.loop.create_task(self._run(process))

    async def _run(self, process: Process) -> None:
        broker = process.broker = Broker(
            self.config,
            VirtualClock(self.world, process.loop, self.wall),
            process.workers,
            files=self.disk.start_process(),
            metadata=self.store,
            is_volatile=False,
            random_bytes=self._random_bytes,
        )
        try:
            await broker.start()
        except (DirectoryRefused, OSError) as error:
            self.world.note("start refused", error)
            if not self.disk.failed_calls and not self.disk.has_failed_commit:
                self.complaints.append(f"start {process.number} refused: {error}")
            self._gone(process, "refused")
            return
        except Exception as error:
            text = "".join(traceback.format_exception(error)[-4:])
            self.complaints.append(f"start {process.number} failed: {text}")
            self._gone(process, "refused")
            return
        connections = make_connections(broker, metrics=process.metrics)
        process.server = Server(connections, (), backlog=0)
        process.server.start()
        process.is_serving = True
        self.world.note("serving", process.number)
        self.network.server = network.Server(connections, process.loop)

    # ---- end

    def stop(self) -> None:
        """Asks for a stop in order, as SIGTERM does."""
        process = self.process
        if process is not None and process.is_serving and not process.is_stopping:
            process.is_stopping = True
            self.world.note("stop")
            process.loop.call_soon(self._begin_stop, process)

    def _begin_stop(self, process: Process) -> None:
        process.loop.create_task(self._stop(process))

    async def _stop(self, process: Process) -> None:
        assert process.broker is not None
        assert process.server is not None
        # Nobody is taken in from now on.
        self.network.server = None
        status = await stop_in_order(process.broker, [process.server], STOP_SECONDS)
        self.world.note("stopped", status)
        self._gone(process, "stop" if status == 0 else "kill")

    def kill(self, *, power: bool) -> None:
        """Ends the process at once; without power the disk forgets what it had not written."""
        process = self.process
        if process is not None:
            self.world.note("power loss" if power else "kill")
            self._power_goes = power
            self._gone(process, "power" if power else "kill")

    def kill_in(self, calls: int, *, power: bool) -> None:
        """Ends the process in the n-th call to its files from now."""
        if self.process is not None:
            self._power_goes = power
            self.disk.die_in = calls

    def _died_in_call(self) -> None:
        assert self.process is not None
        self._gone(self.process, "power" if self._power_goes else "kill")

    def _gone(self, process: Process, how: str) -> None:
        """The process is no more. May be called in one of its jobs or callbacks."""
        if process is not self.process:
            return
        self._look_for_bugs(process)
        process.loop.kill()
        process.workers.kill()
        self.disk.end_process(power=how == "power")
        self.network.server_died()
        self.process = None
        self.world.after(0.0, process.bury)
        self.world.after(0.0, self.on_gone, how)

    def bury(self) -> None:
        """The end of the world."""
        if self.process is not None:
            self.process.loop.kill()
            self.process.workers.kill()
            self.disk.files.is_dead = True
            self.process.bury()

    def pause(self, seconds: float) -> None:
        """Stops the process for a while, as SIGSTOP does; its disk and peers go on."""
        if self.process is not None:
            self.world.note("pause", f"{seconds:.3f}")
            self.process.loop.paused_until = self.world.now + seconds

    def hurry(self) -> None:
        """Has the broker do now what it does now and then: each minute, or each week."""
        process = self.process
        if process is not None and process.is_serving and not process.is_stopping:
            assert process.broker is not None
            process.loop.call_soon(process.broker.hurry)

    # ---- bugs

    def look_for_bugs(self) -> None:
        """Notes what the process that runs has met in itself."""
        if self.process is not None:
            self._look_for_bugs(self.process)

    def _look_for_bugs(self, process: Process) -> None:
        self.complaints += [f"process {process.number}: {text}" for text in process.loop.failures]
        process.loop.failures.clear()
        if process.metrics.internal_errors:
            self.complaints.append(
                f"process {process.number}: {process.metrics.internal_errors} internal errors"
            )
            process.metrics.internal_errors = 0
