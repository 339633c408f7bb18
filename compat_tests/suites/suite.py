"""What a suite is: a client in some versions, and a program that tries its features."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from compat_tests.suites.features import FEATURES

Prepare = Callable[[str, Path], list[str]]
"""Installs a version of the client below a folder, and returns the command of its program."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one feature: "passed", "refused", "failed" or "absent", and why."""

    outcome: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Suite:
    """A client: its versions, where its checks come from, and what they are expected to say.

    `absent` has what the client cannot do, `expected` the outcome that this broker is known to give
    where that is not "passed"; each with the reason. Both are by feature.
    """

    name: str
    versions: tuple[str, ...]
    origin: str
    prepare: Prepare
    features: Mapping[str, str] = field(default_factory=lambda: FEATURES)
    absent: Mapping[str, str] = field(default_factory=dict)
    expected: Mapping[str, Result] = field(default_factory=dict)

    def present(self) -> list[str]:
        """The features that the client has."""
        return [feature for feature in self.features if feature not in self.absent]

    def is_expected(self, feature: str, result: Result) -> bool:
        """Whether this broker may give this result."""
        wanted = self.expected.get(feature, Result("passed")).outcome
        return result.outcome in (wanted, "absent")
