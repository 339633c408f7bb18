"""From the call to the first answer of a broker inside the process, and what its import and its
first topic take; see scripts/bench_embedding."""

from __future__ import annotations

import statistics
import subprocess
import sys

SAMPLE = """
import socket, time
began = time.perf_counter()
from asyncbroker.testing import BrokerThread
print((time.perf_counter() - began) * 1000)
began = time.perf_counter()
with BrokerThread() as broker:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    with socket.create_connection((host, int(port))) as client:
        # ApiVersions v1, correlation id 1, client id "x".
        client.sendall(bytes.fromhex("0000000b 0012 0001 00000001 0001 78"))
        assert client.recv(1000)
        print((time.perf_counter() - began) * 1000)
    began = time.perf_counter()
    broker.topic("t").create()
    print((time.perf_counter() - began) * 1000)
"""
MEASURED = ("import", "call to first answer", "first topic")


def measure_ms() -> list[float]:
    command = [sys.executable, "-c", SAMPLE]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return [float(line) for line in result.stdout.split()]


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    samples = [measure_ms() for _ in range(count)]
    for name, times in zip(MEASURED, zip(*samples, strict=True), strict=True):
        print(
            f"{name}, {count} processes: minimum {min(times):.1f} ms, "
            f"median {statistics.median(times):.1f} ms, maximum {max(times):.1f} ms"
        )


if __name__ == "__main__":
    main()
