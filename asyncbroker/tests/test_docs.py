"""What the documents say of the repository is true: tests, files, settings and commands that they
name."""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from importlib import import_module
from pathlib import Path

import click
import pytest

from asyncbroker.__main__ import cli
from asyncbroker.handlers import HANDLERS
from asyncbroker.settings import (
    broker_settings,
    group_settings,
    topic_settings,
    unused_settings,
)

ROOT = Path(__file__).parents[2]
NAMES = ("README.md", "ARCHITECTURE.md", "CHANGELOG.md")
DOCUMENTS = [*(ROOT / name for name in NAMES), *sorted((ROOT / "docs").glob("*.md"))]
# Not asyncbroker/protocol and its likes: they lead to these.
FOLDERS = ("asyncbroker", "protocol", "coordinator", "spark", "compat_tests", "scripts", "examples")

TEST = re.compile(r"`(test_\w+\.py)(?:::(test_\w+))?`")
BARE_TEST = re.compile(r"`(test_\w+)`")
FUNCTION = re.compile(r"^\s*(?:async )?def (test_\w+)\(", re.MULTILINE)
FILE = re.compile(r"`([\w./-]+\.(?:py|c|toml))`")
SCRIPT = re.compile(r"\bscripts/[\w.-]*\w")
# A row of a table of settings: the broker's name, perhaps the topic's, and the default.
SETTING = re.compile(r"^\| `([a-z.]+)`(?: \[`([a-z.]+)`\])? \| ([^|]*) \|", re.MULTILINE)
OWN_SETTING = re.compile(r"`(asyncbroker(?:\.[a-z]+)+)`")
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
# In code: at the beginning of a line or of a piece, behind a prompt, at the end of a pipe.
COMMAND = re.compile(r"(?:^|`|^\$ |' \| )asyncbroker ([a-z][^`\n]*)", re.MULTILINE)
PLACEHOLDER = re.compile(r"\[.*")

documents = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
pytestmark = pytest.mark.skipif(
    not (ROOT / "docs").is_dir(), reason="documents are in a checkout only"
)


def files() -> list[Path]:
    found = [*ROOT.glob("*.*")]
    for folder in FOLDERS:
        found += (ROOT / folder).rglob("*.*")
    return found


def known_tests() -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for path in files():
        if path.name.startswith("test_") and path.suffix == ".py":
            found[path.name] |= set(FUNCTION.findall(path.read_text()))
    return found


@documents
def test_every_test_that_is_named_exists(document: Path) -> None:
    known = known_tests()
    for file, test in TEST.findall(document.read_text()):
        assert file in known, file
        assert not test or test in known[file], f"{file}::{test}"


def test_the_attacks_on_logins_are_tests() -> None:
    known = known_tests()["test_login.py"]
    named = BARE_TEST.findall((ROOT / "docs" / "security.md").read_text())
    assert len(named) > 10
    assert not set(named) - known


@documents
def test_every_file_that_is_named_exists(document: Path) -> None:
    text = document.read_text()
    known = [f"/{path.relative_to(ROOT)}" for path in files()]
    for name in FILE.findall(text):
        assert any(path.endswith(f"/{name}") for path in known), name
    for name in SCRIPT.findall(text):
        assert (ROOT / name).exists(), name


@documents
def test_every_place_that_is_linked_to_exists(document: Path) -> None:
    for name, anchor in LINK.findall(document.read_text()):
        target = document.parent / name if name else document
        assert target.exists(), name
        if anchor:
            headings = HEADING.findall(target.read_text())
            assert anchor in map(anchor_of, headings), f"{name}#{anchor}"


def anchor_of(heading: str) -> str:
    """As GitHub makes it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


@documents
def test_every_command_that_is_shown_exists_with_its_options(document: Path) -> None:
    for line in COMMAND.findall(document.read_text()):
        words = shlex.split(PLACEHOLDER.sub("", line).replace("...", ""), comments=True)
        command: click.Command = cli
        context = click.Context(command)
        while words and isinstance(command, click.Group):
            inner = command.get_command(context, words.pop(0))
            assert inner is not None, line
            command = inner
        if "--" in words:
            words = words[: words.index("--")]
        options = {name for each in command.params for name in each.opts}
        for word in words:
            assert not word.startswith("-") or word.partition("=")[0] in options, line


@documents
def test_every_setting_of_our_own_that_is_named_exists(document: Path) -> None:
    for name in OWN_SETTING.findall(document.read_text()):
        assert name in broker_settings() or import_module(name), name


@pytest.mark.parametrize("name", ["storage.md", "security.md"])
def test_settings_have_the_defaults_that_are_told(name: str) -> None:
    rows = SETTING.findall((ROOT / "docs" / name).read_text())
    assert rows
    for setting, topic_name, told in rows:
        assert not topic_name or topic_name in topic_settings(), topic_name
        default = broker_settings()[setting].default
        if told.strip().lstrip("-").replace(".", "").isalnum():
            assert told.strip() == default, setting


def test_settings_without_an_effect_are_all_told_and_no_others() -> None:
    text = (ROOT / "docs" / "settings.md").read_text()
    parts = [set(re.findall(r"^\| `([a-z0-9.]+)` \|", part, re.M)) for part in text.split("\n## ")]
    tables = (topic_settings(), group_settings(), unused_settings())
    unused = [{name for name, each in table.items() if not each.has_effect} for table in tables]
    assert parts[1:] == unused


def test_limits_are_settings() -> None:
    text = (ROOT / "README.md").read_text()
    limits = text[text.index("### Limits") : text.index("## Read on")]
    named = re.findall(r"`([a-z.]+)`", limits)
    assert len(named) > 10
    assert not set(named) - broker_settings().keys()


def test_as_many_apis_are_told_as_there_are() -> None:
    (told,) = re.findall(r"protocol for (\d+) APIs", (ROOT / "CHANGELOG.md").read_text())
    assert int(told) == len(HANDLERS)


def test_the_lines_of_the_log_to_watch_for_are_written() -> None:
    text = (ROOT / "docs" / "storage.md").read_text()
    watched = text[text.index("## What to watch") :]
    told = re.findall(r"`([a-z][a-z, ]+[a-z])`", watched)
    assert len(told) >= 10
    modules = [*(ROOT / "asyncbroker").glob("*.py"), *(ROOT / "asyncbroker" / "log").glob("*.py")]
    source = "".join(path.read_text() for path in modules)
    for line in told:
        assert line in source, line
