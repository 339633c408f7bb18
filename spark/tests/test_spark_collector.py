"""What a task spares the garbage collector, and who else is left alone."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark import TaskContext

from asyncbroker.spark.collector import FROZEN_MIN, spare_loaded_modules


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_a_task_freezes_what_is_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    context: Any = object()
    monkeypatch.setattr(TaskContext, "_taskContext", context)
    spare_loaded_modules()
    frozen = gc.get_freeze_count()
    assert frozen > FROZEN_MIN
    made = [[number] for number in range(1000)]
    spare_loaded_modules()
    assert gc.get_freeze_count() <= frozen
    # What is frozen is not among these.
    assert any(each is made for each in gc.get_objects())


def test_outside_of_a_task_nothing_is_frozen() -> None:
    before = gc.get_freeze_count()
    spare_loaded_modules()
    assert gc.get_freeze_count() == before
