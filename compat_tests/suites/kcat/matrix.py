"""kcat's program of checks; see `checks.py`. It is the librdkafka of Debian, which is years old.

kcat can make no topics with more than one partition: this broker's own client makes them for it.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from typing import IO, Any

from asyncbroker.client.cluster import Cluster
from asyncbroker.client.topics import create_topic
from compat_tests.suites.checks import (
    CODECS,
    T0,
    WAIT_SECONDS,
    Check,
    Login,
    Member,
    Refused,
    by_name,
    expect,
    fresh,
    login_checks,
    members_come_and_leave,
    run,
    static_member_returns,
)

NUMBERS = [str(n) for n in range(10)]
QUICK = ("session.timeout.ms=6000", "heartbeat.interval.ms=200", "auto.offset.reset=earliest")
REBALANCED = re.compile(r"rebalanced.*?(assigned|revoked|assignment|revoke)\b.*?: (.*)")


class Failed(Exception):
    """kcat ended with an error: what it said."""


def create(servers: str, partitions: int = 1) -> str:
    topic = fresh("kcat")
    with Cluster(servers) as cluster:
        create_topic(cluster, topic, partitions=partitions, replication_factor=1)
    return topic


def command(servers: str, *arguments: str, settings: tuple[str, ...] = ()) -> list[str]:
    options = [word for setting in settings for word in ("-X", setting)]
    return ["kcat", "-b", servers, "-m", "30", *options, *arguments]


def kcat(servers: str, *arguments: str, stdin: str = "", settings: tuple[str, ...] = ()) -> str:
    """Runs it to a good end; what it printed."""
    done = subprocess.run(
        command(servers, *arguments, settings=settings),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
    )
    if done.returncode:
        raise Failed(done.stderr.strip().replace("\n", " | "))
    return done.stdout


def send(servers: str, topic: str, values: list[str], *settings: str, partition: int = 0) -> None:
    lines = "".join(f"{value}\n" for value in values)
    kcat(servers, "-P", "-t", topic, "-p", str(partition), stdin=lines, settings=settings)


def read(servers: str, topic: str, *arguments: str, settings: tuple[str, ...] = ()) -> list[str]:
    """What is in a partition from some offset to its end."""
    said = kcat(servers, "-C", "-q", "-e", "-t", topic, "-p", "0", *arguments, settings=settings)
    return said.splitlines()


def acks(servers: str) -> None:
    topic = create(servers)
    for level in ("0", "1", "all"):
        send(servers, topic, NUMBERS, f"topic.acks={level}")
    expect(NUMBERS * 3, read(servers, topic))


def codec(name: str) -> Check:
    def check(servers: str) -> None:
        topic = create(servers)
        numbers = [str(n) for n in range(100)]
        send(servers, topic, numbers, f"compression.codec={name}", "linger.ms=50")
        expect(numbers, read(servers, topic))

    return check


def records(servers: str) -> None:
    topic = create(servers)
    headers = ("-H", "trace=1", "-H", "trace=2")
    kcat(servers, "-P", "-t", topic, "-K", ":", *headers, stdin="key:value\n")
    # Empty ones are null.
    kcat(servers, "-P", "-t", topic, "-K", ":", "-Z", stdin="tombstone:\n:no key\n")
    rows = [json.loads(row) for row in read(servers, topic, "-J")]
    expect([0, 1, 2], [row["offset"] for row in rows])
    expect(["key", "tombstone", None], [row["key"] for row in rows])
    expect(["value", None, "no key"], [row["payload"] for row in rows])
    expect(["trace", "1", "trace", "2"], rows[0]["headers"])
    expect("create", rows[0]["tstype"])


def idempotent(servers: str) -> None:
    topic = create(servers)
    send(servers, topic, NUMBERS, "enable.idempotence=true")
    expect(NUMBERS, read(servers, topic))


def assign(servers: str) -> None:
    topic = create(servers, 2)
    for partition in (0, 1):
        send(servers, topic, [str(partition)], partition=partition)
    # Without a partition it reads them all.
    said = kcat(servers, "-C", "-q", "-e", "-t", topic, "-f", r"%p %s\n")
    expect({"0 0", "1 1"}, set(said.splitlines()))


def subscribe(servers: str) -> None:
    topic = create(servers)
    send(servers, topic, NUMBERS)
    asked = ("-G", fresh("group"), "-q", "-e", f"^{topic[:-1]}.$")
    expect(NUMBERS, kcat(servers, *asked, settings=QUICK).splitlines())


def seek(servers: str) -> None:
    topic = create(servers)
    send(servers, topic, NUMBERS)
    for offset, first in (("7", 7), ("beginning", 0), ("-2", 8)):
        expect(NUMBERS[first:], read(servers, topic, "-o", offset))
    expect([], read(servers, topic, "-o", "end"))


def times(servers: str) -> None:
    topic = create(servers)
    send(servers, topic, NUMBERS)
    stamps = [int(each) for each in read(servers, topic, "-f", r"%T\n")]
    for asked, wanted in ((T0, 0), (stamps[-1] + 1, 10), (-1, 10), (-2, 0)):
        said = kcat(servers, "-Q", "-t", f"{topic}:0:{asked}")
        # Behind the last one is the end, of which the client says that it is the end.
        found = re.fullmatch(rf"{topic} \[0\] offset (-?\d+)\n", said)
        offset = int(found[1]) if found else None
        expect(wanted, 10 if offset == -1 else offset)
    expect(NUMBERS, read(servers, topic, "-o", f"s@{T0}", "-o", f"e@{stamps[-1] + 1}"))


def member(servers: str, topic: str, group: str, *settings: str) -> Member:
    """kcat as a member of a group, as long as it is wanted."""

    def live(member: Member) -> None:
        process = subprocess.Popen(
            command(servers, "-G", group, "-u", topic, settings=(*QUICK, *settings)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            listeners = [
                threading.Thread(target=note_values, args=(member, process.stdout)),
                threading.Thread(target=note_partitions, args=(member, process.stderr)),
            ]
            for listener in listeners:
                listener.start()
            while not member.is_leaving() and process.poll() is None:
                time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            for listener in listeners:
                listener.join()
        expect(0, process.returncode)

    return Member(live)


def note_values(member: Member, output: IO[str]) -> None:
    for line in output:
        member.values.append(int(line))


def note_partitions(member: Member, errors: IO[str]) -> None:
    """Follows what kcat says of its partitions: all of them, or by how many more or fewer."""
    for line in errors:
        if said := REBALANCED.search(line):
            partitions = {int(found) for found in re.findall(r"\[(\d+)\]", said[2])}
            match said[1]:
                case "assigned":
                    member.assigned = partitions
                case "assignment":
                    member.assigned = member.assigned | partitions
                case "revoked" | "revoke":
                    member.assigned = member.assigned - partitions


def group_with(assignor: str) -> Check:
    def check(servers: str) -> None:
        topic, group = create(servers, 4), fresh("group")

        def send_to_all() -> None:
            for partition in range(4):
                values = [str(n) for n in range(40) if n % 4 == partition]
                send(servers, topic, values, partition=partition)

        strategy = f"partition.assignment.strategy={assignor}"
        members_come_and_leave(lambda: member(servers, topic, group, strategy), send_to_all)

    return check


def static(servers: str) -> None:
    topic, group = create(servers, 2), fresh("group")
    static_member_returns(lambda name: member(servers, topic, group, f"group.instance.id={name}"))


def commit(servers: str) -> None:
    topic, group = create(servers), fresh("group")
    send(servers, topic, NUMBERS)
    for first, count in ((0, 4), (4, 6)):
        said = kcat(servers, "-G", group, "-q", "-c", str(count), topic, settings=QUICK)
        expect(NUMBERS[first : first + count], said.splitlines())


def reset(servers: str) -> None:
    topic = create(servers)
    send(servers, topic, NUMBERS)
    for where, found in (("earliest", NUMBERS), ("latest", [])):
        setting = (f"topic.auto.offset.reset={where}",)
        expect(found, read(servers, topic, "-o", "1000", settings=setting))
    error = ("topic.auto.offset.reset=error",)
    expect_failure("out of range", lambda: read(servers, topic, "-o", "1000", settings=error))


def expect_failure(words: str, attempt: Callable[[], object]) -> None:
    """Fails if it does not, or with other words."""
    try:
        attempt()
    except Failed as failed:
        if words in str(failed):
            return
        raise
    raise AssertionError(f"no error that says: {words}")


def cluster(servers: str) -> None:
    topic = create(servers, 3)
    said: dict[str, Any] = json.loads(kcat(servers, "-L", "-J"))
    expect(1, len(said["brokers"]))
    (found,) = (each for each in said["topics"] if each["topic"] == topic)
    expect([0, 1, 2], sorted(each["partition"] for each in found["partitions"]))
    assert f'topic "{topic}" with 3 partitions' in kcat(servers, "-L", "-t", topic)


def too_large(servers: str) -> None:
    topic = create(servers)
    large = ("message.max.bytes=8000000",)
    value = "x" * 2_000_000
    expect_failure(
        "Message size too large",
        lambda: kcat(servers, "-P", "-t", topic, "-p", "0", stdin=value, settings=large),
    )
    send(servers, topic, ["0"])
    expect(["0"], read(servers, topic))


def unknown(servers: str) -> None:
    topic = fresh("nowhere")
    expect_failure("Unknown topic or partition", lambda: read(servers, topic))


def transactions(servers: str) -> None:
    topic = create(servers)
    try:
        send(servers, topic, ["value"], f"transactional.id={fresh('tx')}")
    except Failed as failed:
        if "Transactional Id authorization failed" in str(failed):
            # Before its last words it logs, each line with the time.
            raise Refused(str(failed).rpartition("% ERROR: ")[2]) from failed
        raise
    expect(["value"], read(servers, topic, settings=("isolation.level=read_committed",)))


def asks_for_no_versions(servers: str) -> None:
    """As the C library of 0.9 and 0.10 is told to be."""
    topic, group = create(servers), fresh("group")
    blind = ("api.version.request=false", "broker.version.fallback=0.11.0.0")
    send(servers, topic, NUMBERS, *blind)
    expect(NUMBERS, read(servers, topic, settings=blind))
    asked = ("-G", group, "-q", "-c", "10", topic)
    expect(NUMBERS, kcat(servers, *asked, settings=(*QUICK, *blind)).splitlines())


def settings_of(login: Login) -> tuple[str, ...]:
    return tuple(f"{name}={value}" for name, value in login.properties().items())


def send_and_read(login: Login) -> None:
    topic, settings = fresh("kcat"), settings_of(login)
    kcat(login.servers, "-P", "-t", topic, stdin="value\n", settings=settings)
    asked = ("-G", fresh("group"), "-q", "-c", "1", topic)
    expect(["value"], kcat(login.servers, *asked, settings=(*QUICK, *settings)).splitlines())


def is_refused(login: Login) -> None:
    asked = ("-L", "-m", "5")
    expect_failure(
        "Authentication failed", lambda: kcat(login.servers, *asked, settings=settings_of(login))
    )


if __name__ == "__main__":
    run(
        by_name(acks, records, idempotent, assign, subscribe, seek, times, static, commit, reset)
        | by_name(cluster, too_large, unknown, transactions, asks_for_no_versions)
        | {name: codec(name) for name in CODECS}
        | {name: group_with(name) for name in ("range", "roundrobin")}
        | {"cooperative": group_with("cooperative-sticky")}
        | login_checks(send_and_read, is_refused)
    )
