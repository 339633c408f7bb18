"""Runs a suite's program against a broker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from compat_tests.suites.install import ROOT
from compat_tests.suites.suite import Result, Suite

FEATURE_SECONDS_MAX = 150
SUITE_SECONDS_MAX = 600
# On a busy machine clients have troubles of their own: kafka-python's poll can lose its wake-up.
RETRIES = 2


def run_suite(suite: Suite, version: str, command: list[str], servers: str) -> dict[str, Result]:
    """What became of every feature. What fails is tried again in a process of its own, as is what
    comes after a feature that took all the time."""
    present = [name for name in suite.features if suite.why_absent(version, name) is None]
    tried = run_features(command, servers, present, SUITE_SECONDS_MAX)
    for _ in range(RETRIES):
        for feature, result in tried.items():
            if result.outcome == "failed":
                tried |= run_features(command, servers, [feature], FEATURE_SECONDS_MAX)
    results: dict[str, Result] = {}
    for feature in suite.features:
        results[feature] = tried.get(feature) or Result(
            "absent", suite.why_absent(version, feature) or ""
        )
        print(f"  {feature}: {results[feature].outcome} {results[feature].note}", file=sys.stderr)
    return results


def run_features(
    command: list[str], servers: str, features: list[str], seconds_max: float
) -> dict[str, Result]:
    """What a program says of features, one after the other."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    with tempfile.TemporaryFile("w+") as words:
        try:
            subprocess.run(
                [*command, servers, *features],
                stdout=words,
                stderr=subprocess.DEVNULL,
                timeout=seconds_max,
                env=environment,
            )
        except subprocess.TimeoutExpired:
            late = f"not done in {seconds_max:.0f} s"
        else:
            late = "the program ended without a word of it"
        words.seek(0)
        said = [json.loads(line) for line in words if line.startswith("{")]
    results = {each["feature"]: Result(each["outcome"], each["note"]) for each in said}
    return {feature: results.get(feature, Result("failed", late)) for feature in features}


def save(results: dict[str, Result], path: Path) -> None:
    """Keeps the results of one run for the report."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = {feature: [result.outcome, result.note] for feature, result in results.items()}
    path.write_text(json.dumps(rows, indent=1))


def load(path: Path) -> dict[str, Result]:
    """The results of one run."""
    return {name: Result(*row) for name, row in json.loads(path.read_text()).items()}
