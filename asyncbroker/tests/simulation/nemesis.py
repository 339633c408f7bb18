"""What goes wrong in a run: crashes of every kind, a disk that fails, fills up or is slow, a
network that cuts, a clock that jumps.

Each seed has its own mix, of few kinds or of many: what never meets anything else in one run may
meet its partner in the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Set
from typing import Final

from asyncbroker.tests.history.history import End, Ended, History
from asyncbroker.tests.simulation.client import place_of
from asyncbroker.tests.simulation.damage import flip_bit
from asyncbroker.tests.simulation.disk import DiskSpeed
from asyncbroker.tests.simulation.machine import Machine
from asyncbroker.tests.simulation.network import Network

# From one fault to the next.
PAUSE_SECONDS_MAX: Final = 0.8

RESTART_SECONDS_MAX: Final = 0.5

# How often, with a fault, the broker's chores all become due, which are due each minute or week.
HURRY_CHANCE: Final = 0.1

# How many calls to the files a process that is to die in one of them makes before, at most.
CALLS_MAX: Final = 150

_ENDS: Final = {"stop": End.STOP, "kill": End.KILL, "power": End.POWER}

# Of one partition: where many are near one another, what lies between them is given up.
DAMAGED_MAX: Final = 4

# A run that has seen so many has come to nothing yet, and is left in peace for the rest: whether it
# goes on then is what it can still tell.
FAULTS_MAX: Final = 200


class Nemesis:
    """Does it, and counts it."""

    def __init__(
        self, machine: Machine, network: Network, history: History, damageable: Set[str]
    ) -> None:
        """`damageable`: the topics of which a bit may flip."""
        self._machine = machine
        self._network = network
        self._history = history
        self._damageable = damageable
        self._world = machine.world
        self._random = machine.world.random
        self.counts: Counter[str] = Counter()
        self._is_ending = False
        self._restarts_wanted = 0
        self._flips_wanted = 0
        kinds: dict[str, Callable[[], None]] = {
            "kill": lambda: machine.kill(power=False),
            "power loss": lambda: machine.kill(power=True),
            "kill in a call": lambda: machine.kill_in(
                self._random.randrange(CALLS_MAX), power=False
            ),
            "power loss in a call": lambda: machine.kill_in(
                self._random.randrange(CALLS_MAX), power=True
            ),
            "stop": machine.stop,
            "pause": lambda: machine.pause(self._world.between(0.1, 3.0)),
            "failed sync": lambda: self._fail("sync"),
            "failed write": lambda: self._fail("write"),
            "failed read": lambda: self._fail("read"),
            "failed commit": self._fail_commits,
            "full disk": self._fill_disk,
            "flipped bit": self._flip_bit,
            "slow disk": self._slow_disk,
            "cuts": self._cut,
            "silence": self._silence,
            "no network": self._no_network,
            "clock jump": self._jump,
        }
        names = list(kinds)
        chosen = self._random.sample(names, self._random.choice([2, 4, 8, len(names)]))
        self._all_kinds = kinds
        self._kinds: dict[str, Callable[[], None]] = {}
        self.do_only([name for name in names if name in chosen])
        machine.on_gone = self._on_gone

    @property
    def count(self) -> int:
        """How many faults there were."""
        return sum(self.counts.values())

    def do_only(self, kinds: list[str]) -> None:
        """Chooses what goes wrong."""
        self._kinds = {name: self._all_kinds[name] for name in kinds}

    def begin(self) -> None:
        """Lets it go wrong from now on."""
        self._world.after(self._world.between(0.1, PAUSE_SECONDS_MAX), self._strike)

    def end(self) -> None:
        """Mends everything. The broker is started once more: what had failed it needs that."""
        self._is_ending = True
        self._machine.disk.heal()
        self._network.is_down = False
        for wire in list(self._network.wires):
            if wire.is_silent:
                wire.lost()
        self._restarts_wanted = 1
        self._go_on_ending()

    def is_calm(self) -> bool:
        """Whether the broker serves, and nothing more will happen to it, such as a stop."""
        process = self._machine.process
        is_there = process is not None and process.is_serving and not process.is_stopping
        return self._is_ending and not self._restarts_wanted and is_there

    def _go_on_ending(self) -> None:
        """Stops the broker in order once it serves."""
        process = self._machine.process
        if process is not None:
            process.loop.paused_until = 0.0
        if self._machine.is_serving:
            self._restarts_wanted = 0
            self._machine.stop()
        else:
            self._world.after(0.1, self._go_on_ending)

    def _strike(self) -> None:
        if self._is_ending or self.count == FAULTS_MAX:
            return
        name = self._random.choice(list(self._kinds))
        if self._machine.is_serving or name in ("kill", "kill in a call", "power loss"):
            self.counts[name] += 1
            self._world.note("fault:", name)
            self._kinds[name]()
        if self._random.random() < HURRY_CHANCE:
            self._machine.hurry()
        self._world.after(self._world.between(0.05, PAUSE_SECONDS_MAX), self._strike)

    def _on_gone(self, how: str) -> None:
        """The process has ended: another one is started."""
        end = _ENDS.get(how, End.KILL)
        # What a failed disk has not written is lost as with the power.
        has_failed = bool(self._machine.disk.failed_calls)
        self._history.add(Ended(End.POWER if has_failed else end, self._world.now))
        self._machine.disk.failing.clear()
        if how == "refused":
            # Whoever looks after the machine sees to the disk.
            self._machine.disk.heal()
        self._machine.disk.failed_calls.clear()
        self._machine.disk.has_failed_commit = False
        while self._flips_wanted:
            self._flips_wanted -= 1
            self._damage()
        self._world.after(self._world.between(0.0, RESTART_SECONDS_MAX), self._machine.start)

    # ---- disk

    def _fail(self, kind: str) -> None:
        disk = self._machine.disk
        disk.failing[kind] += self._random.randint(1, 3)
        self._restart_later()

    def _restart_later(self) -> None:
        """A directory or partition that has gone offline needs a restart."""
        process = self._machine.process

        def restart() -> None:
            if self._machine.process is process and not self._is_ending:
                self._machine.disk.failing.clear()
                if self._random.random() < 0.5:
                    self._machine.stop()
                else:
                    self._machine.kill(power=self._random.random() < 0.5)

        self._world.after(self._world.between(0.2, 2.0), restart)

    def _fail_commits(self) -> None:
        self._machine.disk.failing["metadata"] += self._random.randint(1, 3)

    def _flip_bit(self) -> None:
        """What a broker that runs has in memory is not damaged with the disk: it is ended."""
        self._flips_wanted += 1
        if self._random.random() < 0.5:
            self._machine.stop()
        else:
            self._machine.kill(power=self._random.random() < 0.5)

    def _damage(self) -> None:
        files = self._machine.disk.files
        damage = flip_bit(files, self._damageable, self._is_damaged_enough, self._random)
        if damage is not None:
            place = place_of(damage.topic, damage.partition)
            self._world.note("damages", place, damage.first, damage.end)
            self._history.damaged.setdefault(place, []).append((damage.first, damage.end))

    def _is_damaged_enough(self, topic: str, partition: int) -> bool:
        return len(self._history.damaged.get(place_of(topic, partition), ())) >= DAMAGED_MAX

    def _fill_disk(self) -> None:
        disk = self._machine.disk
        disk.is_full = True
        self._world.after(self._world.between(0.05, 2.0), self._empty_disk)

    def _empty_disk(self) -> None:
        self._machine.disk.is_full = False

    def _slow_disk(self) -> None:
        disk = self._machine.disk
        disk.speed = DiskSpeed(0.05, self._world.between(0.1, 3.0))
        self._world.after(self._world.between(0.5, 4.0), self._usual_disk)

    def _usual_disk(self) -> None:
        self._machine.disk.speed = DiskSpeed()

    # ---- network and clock

    def _cut(self) -> None:
        for wire in list(self._network.wires):
            if self._random.random() < 0.6:
                self._network.cut(wire)

    def _silence(self) -> None:
        for wire in list(self._network.wires):
            if self._random.random() < 0.4:
                self._network.silence(wire)

    def _no_network(self) -> None:
        self._network.is_down = True
        for wire in list(self._network.wires):
            self._network.silence(wire)
        self._world.after(self._world.between(0.1, 2.0), self._network_again)

    def _network_again(self) -> None:
        self._network.is_down = False

    def _jump(self) -> None:
        days = self._random.choice([-400, -1, -0.01, 0.01, 1, 400])
        self._machine.wall.base_ms += int(days * 86_400_000)
