"""CRC-32C, which guards record batches and our own files.

The function is that of the `crc32c` package. Its compiled module is loaded from beside the
package's front, because the front looks up its own version with `importlib.metadata`, and that
alone would be a fifth of what a broker imports to start. Should the package be laid out differently
one day, the front is used.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec

Crc32c = Callable[..., int]


def _load() -> Crc32c:
    package = find_spec("crc32c")
    places = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec("_crc32c", places) if places else None
    if spec is not None and spec.loader is not None:
        compiled = module_from_spec(spec)
        spec.loader.exec_module(compiled)
        if hasattr(compiled, "crc32c"):
            function: Crc32c = compiled.crc32c
            return function
    from crc32c import crc32c

    return crc32c


crc32c = _load()
"""`crc32c(data, value=0)`: the checksum of `data`, continued from that of what came before it."""
