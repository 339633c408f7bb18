"""Whether the layout of a data directory is known.

    .asyncbroker_format    "version: 2", the version of the directory's layout

A newer version is refused, an older one raised before anything is written that it did not know.
"""

from __future__ import annotations

from typing import Final

from asyncbroker.log.errors import DirectoryRefused
from asyncbroker.log.files import Files

FORMAT: Final = ".asyncbroker_format"
# 2: there may be a journal, which must not be passed over after a crash.
FORMAT_VERSION: Final = 2


def check_format(files: Files, directory: str, names: dict[str, int]) -> None:
    """Refuses a directory of a newer version, raising DirectoryRefused; one without a version, or
    with an older one, is of this version from here on."""
    path = f"{directory}/{FORMAT}"
    current = f"version: {FORMAT_VERSION}\n".encode()
    if FORMAT not in names:
        files.write_atomically(path, current)
        return
    text = files.read_whole(path).decode("utf-8", "replace").strip()
    version = text.removeprefix("version: ")
    if not version.isdigit():
        raise DirectoryRefused(f"{path} reads {text!r}, not a version")
    if int(version) > FORMAT_VERSION:
        raise DirectoryRefused(
            f"{directory} was written by a newer asyncbroker (format {version}, this one knows "
            f"{FORMAT_VERSION})"
        )
    if int(version) < FORMAT_VERSION:
        files.write_atomically(path, current)
