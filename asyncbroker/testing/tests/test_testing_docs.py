"""The snippets of docs/testing.md are tests, and pass."""

from __future__ import annotations

import re
from pathlib import Path

import asyncbroker
from asyncbroker.testing.profile import TEST_PROFILE
from asyncbroker.testing.tests.testing_harness import run_pytest

DOCS = Path(asyncbroker.__file__).resolve().parent.parent / "docs" / "testing.md"


def test_every_snippet_of_the_page_on_testing_passes(tmp_path: Path) -> None:
    text = DOCS.read_text(encoding="utf-8")
    snippets = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    (settings,) = re.findall(r"^```ini\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    (tmp_path / "pytest.ini").write_text(settings.replace("auto.create.topics.enable=false", ""))
    for number, snippet in enumerate(snippets):
        (tmp_path / f"test_snippet_{number}.py").write_text(snippet)
    tests = sum(
        len(re.findall(r"^(?:    )?(?:async )?def test_", snippet, re.MULTILINE))
        for snippet in snippets
    )
    result = run_pytest(
        tmp_path,
        "",
        "-o",
        "asyncio_mode=auto",
        "-o",
        "asyncio_default_fixture_loop_scope=function",
        "-W",
        "error",
    )
    assert f"{tests} passed" in result.stdout, result.stdout
    assert tests >= 10


def test_the_settings_of_the_test_profile_are_told() -> None:
    told = dict(re.findall(r"`([a-z.]+)=(\w+)`", DOCS.read_text(encoding="utf-8")))
    assert dict(TEST_PROFILE).items() <= told.items()
