"""Kafka's own tools: the program of checks of a version's tools; see `checks.py`.

The classpath comes in the environment, since a program's arguments are the broker and features. The
tools run in one JVM (`ToolServer.java`), but for those that go on until they are stopped.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from compat_tests.suites.checks import Refused, Skipped, expect, fresh, run, wait_until

TOOLS = "org.apache.kafka.tools"
TOOL_SECONDS_MAX = 120
GROUPS = "consumer.group.ConsumerGroupCommand"


def command_of(name: str, *arguments: str) -> list[str]:
    options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    classpath = os.environ["KAFKA_TOOLS_CLASSPATH"]
    return ["java", *options, "-cp", classpath, full_name(name), *arguments]


def full_name(name: str) -> str:
    """The class of a tool; some have not moved to the others."""
    return name if name.startswith("kafka.") or name == "ToolServer" else f"{TOOLS}.{name}"


class ToolServer:
    """The JVM that runs tools when it is told to."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def call(self, name: str, arguments: tuple[str, ...], stdin: str) -> tuple[int, str]:
        """Runs a class to its end; its exit status, and all that it said."""
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                command_of("ToolServer"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        lines = stdin.splitlines()
        call = [full_name(name), str(len(arguments)), *arguments, str(len(lines)), *lines]
        process.stdin.write("".join(f"{line}\n" for line in call).encode())
        process.stdin.flush()
        stuck = threading.Timer(TOOL_SECONDS_MAX, process.kill)
        stuck.start()
        head = process.stdout.readline().split()
        stuck.cancel()
        if not head:
            raise AssertionError(f"{name} was not done in {TOOL_SECONDS_MAX} s")
        return int(head[1]), process.stdout.read(int(head[2])).decode()


SERVER = ToolServer()


def run_class(name: str, *arguments: str, stdin: str = "", may_fail: bool = False) -> str:
    """Runs a tool to its end, and gives all that it said."""
    status, said = SERVER.call(name, arguments, stdin)
    if status and not may_fail:
        last = said.strip().split("\n")
        raise AssertionError(f"{name} ended with {status}: {last[-1]}")
    return said


def tool(name: str, servers: str, *arguments: str, stdin: str = "", may_fail: bool = False) -> str:
    """Runs a tool that takes the broker's address as most do."""
    address = ("--bootstrap-server", servers)
    return run_class(name, *address, *arguments, stdin=stdin, may_fail=may_fail)


def create(servers: str, partitions: int = 1) -> str:
    topic = fresh("tools")
    wanted = ("--partitions", str(partitions), "--replication-factor", "1")
    tool("TopicCommand", servers, "--create", "--topic", topic, *wanted)
    return topic


def fill(servers: str, topic: str, count: int) -> None:
    lines = "".join(f"{n}\n" for n in range(count))
    tool("ConsoleProducer", servers, "--topic", topic, stdin=lines)


def found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    if match is None:
        raise AssertionError(f"no {pattern!r} in {text[-300:]!r}")
    return match[0]


def topic_command(servers: str) -> None:
    topic = create(servers, 3)
    described = tool("TopicCommand", servers, "--describe", "--topic", topic)
    found(r"PartitionCount:\s*3", described)
    found(topic, tool("TopicCommand", servers, "--list"))
    tool("TopicCommand", servers, "--alter", "--topic", topic, "--partitions", "5")
    found(r"PartitionCount:\s*5", tool("TopicCommand", servers, "--describe", "--topic", topic))
    unavailable = ("--describe", "--unavailable-partitions")
    expect(False, topic in tool("TopicCommand", servers, *unavailable))
    tool("TopicCommand", servers, "--delete", "--topic", topic)
    expect(False, topic in tool("TopicCommand", servers, "--list"))


def config_command(servers: str) -> None:
    topic = create(servers)
    config, entity = (
        "kafka.admin.ConfigCommand",
        ("--entity-type", "topics", "--entity-name", topic),
    )
    tool(config, servers, "--alter", *entity, "--add-config", "retention.ms=60000")
    described = tool(config, servers, "--describe", *entity)
    found("retention.ms=60000", described)
    found(
        r"cleanup.policy=delete sensitive=false",
        tool(config, servers, "--describe", "--all", *entity),
    )
    tool(config, servers, "--alter", *entity, "--delete-config", "retention.ms")
    expect(False, "60000" in tool(config, servers, "--describe", *entity))
    broker = ("--entity-type", "brokers", "--entity-name", "1")
    found(r"message.max.bytes=1048588", tool(config, servers, "--describe", "--all", *broker))


def config_command_of_brokers(servers: str) -> None:
    """Of one broker and of all of them: what is set for the one goes first."""
    config, name = "kafka.admin.ConfigCommand", "max.connections.per.ip"
    one, every = (
        ("--entity-type", "brokers", "--entity-name", "1"),
        ("--entity-type", "brokers", "--entity-default"),
    )
    tool(config, servers, "--alter", *one, "--add-config", f"{name}=5000")
    tool(config, servers, "--alter", *every, "--add-config", f"{name}=6000")
    found(
        rf"{name}=5000 sensitive=false synonyms={{DYNAMIC_BROKER_CONFIG:{name}=5000, "
        rf"DYNAMIC_DEFAULT_BROKER_CONFIG:{name}=6000, DEFAULT_CONFIG:{name}=\d+}}",
        tool(config, servers, "--describe", *one),
    )
    found(f"{name}=6000", tool(config, servers, "--describe", *every))
    for wrong in ("node.id=2", f"{name}=many", "log.cleanup.policy=none"):
        said = tool(config, servers, "--alter", *one, "--add-config", wrong, may_fail=True)
        found("InvalidRequestException", said)
    for entity in (one, every):
        tool(config, servers, "--alter", *entity, "--delete-config", name)
        expect(False, name in tool(config, servers, "--describe", *entity))


def config_command_of_groups(servers: str) -> None:
    config = "kafka.admin.ConfigCommand"
    group = ("--entity-type", "groups", "--entity-name", fresh("group"))
    change = ("--add-config", "consumer.session.timeout.ms=50000")
    try:
        tool(config, servers, "--alter", *group, *change)
    except AssertionError as error:
        if "Invalid entity type groups" in str(error):
            raise Skipped("the tool knows no settings of groups") from error
        raise
    found("consumer.session.timeout.ms=50000", tool(config, servers, "--describe", *group))


def delete_records_command(servers: str) -> None:
    topic = create(servers)
    fill(servers, topic, 10)
    with tempfile.TemporaryDirectory() as folder:
        wanted = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 6}]}
        path = Path(folder) / "offsets.json"
        path.write_text(json.dumps(wanted))
        said = tool("DeleteRecordsCommand", servers, "--offset-json-file", str(path))
    found(r"low_watermark: 6", said)


