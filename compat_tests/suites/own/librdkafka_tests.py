"""Runs the tests of librdkafka that want a broker, and writes their results in JUnit's format:

    python librdkafka_tests.py TESTS_FOLDER RESULTS SCENARIO [NAME...]

Each number is run by a process of its own, since one that takes too long ends its process. What
fails is tried once more, with nothing beside it: some tests measure how long a broker takes.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

# They wait for most of their time.
AT_ONCE = 4
IN_PARTS = ("0081_admin", "0135_sasl_credentials", "0142_reauthentication")
NUMBER_SECONDS_MAX = 600

# _TEST(NAME, FLAGS, ..., .scenario = "SCENARIO")
DECLARED = re.compile(r"(\w+),\s*([\w| ]+)")
SCENARIO = re.compile(r"\.scenario = \"([^\"]+)\"")
FUNCTION = re.compile(
    r"^(?:static )?void\s+(do_test\w*)\([^{;]*\) \{(.*?)^\}", re.MULTILINE | re.DOTALL
)
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True)
class Unit:
    """What a process runs: the tests with a number, or a part of one."""

    number: str
    part: str
    names: list[str]


@dataclass(frozen=True, slots=True)
class Became:
    """What became of a test: "PASSED", "SKIPPED" or "FAILED", and what it said at the end."""

    state: str
    said: str


def wanted(source: str, scenario: str) -> list[str]:
    """The names of the tests of a scenario that want a broker, but for those of share groups."""
    names = []
    for declaration in re.split(r"^    _TEST\(", source, flags=re.MULTILINE)[1:]:
        declared, found = DECLARED.match(declaration), SCENARIO.search(declaration)
        assert declared is not None, declaration
        scenarios = found[1].split(",") if found else ["default"]
        if "_share_consumer_" in declared[1]:
            continue
        if scenario in scenarios and not re.search("TEST_F_(LOCAL|MANUAL)", declared[2]):
            names.append(declared[1])
    return names


def subtests(folder: Path, name: str) -> list[str]:
    """The parts of a test that are run one by one, so that one which fails does not hide others:
    names of functions, or the empty name for all of it. Those of share groups and of OAUTHBEARER
    are not among them."""
    if name not in IN_PARTS:
        return [""]
    source = next(folder.glob(f"{name.replace('_', '-', 1)}.c*")).read_text()
    found = {part for part, body in FUNCTION.findall(source) if "SUB_TEST" in body}
    return sorted(part for part in found if not re.search("_(share|oauthbearer)", part))


def run(folder: Path, scenario: str, unit: Unit) -> dict[str, Became]:
    """Runs the tests of a number, or a part of one."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.json"
        libraries = os.pathsep.join(str(folder.parent / each) for each in ("src", "src-cpp"))
        environment = {
            **os.environ,
            "TESTS": unit.number,
            "TEST_REPORT": str(report),
            "LD_LIBRARY_PATH": libraries,
        }
        # The quick mode leaves out most parts of a test, and is what librdkafka's CI runs.
        quick = [] if unit.part else ["-Q"]
        if unit.part:
            environment["SUBTESTS"] = f"{unit.part}:"
        try:
            done = subprocess.run(
                ["./test-runner", "-p1", "-L", *quick, "-s", scenario],
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=NUMBER_SECONDS_MAX,
            )
            printed = COLOURS.sub("", done.stdout.decode(errors="replace"))
        except subprocess.TimeoutExpired as error:
            printed = COLOURS.sub("", (error.stdout or b"").decode(errors="replace"))
            printed += f"\nnot done in {NUMBER_SECONDS_MAX} s"
        states = json.loads(report.read_text())["tests"] if report.exists() else {}
    (folder / f"own-{unit.number}{unit.part}-{scenario}.log").write_text(printed)
    return {
        f"{name} {unit.part}".strip(): became(states.get(name, {}).get("state"), name, printed)
        for name in unit.names
    }


def became(state: str | None, name: str, printed: str) -> Became:
    """From the state in the runner's report, and what it printed."""
    if state == "PASSED":
        return Became("PASSED", "")
    if state == "SKIPPED":
        row = re.search(rf"^\| {name} +\| +\w+ \| +[\d.]+s \| *(.*)$", printed, re.MULTILINE)
        return Became("SKIPPED", row[1] if row else "")
    failure = re.search(rf'^### Test "{name}.*\n(.*)$', printed, re.MULTILINE)
    return Became("FAILED", failure[1] if failure else printed.strip().rpartition("\n")[2])


def write(results: Path, found: Iterable[tuple[str, Became]]) -> None:
    """Writes them to a file."""
    suite = ElementTree.Element("testsuite")
    for name, each in sorted(found):
        place, _, part = name.partition(" ")
        case = ElementTree.SubElement(suite, "testcase", classname=place, name=part)
        kind = {"SKIPPED": "skipped", "FAILED": "failure"}.get(each.state)
        if kind:
            # A control character is none of XML's.
            message = re.sub(r"[^\t\n -~]", "?", each.said)
            ElementTree.SubElement(case, kind, message=message)
    ElementTree.ElementTree(suite).write(results)


def main() -> None:
    """The command."""
    folder, results, scenario = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    names = wanted((folder / "test.c").read_text(), scenario)
    chosen = [name for name in names if name in sys.argv[4:] or len(sys.argv) == 4]
    units: dict[tuple[str, str], Unit] = {}
    for name in chosen:
        for part in subtests(folder, name):
            number = name.partition("_")[0]
            units.setdefault((number, part), Unit(number, part, [])).names.append(name)

    def run_unit(unit: Unit) -> dict[str, Became]:
        found = run(folder, scenario, unit)
        for name, each in found.items():
            print(f"{name}: {each.state} {each.said}", flush=True)
        return found

    with ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = dict(zip(units, pool.map(run_unit, units.values()), strict=True))
    for key, found in outcomes.items():
        if any(each.state == "FAILED" for each in found.values()):
            outcomes[key] = run_unit(units[key])
    write(results, [item for found in outcomes.values() for item in found.items()])


if __name__ == "__main__":
    main()
