"""What a broker has promised survives a crash before any change of its files.

Each scenario of `crash_scenarios.py` is lived through once. At each change that its files saw, the
machine comes back as what it may be after `kill -9` and after several losses of power; the broker
starts on that, all promises are checked, it works a little and stops. Some of these second lives
are crashed again at a change of theirs, which is mostly one of recovery. With ASYNCBROKER_LONG=1
there are more states of each moment, and more second crashes.
"""

from __future__ import annotations

from random import Random

import pytest

from asyncbroker.config import BrokerConfig
from asyncbroker.log.tests.crash_disk import everything, sampled, synced_only
from asyncbroker.tests.crash_machine import SMALL_JOURNAL, Machine, Point
from asyncbroker.tests.crash_scenarios import SCENARIOS, Scenario, work_on
from asyncbroker.tests.long import IS_LONG

# Machines at each change; of each so many changes at which they crash again, to so many machines.
STATES, SECOND_CRASHES, SECOND_STATES = (16, 6, 3) if IS_LONG else (2, 1, 1)


def machines_after(point: Point, at: int, random: Random) -> list[Machine]:
    """What to look at of a crash at a point. In a short run that is a mixture; and at every other
    point, in turns, what was synced, everything, and what a killed process leaves."""
    if IS_LONG:
        return point.crashes(STATES, random)
    extreme = (point.killed, lambda: point.crashed(synced_only), lambda: point.crashed(everything))
    mixture = point.crashed(sampled(random))
    return [mixture] if at % 2 else [mixture, extreme[at % 3]()]


def explore(scenario: Scenario, random: Random) -> int:
    """Crashes a scenario everywhere; the number of states that a broker was started on."""
    machine = Machine(BrokerConfig.from_settings({**SMALL_JOURNAL, **scenario.settings}))
    if scenario.before is not None:
        machine.live(scenario.before, keeps_points=False)
    points = machine.live(scenario.script)
    assert not scenario.change or scenario.change in [point.next_change for point in points]
    count = 0
    for at, point in enumerate(points):
        for number, after in enumerate(machines_after(point, at, random)):
            place = f"before change {at} ({point.next_change}), state {number}"
            is_crashed_again = IS_LONG or (number == 0 and at % 5 == 0)
            count += 1
            try:
                again = after.live(work_on, keeps_points=is_crashed_again, stops=is_crashed_again)
            except AssertionError as error:
                raise AssertionError(f"{place}: {error}") from error
            for second in random.sample(again, min(SECOND_CRASHES, len(again))):
                for last in second.crashes(SECOND_STATES + 1, random)[1:]:
                    count += 1
                    try:
                        last.live(work_on, keeps_points=False, stops=IS_LONG)
                    except AssertionError as error:
                        place += f", and before {second.next_change}"
                        raise AssertionError(f"{place}: {error}") from error
    return count


@pytest.mark.timeout(1800 if IS_LONG else 120)
@pytest.mark.parametrize("name", [name for name in SCENARIOS if IS_LONG or name != "everything"])
def test_every_promise_survives_a_crash_before_every_change(name: str) -> None:
    assert explore(SCENARIOS[name], Random(1)) > 100
