"""What the transcripts of both protocols have in common: files that are stories, run anew and held
against what they say, and how an effect is shown. The commands are in the two tests.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from asyncbroker.coordinator.effects import Append, Effect, Note, Record, Reply
from asyncbroker.coordinator.tests.group_scenario import Token


def transcripts(folder: str) -> list[Path]:
    """The stories in a folder, of which there are some."""
    found = sorted((Path(__file__).parent / folder).glob("*.txt"))
    assert found
    return found


def hold_against(path: Path, run: Callable[[str], str], request: pytest.FixtureRequest) -> None:
    """A story is told anew as it is written, or written anew."""
    expected = path.read_text()
    actual = run(expected)
    if request.config.getoption("--rewrite-transcripts", default=False):
        path.write_text(actual)
    else:
        assert actual == expected


def show(
    effect: Effect, record: Callable[[Record], str], reply: Callable[[Token, Any], str]
) -> list[str]:
    """The lines of an effect."""
    if isinstance(effect, Note):
        return [f"note   {effect.group_id}: {effect.text}"]
    if isinstance(effect, Append):
        return [f"append {record(each)}" for each in effect.records]
    assert isinstance(effect, Reply)
    assert isinstance(effect.token, Token)
    return [f"reply  {reply(effect.token, effect.response)}"]
