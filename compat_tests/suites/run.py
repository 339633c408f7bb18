"""Runs a suite's program against a broker."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from compat_tests.suites.install import ROOT
from compat_tests.suites.suite import Result, Suite

FEATURE_SECONDS_MAX = 150
SUITE_SECONDS_MAX = 600
# On a busy machine clients have troubles of their own: kafka-python's poll can lose its wake-up.
RETRIES = 2
NOTHING: Mapping[str, str] = MappingProxyType({})


def run_suite(
    suite: Suite, command: list[str], servers: str, about: Mapping[str, str] = NOTHING
) -> dict[str, Result]:
    """What became of every feature. What fails is tried again in a process of its own, as is what
    comes after a feature that took all the time. `about` goes to the environment."""
    results = run_features(command, servers, suite.present(), SUITE_SECONDS_MAX, about)
    for _ in range(RETRIES):
        for feature, result in results.items():
            if result.outcome == "failed":
                print(f"  {feature}: failed {result.note}; again", file=sys.stderr)
                results |= run_features(command, servers, [feature], FEATURE_SECONDS_MAX, about)
    results |= {feature: Result("absent", why) for feature, why in suite.absent.items()}
    for feature in suite.features:
        print(f"  {feature}: {results[feature].outcome} {results[feature].note}", file=sys.stderr)
    return results


def run_features(
    command: list[str],
    servers: str,
    features: list[str],
    seconds_max: float,
    about: Mapping[str, str] = NOTHING,
) -> dict[str, Result]:
    """What a program says of features, one after the other."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore", **about}
    with tempfile.TemporaryFile("w+") as words, tempfile.TemporaryFile("w+") as troubles:
        process = subprocess.Popen(
            [*command, servers, *features],
            stdout=words,
            stderr=troubles,
            env=environment,
            start_new_session=True,
        )
        try:
            missing = f"the program ended with status {process.wait(seconds_max)}"
        except subprocess.TimeoutExpired:
            missing = f"not done in {seconds_max:.0f} s"
        finally:
            end_session(process)
        for file in (words, troubles):
            file.seek(0)
        # One that was ended may have been in the middle of a line.
        said = [json.loads(line) for line in words if line.startswith("{") and line.endswith("\n")]
        if last := troubles.read().strip().rpartition("\n")[2]:
            missing += f": {last}"
    results = {each["feature"]: Result(each["outcome"], each["note"]) for each in said}
    return {feature: results.get(feature, Result("failed", missing)) for feature in features}


def end_session(process: subprocess.Popen[bytes]) -> None:
    """Ends a program, and what it has started and left behind."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def save(results: Mapping[str, Result], path: Path, *names: str) -> None:
    """Keeps the results of one run, of a client, a version and a broker, for the report."""
    kept = json.loads(path.read_text()) if path.exists() else {}
    kept[" ".join(names)] = {
        feature: [result.outcome, result.note] for feature, result in results.items()
    }
    path.write_text(json.dumps(kept, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def load(path: Path, *names: str) -> dict[str, Result]:
    """The results of one run; none if there was none."""
    kept = json.loads(path.read_text()) if path.exists() else {}
    return {feature: Result(*row) for feature, row in kept.get(" ".join(names), {}).items()}
