"""File systems that are mounted for a test, and gone with the process that has mounted them."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Final

# Its input ends when the process does that has started it, even with `kill -9`.
_WHEN_WE_ARE_GONE: Final = 'trap "" HUP INT TERM; read -r _; exec umount -l "$1"'


class Mount:
    """A file system at `path`, until it is unmounted or this process ends. Takes root, and Linux.
    Options and what is mounted are given as `mount` takes them."""

    def __init__(self, path: Path, *what: str) -> None:
        self.path = path
        command = ["sh", "-c", _WHEN_WE_ARE_GONE, "sh", str(path)]
        # In a session of its own: whoever ends all of ours at once does not end it.
        self._watcher = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        with ExitStack() as undone:
            undone.callback(self._end_watch)
            run_command("mount", *what, str(path))
            undone.pop_all()

    def unmount(self) -> None:
        """Unmounts it; an AssertionError while a file in it is open."""
        run_command("umount", str(self.path))
        self._end_watch()

    def _end_watch(self) -> None:
        self._watcher.kill()
        self._watcher.wait()
        assert self._watcher.stdin is not None
        self._watcher.stdin.close()


def run_command(*command: str) -> None:
    """Runs a program; an AssertionError says why if it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stderr}"
