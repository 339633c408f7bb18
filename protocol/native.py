"""The compiled extension, where the installation has it.

It does nothing that Python does not do here too, more slowly; whoever uses it asks whether it is
there, and has another way. It is not there when there was no compiler, and `INTERFACE` tells one
that was built from another state of a checkout.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Final

INTERFACE: Final = 6


def _load() -> ModuleType | None:
    try:
        module = import_module("asyncbroker.protocol._records")
    except ImportError:
        return None
    return module if getattr(module, "INTERFACE", None) == INTERFACE else None


RECORDS: Final = _load()
