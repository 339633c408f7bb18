"""What the documents say of the repository is true: tests, settings and files that they name."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

from asyncbroker.settings import broker_settings, topic_settings

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").glob("*.md"))]

TEST = re.compile(r"`(test_\w+\.py)(?:::(test_\w+))?`")
FUNCTION = re.compile(r"^\s*(?:async )?def (test_\w+)\(", re.MULTILINE)
# A row of a table of settings: the broker's name, perhaps the topic's, and the default.
SETTING = re.compile(r"^\| `([a-z.]+)`(?: \[`([a-z.]+)`\])? \| ([^|]*) \|", re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")

pytestmark = pytest.mark.skipif(
    not (ROOT / "docs").is_dir(), reason="documents are in a checkout only"
)


def known_tests() -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for folder in ("asyncbroker", "protocol", "coordinator", "spark", "compat_tests"):
        for path in (ROOT / folder).rglob("test_*.py"):
            found[path.name] |= set(FUNCTION.findall(path.read_text()))
    return found


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_test_that_is_named_exists(document: Path) -> None:
    known = known_tests()
    for file, test in TEST.findall(document.read_text()):
        assert file in known, file
        assert not test or test in known[file], f"{file}::{test}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_file_that_is_linked_to_exists(document: Path) -> None:
    for target in LINK.findall(document.read_text()):
        assert (document.parent / target).exists(), target


def test_the_settings_of_storage_have_the_defaults_that_are_told() -> None:
    rows = SETTING.findall((ROOT / "docs" / "storage.md").read_text())
    assert len(rows) > 15
    for name, topic_name, told in rows:
        setting = broker_settings()[name]
        assert not topic_name or topic_name in topic_settings(), topic_name
        if told.strip().lstrip("-").replace(".", "").isalnum():
            assert told.strip() == setting.default, name
