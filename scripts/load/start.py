"""How long a broker takes from exec to its first answered ApiVersions, and the memory it has then.

The client is a socket that tries until it is let in, so that nothing but the broker is measured.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from struct import pack, unpack

from brokers import free_ports

API_VERSIONS_V0 = pack(">ihhih", 10, 18, 0, 1, -1)
RETRY_SECONDS = 0.002
START_SECONDS_MAX = 30.0
SETTLE_SECONDS = 0.5

# What the project asks of itself.
MILLISECONDS_MAX = 250
MEBIBYTES_MAX = 60


def ask_api_versions(port: int, deadline: float) -> None:
    """Returns when the broker has answered."""
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), START_SECONDS_MAX) as connection:
                connection.sendall(API_VERSIONS_V0)
                (size,) = unpack(">i", connection.recv(4, socket.MSG_WAITALL))
                assert len(connection.recv(size, socket.MSG_WAITALL)) == size
                return
        except ConnectionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(RETRY_SECONDS)


def environment(cache: str) -> dict[str, str]:
    """With compiled modules at hand, as an installation by pip has them."""
    names = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**names, "PYTHONPYCACHEPREFIX": cache}


def start_once(on_disk: bool, warm_up: bool, cache: str) -> tuple[float, float, float]:
    """One start: milliseconds to the answer, CPU milliseconds by then, mebibytes afterwards."""
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory() as directory:
        where = ["--data", directory] if on_disk else ["--memory"]
        command = [sys.executable, "-m", "asyncbroker", "serve", *where]
        command += ["--listen", f"127.0.0.1:{port}", "--log-level", "error"]
        started = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment(cache))
        try:
            ask_api_versions(port, started + START_SECONDS_MAX)
            milliseconds = (time.monotonic() - started) * 1000
            stat = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            cpu_ms = (int(stat[11]) + int(stat[12])) * 1000 / os.sysconf("SC_CLK_TCK")
            if not warm_up:
                time.sleep(SETTLE_SECONDS)
            pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
            return milliseconds, cpu_ms, pages * os.sysconf("SC_PAGE_SIZE") / 2**20
        finally:
            process.terminate()
            process.wait()


def show_imports(count: int, cache: str) -> None:
    """The slowest imports of a start: of each module its own time, the least of some runs."""
    command = [sys.executable, "-X", "importtime", "-c"]
    command += ["import asyncbroker.__main__, asyncbroker.commands.serve, asyncbroker.runner"]
    least: dict[str, int] = {}
    for _ in range(count):
        ended = subprocess.run(
            command, capture_output=True, text=True, check=True, env=environment(cache)
        )
        for line in ended.stderr.splitlines():
            own, _, rest = line.removeprefix("import time:").partition("|")
            if own.strip().isdigit():
                name = rest.partition("|")[2].strip()
                least[name] = min(int(own), least.get(name, int(own)))
    for name, own in sorted(least.items(), key=lambda item: -item[1])[:40]:
        print(f"{own / 1000:8.1f} ms  {name}")
    print(f"{sum(least.values()) / 1000:8.1f} ms  {len(least)} modules")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10, help="how many starts")
    parser.add_argument("--data", action="store_true", help="on a fresh data directory")
    parser.add_argument("--imports", action="store_true", help="show what imports cost")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        if options.imports:
            show_imports(options.count, cache)
            return 0
        start_once(options.data, True, cache)
        rows = [start_once(options.data, False, cache) for _ in range(options.count)]
    times, cpu, memory = zip(*rows, strict=True)
    print(f"{'':24}{'minimum':>10}{'median':>10}{'maximum':>10}   wanted below")
    for name, values, wanted in (
        ("exec to ApiVersions, ms", times, MILLISECONDS_MAX),
        ("CPU by then, ms", cpu, None),
        ("resident memory, MiB", memory, MEBIBYTES_MAX),
    ):
        low, middle, high = min(values), statistics.median(values), max(values)
        print(f"{name:24}{low:10.1f}{middle:10.1f}{high:10.1f}   {wanted or ''}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