def log_dirs_command(servers: str) -> None:
    topic = create(servers)
    fill(servers, topic, 10)
    said = tool("LogDirsCommand", servers, "--describe", "--topic-list", topic)
    answer = json.loads(next(line for line in said.split("\n") if line.startswith("{")))
    (partition,) = answer["brokers"][0]["logDirs"][0]["partitions"]
    expect(f"{topic}-0", partition["partition"])
    expect(True, partition["size"] > 0)


def get_offset_shell(servers: str) -> None:
    topic = create(servers)
    fill(servers, topic, 10)
    for time, wanted in (("-1", "10"), ("-2", "0"), ("1000", "0"), ("-3", r"\d"), ("-4", "0")):
        said = tool("GetOffsetShell", servers, "--topic", topic, "--time", time)
        found(f"{topic}:0:{wanted}", said)


def leader_election_command(servers: str) -> None:
    topic = create(servers)
    wanted = ("--election-type", "preferred", "--topic", topic, "--partition", "0")
    found("Valid replica already elected", tool("LeaderElectionCommand", servers, *wanted))


def console(servers: str) -> None:
    topic = create(servers)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        sent = ("--topic", topic, "--compression-codec", codec)
        tool("ConsoleProducer", servers, *sent, stdin=f"of {codec}\n")
    wanted = ("--topic", topic, "--from-beginning", "--max-messages", "5", "--timeout-ms", "30000")
    said = tool("consumer.ConsoleConsumer", servers, *wanted)
    expect(5, len(re.findall(r"^of \w+$", said, re.MULTILINE)))


def consumer_group_command(servers: str) -> None:
    topic, group = create(servers), fresh("group")
    fill(servers, topic, 10)
    wanted = ("--topic", topic, "--from-beginning", "--max-messages", "10", "--group", group)
    tool("consumer.ConsoleConsumer", servers, *wanted, "--timeout-ms", "30000")
    found(group, tool(GROUPS, servers, "--list"))
    reset = ("--reset-offsets", "--to-offset", "4", "--topic", topic, "--execute")
    tool(GROUPS, servers, "--group", group, *reset)
    described = tool(GROUPS, servers, "--describe", "--group", group)
    found(rf"{topic}\s+0\s+4\s+10\s+6", described)
    found("Empty", tool(GROUPS, servers, "--describe", "--group", group, "--state"))
    tool(GROUPS, servers, "--delete-offsets", "--group", group, "--topic", topic)
    # Without offsets it would soon be gone by itself.
    tool(GROUPS, servers, "--group", group, *reset)
    tool(GROUPS, servers, "--delete", "--group", group)
    expect(False, group in tool(GROUPS, servers, "--list"))


def performance(servers: str) -> None:
    topic = create(servers, 2)
    said = run_class(
        "ProducerPerformance",
        *("--topic", topic, "--num-records", "20000", "--record-size", "100"),
        *("--throughput", "-1", "--producer-props", f"bootstrap.servers={servers}", "acks=all"),
    )
    found(r"20000 records sent", said)


def consumer_performance(servers: str) -> None:
    topic = create(servers)
    fill(servers, topic, 1000)
    wanted = ("--topic", topic, "--messages", "1000", "--timeout", "30000", "--hide-header")
    said = tool("ConsumerPerformance", servers, *wanted)
    found(r", 1000, ", said)


