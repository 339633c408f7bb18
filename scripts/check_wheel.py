"""Builds the sdist and, from it, the wheel, and compares the wheel with the tree.

The packages are listed by hand in pyproject.toml; a package that is missing there would be left out
silently. So: the wheel holds every module that is not a test, and nothing else but the compiled
extensions, which it has to hold where there is a compiler: one of them on Linux only.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = {
    "asyncbroker": "asyncbroker",
    "protocol": "asyncbroker/protocol",
    "coordinator": "asyncbroker/coordinator",
    "spark": "asyncbroker/spark",
}
# PySpark finds this one by its name at the top level; it lies in spark/ and so is there as well.
TOP_LEVEL = "pyspark_asyncbroker.py"
EXTENSIONS = ["asyncbroker/protocol/_records"]
if sys.platform == "linux":
    EXTENSIONS.append("asyncbroker/log/_writer")


def expected_modules() -> set[str]:
    modules = {TOP_LEVEL}
    for folder, installed in FOLDERS.items():
        for path in (ROOT / folder).rglob("*.py"):
            relative = path.relative_to(ROOT / folder)
            through_symlink = folder == "asyncbroker" and relative.parts[0] in FOLDERS
            is_test = "tests" in relative.parts or relative.name == "conftest.py"
            if not through_symlink and not is_test:
                modules.add(f"{installed}/{relative}")
    return modules


def built_modules(out: Path) -> set[str]:
    subprocess.run(
        [sys.executable, "-m", "build", "--outdir", str(out), str(ROOT)],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT if "-v" not in sys.argv else None,
    )
    (wheel,) = out.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        built = (name for name in archive.namelist() if name.endswith((".so", ".pyd")))
        names = sorted(name.split(".")[0] for name in built)
        extensions = sorted(EXTENSIONS) if shutil.which("cc") else []
        if names != extensions:
            sys.exit(f"the wheel holds the extensions {names}, not {extensions}")
        return {name for name in archive.namelist() if name.endswith(".py")}


def main() -> int:
    with tempfile.TemporaryDirectory() as out:
        built = built_modules(Path(out))
    expected = expected_modules()
    for name in sorted(expected - built):
        print(f"missing from the wheel: {name}")
    for name in sorted(built - expected):
        print(f"should not be in the wheel: {name}")
    if built != expected:
        return 1
    print(f"the wheel holds the {len(built)} modules of the tree")
    return 0


if __name__ == "__main__":
    sys.exit(main())
