"""House rules that a linter does not know: lengths, docstrings, unfinished work, bare imports.

Prints each breach as `file:line: what` and exits with 1 when there is any. Exceptions are listed
here with their reason, so that each one is a decision.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE_LINES_MAX = 500
# A file of tests is a list; it is read by searching it.
TEST_FILE_LINES_MAX = 750
FUNCTION_LINES_MAX = 70
# Where a longer file is one thing; each with its reason.
LONG_FILES: dict[str, str] = {}
LONG_FUNCTIONS: dict[str, str] = {}
BARE_NAMES = {"protocol", "coordinator", "spark"}
UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b")


def files_of(*patterns: str) -> list[Path]:
    listing = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", *patterns],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return sorted(ROOT / name for name in listing.split("\n") if name and (ROOT / name).is_file())


def is_test(name: str) -> bool:
    return "/tests/" in name or name.startswith("compat_tests/")


def breaches_of(path: Path) -> list[str]:
    name = str(path.relative_to(ROOT))
    text = path.read_text(encoding="utf-8")
    lines = text.split("\n")
    tree = ast.parse(text)
    found = [
        f"{name}:{number}: unfinished work: {line.strip()[:60]}"
        for number, line in enumerate(lines, 1)
        if UNFINISHED.search(line) and name != "scripts/tidy.py"
    ]
    lines_max = TEST_FILE_LINES_MAX if is_test(name) else FILE_LINES_MAX
    if len(lines) > lines_max + 1 and name not in LONG_FILES:
        found.append(f"{name}:1: {len(lines)} lines, more than {lines_max}")
    if not ast.get_docstring(tree) and len(lines) > 5:
        found.append(f"{name}:1: no docstring says what this file is")
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not is_test(name):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES_MAX and f"{name}:{node.name}" not in LONG_FUNCTIONS:
                found.append(f"{name}:{node.lineno}: {node.name} has {length} lines")
        imported = []
        if isinstance(node, ast.Import):
            imported = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            imported = [node.module]
        found += [
            f"{name}:{node.lineno}: import {module} from asyncbroker, not bare"
            for module in imported
            if module.split(".")[0] in BARE_NAMES
        ]
    return found


def lengths_of_c(path: Path) -> list[str]:
    name = str(path.relative_to(ROOT))
    count = path.read_text(encoding="utf-8").count("\n")
    if count <= FILE_LINES_MAX or name in LONG_FILES:
        return []
    return [f"{name}:1: {count} lines, more than {FILE_LINES_MAX}"]


def main() -> int:
    found = [breach for path in files_of("*.py") for breach in breaches_of(path)]
    found += [breach for path in files_of("*.c", "*.h") for breach in lengths_of_c(path)]
    print("\n".join(found) if found else "house rules hold")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
