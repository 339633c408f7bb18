"""From the call to the first answer of a broker inside the process; see scripts/bench_embedding."""

from __future__ import annotations

import statistics
import subprocess
import sys

FIRST_ANSWER = """
import socket, time
from asyncbroker.testing import BrokerThread
began = time.perf_counter()
with BrokerThread() as broker:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    with socket.create_connection((host, int(port))) as client:
        # ApiVersions v1, correlation id 1, client id "x".
        client.sendall(bytes.fromhex("0000000b 0012 0001 00000001 0001 78"))
        assert client.recv(1000)
        print((time.perf_counter() - began) * 1000)
"""


def measure_ms() -> float:
    command = [sys.executable, "-c", FIRST_ANSWER]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    times = sorted(measure_ms() for _ in range(count))
    print(
        f"call to first answer, {count} processes: minimum {times[0]:.1f} ms, "
        f"median {statistics.median(times):.1f} ms, maximum {times[-1]:.1f} ms"
    )


if __name__ == "__main__":
    main()
