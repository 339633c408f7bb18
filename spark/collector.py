"""Keeps Python's garbage collector from going over what a worker of Spark's has loaded.

A worker that serves again collects garbage after each thing it has done, and the next one waits for
that. Nearly all that is gone over are modules: PySpark, pyarrow, ours, which takes 20 to 60 ms of
CPU (some 84,000 objects) beside a second or so that a task reads. They stay for as long as the
process lives; frozen, they are left out, and a collection takes next to nothing.

The first task loads some of them while it runs, so what is loaded is looked at by each one. Only in
such workers, be it for tasks or for plans: in other processes the collector is somebody else's.
"""

from __future__ import annotations

import gc
import os
import sys
from functools import cache
from typing import Final

SERVES_AGAIN: Final = "SPARK_REUSE_WORKER"
"""What Spark sets in the environment of workers that collect garbage after what they have done."""


def spare_loaded_modules() -> None:
    """Freezes what there is, if something has been loaded since the last time; to be called when a
    worker has imported what it needs, as far as that can be told beforehand."""
    if os.environ.get(SERVES_AGAIN):
        _freeze_once(len(sys.modules))


@cache
def _freeze_once(module_count: int) -> None:
    # To ask how much is frozen would take as long as a small collection: all of it is counted.
    gc.freeze()
