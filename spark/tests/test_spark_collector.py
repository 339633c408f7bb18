"""What a worker spares the garbage collector, and who else is left alone."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from asyncbroker.spark import collector
from asyncbroker.spark.collector import SERVES_AGAIN, spare_loaded_modules

LOADED_MIN = 10_000


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    gc.unfreeze()
    collector._freeze_once.cache_clear()
    yield
    gc.unfreeze()
    collector._freeze_once.cache_clear()


def test_a_worker_freezes_what_is_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SERVES_AGAIN, "1")
    spare_loaded_modules()
    frozen = gc.get_freeze_count()
    assert frozen > LOADED_MIN
    made = [[number] for number in range(1000)]
    spare_loaded_modules()
    assert gc.get_freeze_count() <= frozen
    # What is frozen is not among these.
    assert any(each is made for each in gc.get_objects())


def test_what_a_worker_loads_later_is_frozen_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SERVES_AGAIN, "1")
    spare_loaded_modules()
    later = ModuleType("loaded_later")
    monkeypatch.setitem(sys.modules, later.__name__, later)
    spare_loaded_modules()
    assert not any(each is later for each in gc.get_objects())


def test_outside_of_such_workers_nothing_is_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SERVES_AGAIN, raising=False)
    before = gc.get_freeze_count()
    spare_loaded_modules()
    assert gc.get_freeze_count() == before
