"""Brings clients here, from the registries of their languages, each version into a folder of its
own below the cache. What is there already, made of the same things, is not made again."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
SUITES = Path(__file__).parent


class CannotInstall(Exception):
    """A client is not here and cannot be brought here, and why."""


def need(tool: str) -> str:
    """The path of a program."""
    path = shutil.which(tool)
    if path is None:
        raise CannotInstall(f"it needs {tool}, which is not installed")
    return path


def call(command: list[str], folder: Path | None = None) -> str:
    """Runs a program to a good end; what it printed."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        said = (done.stdout + done.stderr).strip()
        raise CannotInstall(f"{' '.join(command)} ended with status {done.returncode}: {said}")
    return done.stdout


def made_of(parts: list[str], folder: Path, make: Callable[[], object]) -> None:
    """Makes what is in a folder, from nothing, unless it was made of the same parts."""
    stamp, wanted = folder / "made-of", "\n".join(parts)
    if stamp.exists() and stamp.read_text() == wanted:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    make()
    stamp.write_text(wanted)


def python_program(folder: Path, name: str, *requirements: str) -> list[str]:
    """The command of a client's `matrix.py`, with a virtual environment that has these packages and
    nothing else."""
    python = str(folder / "bin" / "python")

    def make() -> None:
        call([sys.executable, "-m", "venv", str(folder)])
        call([python, "-m", "pip", "install", "--quiet", *requirements])

    made_of([sys.executable, *requirements], folder, make)
    return [python, str(SUITES / name / "matrix.py")]


def node_program(folder: Path, name: str, *packages: str) -> list[str]:
    """The command of a client's `matrix.js`, with the client from npm beside a copy of it."""
    node, npm = need("node"), need("npm")
    install = [npm, "install", "--silent", "--prefix", str(folder), *packages]
    made_of(list(packages), folder, lambda: call(install))
    return [node, str(shutil.copy(SUITES / name / "matrix.js", folder))]


def go_program(folder: Path, name: str, *modules: str) -> list[str]:
    """A client's program in Go, built with these modules."""
    go = need("go")
    sources = [SUITES / "go" / "checks.go", *sorted((SUITES / name).glob("*.go"))]

    def make() -> None:
        for source in sources:
            shutil.copy(source, folder)
        call([go, "mod", "init", "matrix"], folder)
        call([go, "get", *modules], folder)
        call([go, "build", "-o", "matrix", "."], folder)

    made_of([*modules, *(source.read_text() for source in sources)], folder, make)
    return [str(folder / "matrix")]


def go_tests(folder: Path, module: str, package: str, *others: Path) -> str:
    """The program that Go makes of the tests in a package of a module, in which some files of ours
    take the place of those with their names."""
    go = need("go")

    def make() -> None:
        found = json.loads(call([go, "mod", "download", "-json", module], folder))
        shutil.copytree(found["Dir"], folder / "module", copy_function=shutil.copyfile)
        # What Go has brought here is for reading only.
        for directory in (folder / "module", *(folder / "module").glob("**/")):
            directory.chmod(0o755)
        place = folder / "module" / package
        for other in others:
            shutil.copy(other, place)
        call([go, "test", "-c", "-tags", "functional", "-o", str(folder / "own"), "."], place)

    made_of([module, package, *(other.read_text() for other in others)], folder, make)
    return str(folder / "own")


def from_lib(words: str) -> str:
    """What some words of `scripts/lib.sh` print."""
    return call(["bash", "-c", f"source scripts/lib.sh; {words}"], ROOT).strip()


def kafka_version() -> str:
    """The version of Apache Kafka that this broker is compared with."""
    return from_lib('echo "$KAFKA_VERSION"')


def kafka_classpath(version: str) -> Path:
    """The file with the classpath of Apache Kafka's jars, which come from Maven."""
    return Path(from_lib(f"need_java; KAFKA_VERSION={version}; need_kafka_classpath"))


def debian_program(tool: str, version: str) -> str:
    """The path of a program in a version of Debian's, installed from there if it is not here."""
    if shutil.which(tool) is None:
        from_lib(f"apt_install {tool}")
    path = need(tool)
    if version not in (said := call([path, "-V"])):
        raise CannotInstall(f"version {version} is wanted, and here is {said.strip()}")
    return path


def java_classes(folder: Path, version: str) -> str:
    """A classpath of Apache Kafka's jars, and of the programs here compiled against them."""
    jars = kafka_classpath(version).read_text().strip()
    sources = sorted((SUITES / "java").glob("*.java"))
    compile_ = [need("javac"), "-nowarn", "-d", str(folder), "-cp", jars, *map(str, sources)]
    made_of([jars, *(source.read_text() for source in sources)], folder, lambda: call(compile_))
    return f"{folder}:{jars}"