class Verifiable:
    """A VerifiableConsumer: prints what happens to it as lines of JSON."""

    def __init__(self, servers: str, topic: str, group: str, assignor: str) -> None:
        self.assigned: set[int] = set()
        self.consumed = 0
        wanted = ("--topic", topic, "--group-id", group, "--reset-policy", "earliest")
        strategy = f"org.apache.kafka.clients.consumer.{assignor}"
        timeouts = ("--session-timeout", "6000", "--assignment-strategy", strategy)
        self._process = subprocess.Popen(
            command_of("VerifiableConsumer", "--bootstrap-server", servers, *wanted, *timeouts),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event: dict[str, Any] = json.loads(line)
            partitions = {each["partition"] for each in event.get("partitions", ())}
            if event["name"] == "partitions_assigned":
                self.assigned |= partitions
            elif event["name"] == "partitions_revoked":
                self.assigned -= partitions
            elif event["name"] == "records_consumed":
                self.consumed += event["count"]

    def leave(self) -> None:
        """Nothing to do for one that has left."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(30)


def share_and_take_over(
    servers: str, topic: str, group: str, assignor: str, members: contextlib.ExitStack
) -> None:
    """A second member joins, takes its part and leaves; whatever fails, `members` ends both."""
    every = {0, 1, 2, 3}
    first = Verifiable(servers, topic, group, assignor)
    members.callback(first.leave)
    wait_until(lambda: first.assigned == every, "one member has all partitions")
    second = Verifiable(servers, topic, group, assignor)
    members.callback(second.leave)
    wait_until(
        lambda: len(first.assigned) == 2 and first.assigned | second.assigned == every,
        "two members share the partitions",
    )
    # It says how it went while its JVM ends.
    address = ("--bootstrap-server", servers)
    sent = subprocess.run(
        command_of(
            "VerifiableProducer",
            *(*address, "--topic", topic, "--max-messages", "400", "--acks", "-1"),
        ),
        capture_output=True,
        text=True,
        timeout=TOOL_SECONDS_MAX,
    )
    found('"acked":400', sent.stdout)
    wait_until(lambda: first.consumed + second.consumed == 400, "all records are read")
    described = tool(GROUPS, servers, "--describe", "--group", group, "--members")
    expect(2, len(re.findall(rf"^{group}", described, re.MULTILINE)))
    second.leave()
    wait_until(lambda: first.assigned == every, "the first has all partitions again")


def verifiable(assignor: str) -> Callable[[str], None]:
    def check(servers: str) -> None:
        topic, group = create(servers, 4), fresh("group")
        with contextlib.ExitStack() as members:
            share_and_take_over(servers, topic, group, assignor, members)

    return check


def reassignments(servers: str) -> None:
    said = tool("reassign.ReassignPartitionsCommand", servers, "--list")
    found("No partition reassignments found", said)


def cluster_tool(servers: str) -> None:
    said = run_class("ClusterTool", "cluster-id", "--bootstrap-server", servers)
    found(r"Cluster ID: \S{22}", said)


def broker_api_versions(servers: str) -> None:
    said = tool("BrokerApiVersionsCommand", servers)
    found(r"Produce\(0\): 0 to 1\d \[usable: 1\d\]", said)
    # Share groups were a preview in 3.9, whose versions of them Kafka has dropped.
    expect([], re.findall(r"^\s*(?!Share).*unusable.*", said, re.MULTILINE))
    # A tool has no name for what came after it; all before has one.
    keys = [(int(key), name) for name, key in re.findall(r"(\w+)\((\d+)\): ", said)]
    last_known = max(key for key, name in keys if name != "UNKNOWN")
    expect([], [key for key, name in keys if name == "UNKNOWN" and key < last_known])


def transactions_command(servers: str) -> None:
    said = tool("TransactionsCommand", servers, "list", may_fail=True)
    if "UnsupportedVersionException" in said or "does not support" in said:
        raise Refused(said.strip().split("\n")[0])
    found("TransactionalId", said)


FEATURES = {
    "TopicCommand": topic_command,
    "ConfigCommand": config_command,
    "ConfigCommand --entity-type brokers": config_command_of_brokers,
    "ConfigCommand --entity-type groups": config_command_of_groups,
    "DeleteRecordsCommand": delete_records_command,
    "LogDirsCommand": log_dirs_command,
    "GetOffsetShell": get_offset_shell,
    "LeaderElectionCommand": leader_election_command,
    "ConsoleProducer and ConsoleConsumer": console,
    "ConsumerGroupCommand": consumer_group_command,
    "ProducerPerformance": performance,
    "ConsumerPerformance": consumer_performance,
    "VerifiableProducer and VerifiableConsumer, range": verifiable("RangeAssignor"),
    "VerifiableConsumer, cooperative sticky": verifiable("CooperativeStickyAssignor"),
    "ReassignPartitionsCommand --list": reassignments,
    "ClusterTool": cluster_tool,
    "BrokerApiVersionsCommand": broker_api_versions,
    "TransactionsCommand": transactions_command,
}


if __name__ == "__main__":
    run(FEATURES)
