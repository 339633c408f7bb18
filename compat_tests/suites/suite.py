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

    `absent` has what the client cannot do, `expected` the outcome that is known where that is not
    "passed", `older` the same for single versions; each with the reason, by feature. A check that
    finds by itself that there is nothing to try is "absent" too, and as unexpected as one that
    fails. `without` tells what of the client's own tests is left out, and why. `settings` are those
    of a broker that it does not share with the others.
    """

    name: str
    versions: tuple[str, ...]
    origin: str
    prepare: Prepare
    features: Mapping[str, str] = field(default_factory=lambda: FEATURES)
    absent: Mapping[str, str] = field(default_factory=dict)
    expected: Mapping[str, Result] = field(default_factory=dict)
    older: Mapping[str, Mapping[str, Result]] = field(default_factory=dict)
    without: Mapping[str, str] = field(default_factory=dict)
    settings: tuple[str, ...] = ()

    def present(self) -> list[str]:
        """The features that the client has."""
        return [feature for feature in self.features if feature not in self.absent]

    def known(self, version: str, feature: str) -> Result:
        """What is known to become of a feature with this broker, and why if it does not work."""
        if feature in self.absent:
            return Result("absent", self.absent[feature])
        of_version = self.older.get(version, {})
        return of_version.get(feature) or self.expected.get(feature) or Result("passed")

    def is_expected(self, version: str, feature: str, result: Result) -> bool:
        """Whether this broker may give this result."""
        return result.outcome == self.known(version, feature).outcome
