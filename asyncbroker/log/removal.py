"""Removes a directory in steps: it may hold terabytes, and a step is one job of a worker thread."""

from __future__ import annotations

from typing import Final

from asyncbroker.log.files import Files

# What one step removes: another file is begun as long as it is less.
STEP_BYTES: Final = 256 << 20
STEP_FILES: Final = 64


def remove_some(files: Files, path: str) -> bool:
    """Removes a part of the directory, or what is left of it; tells whether something is left."""
    if not files.exists(path):
        return False
    sizes = files.list_files(path)
    size = 0
    for count, name in enumerate(sorted(sizes)):
        if size >= STEP_BYTES or count >= STEP_FILES:
            return True
        files.remove(f"{path}/{name}")
        size += sizes[name]
    files.remove_tree(path)
    return False
