"""Brings clients here, from the registries of their languages, each version into a folder of its
own below the cache. What is there already is not fetched again."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SUITES = Path(__file__).parent


class CannotInstall(Exception):
    """A tool that the client's language needs is not here."""


def need(tool: str) -> str:
    """The path of a program; CannotInstall if this machine has none."""
    path = shutil.which(tool)
    if path is None:
        raise CannotInstall(f"needs {tool}")
    return path


def call(command: list[str], folder: Path | None = None) -> None:
    """Runs a program to a good end, or raises with what it said."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")


def python_with(folder: Path, *requirements: str) -> str:
    """The interpreter of a virtual environment that has these packages and nothing else."""
    python = folder / "bin" / "python"
    done = folder / "installed"
    if not done.exists():
        call([sys.executable, "-m", "venv", str(folder)])
        call([str(python), "-m", "pip", "install", "--quiet", *requirements])
        done.touch()
    return str(python)


def python_program(name: str, folder: Path, *requirements: str) -> list[str]:
    """The command of a client's `matrix.py`, with the client in an environment of its own."""
    return [python_with(folder, *requirements), str(SUITES / name / "matrix.py")]


def node_program(name: str, folder: Path, *packages: str) -> list[str]:
    """The command of a client's `matrix.js`, with the client from npm beside a copy of it."""
    node, npm = need("node"), need("npm")
    if not (folder / "installed").exists():
        folder.mkdir(parents=True, exist_ok=True)
        call([npm, "install", "--silent", "--prefix", str(folder), *packages])
        (folder / "installed").touch()
    program = folder / "matrix.js"
    shutil.copy(SUITES / name / "matrix.js", program)
    return [node, str(program)]


def go_program(name: str, folder: Path, *modules: str) -> list[str]:
    """A client's `main.go`, built with these modules."""
    go = need("go")
    folder.mkdir(parents=True, exist_ok=True)
    sources = [SUITES / "go" / "checks.go", SUITES / name / "main.go"]
    texts = [source.read_text() for source in sources]
    if (
        not (folder / "matrix").exists()
        or [(folder / source.name).read_text() for source in sources] != texts
    ):
        for source in sources:
            shutil.copy(source, folder / source.name)
        if not (folder / "go.mod").exists():
            call([go, "mod", "init", "matrix"], folder)
        call([go, "get", *modules], folder)
        (folder / "matrix").unlink(missing_ok=True)
        call([go, "build", "-o", "matrix", "."], folder)
    return [str(folder / "matrix")]


def kafka_classpath(version: str) -> str:
    """The jars of Apache Kafka, resolved from Maven."""
    script = f'source scripts/lib.sh; KAFKA_VERSION={version}; cat "$(need_kafka_classpath)"'
    done = subprocess.run(
        ["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def java_classes(folder: Path, version: str) -> str:
    """A classpath of Apache Kafka's jars, and of the programs here compiled against them."""
    javac, jars = need("javac"), kafka_classpath(version)
    sources = sorted((SUITES / "java").glob("*.java"))
    stamp = "".join(source.read_text() for source in sources)
    if not (folder / "compiled").exists() or (folder / "compiled").read_text() != stamp:
        folder.mkdir(parents=True, exist_ok=True)
        call([javac, "-nowarn", "-d", str(folder), "-cp", jars, *map(str, sources)])
        (folder / "compiled").write_text(stamp)
    return f"{folder}:{jars}"
