"""Keeps Python's garbage collector from going over what a worker of Spark's has loaded.

After each task a worker collects garbage, and the next task waits for that. Nearly all that is gone
over are modules: PySpark, pandas, pyarrow, ours, which took 60 ms of CPU (some 84,000 objects)
beside a second or so that a task reads. They stay for as long as the process lives; frozen, they
are left out, and a collection takes next to nothing.

Only in a task: in other processes the collector is somebody else's.
"""

from __future__ import annotations

import gc
from typing import Final

from pyspark import TaskContext

FROZEN_MIN: Final = 10_000
"""So many objects are not frozen by chance: it has been done."""


def spare_loaded_modules() -> None:
    """Freezes what there is, once in the life of a worker; to be called when a task has imported
    all that it needs."""
    if TaskContext.get() is not None and gc.get_freeze_count() < FROZEN_MIN:
        gc.freeze()
