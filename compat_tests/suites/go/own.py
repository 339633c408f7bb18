"""Runs the tests of a Go client's own module, each as a feature; see `checks.py`. The command is
`own.py TESTS SERVERS TEST...`, and TESTS what `go test -c` made of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from compat_tests.suites.checks import Check, Refused, Skipped, run

TEST_SECONDS_MAX = 140
# One broker has no three replicas, and half a million records take long.
SETTINGS = {
    "KGO_TEST_RF": "1",
    "KGO_TEST_RECORDS": "20000",
    "KGO_LOG_LEVEL": "none",
    "KAFKA_VERSION": "4.3.1",
}
REFUSED = re.compile(
    r"kafka server: (The version of API is not supported|Transactional ID authorization failed)"
)
# franz-go's tests clear up after themselves, and tell of it last.
CLEAN_UP = re.compile(r"(FAILED TESTING -- NOT )?DELETING (TOPIC|GROUP) ", re.IGNORECASE)


def own(tests: str, name: str) -> Check:
    def check(servers: str) -> None:
        done = subprocess.run(
            [tests, "-test.v", "-test.run", f"^{name}$", "-test.timeout", f"{TEST_SECONDS_MAX}s"],
            env={**os.environ, **SETTINGS, "KGO_SEEDS": servers, "SARAMA_SERVERS": servers},
            capture_output=True,
            text=True,
        )
        if re.search(rf"^--- SKIP: {name} ", done.stdout, re.MULTILINE):
            raise Skipped(last_words(done.stdout))
        if done.returncode and (words := REFUSED.search(done.stdout)):
            raise Refused(words[0])
        if done.returncode:
            raise AssertionError(last_words(done.stdout))
        assert f"--- PASS: {name} " in done.stdout

    return check


def last_words(said: str) -> str:
    """The last line in which a test says something that matters, without where it does."""
    found = re.findall(r"^ +\w+\.go:\d+: +(\S.*)$", said, re.MULTILINE)
    words = [line for line in found if not CLEAN_UP.match(line)]
    return words[-1] if words else said.strip().rpartition("\n")[2]


if __name__ == "__main__":
    tests = sys.argv.pop(1)
    run({name: own(tests, name) for name in sys.argv[2:]})
