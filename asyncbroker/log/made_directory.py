"""Makes directories so that a crash does not take them, with all that is synced in them."""

from __future__ import annotations

import logging
import os

from asyncbroker.log.files import Files

logger = logging.getLogger(__name__)


def make_directory(files: Files, path: str) -> None:
    """Makes a directory, durably: all that is synced in it would be lost with its name."""
    missing: list[str] = []
    while path and not files.exists(path):
        missing.append(path)
        path = os.path.dirname(path)
    if path:
        try:
            # A start that was killed may have made it, and come no further.
            files.sync_directory(os.path.dirname(path) or os.curdir)
        except OSError as error:
            # Whoever made a directory in another one that is closed to us was not us.
            logger.warning("the directory that %s is in could not be synced: %s", path, error)
    for missed in reversed(missing):
        files.make_directory(missed)
        files.sync_directory(os.path.dirname(missed) or os.curdir)
