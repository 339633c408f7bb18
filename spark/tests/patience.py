"""Another try for a stream whose worker did not start in time.

Spark gives the worker of a Python source ten seconds from its start to its first words, which a
machine that does much else may not have. Nothing has been read or written by then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pyspark.errors import StreamingQueryException

TRIES = 6

Result = TypeVar("Result")


def patiently(action: Callable[[], Result]) -> Result:
    """The result of `action`, which is made again if a worker came too late."""
    for _ in range(TRIES - 1):
        try:
            return action()
        except StreamingQueryException as error:
            if "worker failed to connect back" not in str(error):
                raise
    return action()
