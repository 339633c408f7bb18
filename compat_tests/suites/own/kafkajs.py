"""The own suite of kafkajs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Final

from compat_tests.suites.install import call, need
from compat_tests.suites.own.brokers import Servers, User
from compat_tests.suites.own.suite import (
    NO_ACCESS_LISTS,
    NO_TRANSACTIONS,
    QUICK_GROUPS,
    THREE_BROKERS,
    Command,
    OwnSuite,
)

NO_TIME: Final = "its members join with a rebalance timeout of 0 ms, and are late at once"
LATER: Final = "Kafka 4 answers that it creates a topic before the topic is there"

# It runs Kafka's tool in a container.
ADD_PARTITIONS: Final = """\
#!/bin/sh
exec node -e "
const admin = new (require('./index').Kafka)({ brokers: ['BROKER'] }).admin()
const topicPartitions = [{ topic: process.env.TOPIC, count: Number(process.env.PARTITIONS) }]
admin.connect()
  .then(() => admin.createPartitions({ topicPartitions }))
  .then(() => admin.disconnect())
"
"""


def kafkajs(checkout: Path, servers: Servers, results: Path, tests: tuple[str, ...]) -> Command:
    npm = need("npm")
    if not (checkout / "node_modules").exists():
        call([npm, "install", "--silent", "--no-audit", "--ignore-scripts"], checkout)
    meet(checkout, servers)
    jest = str(checkout / "node_modules" / ".bin" / "jest")
    environment = {
        # What the suite is written for; it skips what needs more.
        "KAFKA_VERSION": "2.4",
        "NODE_ENV": "test",
        "KAFKAJS_DEBUG_PROTOCOL_BUFFERS": "1",
        "JEST_JUNIT_OUTPUT_DIR": str(results.parent),
        "JEST_JUNIT_OUTPUT_NAME": results.name,
        "JEST_JUNIT_CLASSNAME": "{filepath}",
        "JEST_JUNIT_TITLE": "{classname} {title}",
        "TEST_RETRIES": "1",
    }
    options = ("--ci", "--maxWorkers=1", "--no-watchman", "--forceExit", "--testTimeout=30000")
    return [need("node"), jest, *options, *tests], environment


def meet(checkout: Path, servers: Servers) -> None:
    """Puts the broker's addresses in the place of those of the client's containers."""
    ports = {
        "9092": servers.port("PLAINTEXT"),
        "9093": servers.port("SSL"),
        "9094": servers.port("SASL_SSL"),
    }
    helpers = checkout / "testHelpers" / "index.js"
    specs = ("admin/__tests__/createAcls.spec.js", "broker/__tests__/connect.spec.js")
    for file in (helpers, *(checkout / "src" / spec for spec in specs)):
        as_it_came = file.with_suffix(".as-it-came")
        if not as_it_came.exists():
            shutil.copy(file, as_it_came)
        text = as_it_came.read_text()
        # There are three brokers.
        text = re.sub(r", `\$\{host\}:\d+`", "", text)
        text = re.sub(r"\b909[234]\b", lambda found: ports[found[0]], text)
        file.write_text(text)
    script = checkout / "scripts" / "addPartitions.sh"
    script.write_text(ADD_PARTITIONS.replace("BROKER", servers.plaintext))
    script.chmod(0o755)


def _specs(path: str, tests: str = "") -> str:
    """A pattern of tests of kafkajs: all in some files below `src`, or those with some words."""
    return rf"^src/({path})\.spec\.js .*({tests})"


PARTS: Final = ("admin", "broker", "cluster", "consumer", "network", "producer")

KAFKAJS: Final = OwnSuite(
    "kafkajs",
    "2.2.4",
    "v2.2.4",
    "`src/{admin,broker,cluster,consumer,network,producer}`",
    kafkajs,
    tuple(f"src/{part}/" for part in PARTS),
    settings=(QUICK_GROUPS, "num.partitions=2", "node.id=0"),
    users=(
        User("test", "PLAIN", "testtest"),
        User("alice", "PLAIN", "alicealice"),
        User("bob", "PLAIN", "bobbob"),
        User("testscram", "SCRAM-SHA-256", "testtestscram=256"),
        User("testscram", "SCRAM-SHA-512", "testtestscram=512"),
    ),
    known=(
        (_specs("broker/__tests__/(create|delete|describe)Acls"), NO_ACCESS_LISTS),
        (
            _specs(
                "admin/__tests__/(create|delete|describe)Acls",
                "checks topic access|can produce to allowed|applies and deletes"
                "|creates and queries",
            ),
            NO_ACCESS_LISTS,
        ),
        (
            _specs("broker/__tests__/(add(Offsets|Partitions)ToTxn|endTxn|txnOffsetCommit)"),
            NO_TRANSACTIONS,
        ),
        # Also the producer's id without a transactional id: it looks for the coordinator first.
        (_specs("broker/__tests__/initProducerId"), NO_TRANSACTIONS),
        (_specs("broker/__tests__/fetch", "transactional returns"), NO_TRANSACTIONS),
        (
            _specs("cluster/__tests__/findGroupCoordinator", "if transactional$"),
            NO_TRANSACTIONS,
        ),
        (_specs("producer/index", " transactions "), NO_TRANSACTIONS),
        (_specs("producer/__tests__/concurrentTransaction"), NO_TRANSACTIONS),
        (_specs("consumer/__tests__/controlBatches"), NO_TRANSACTIONS),
        (_specs("consumer/__tests__/consumeMessages", " transactions "), NO_TRANSACTIONS),
        (
            _specs("consumer/__tests__/instrumentationEvents", "empty control batches$"),
            NO_TRANSACTIONS,
        ),
        (
            _specs("(admin|broker)/__tests__/(alter|list)PartitionReassignments"),
            "it moves partitions between brokers",
        ),
        (
            _specs(
                "cluster/__tests__/brokerPool",
                "#removeBroker|#refreshMetadata (cleans up|updates the list)"
                "|#connect (does not connect to the|select a different) seed"
                "|#findBroker connects|#hasConnectedBrokers returns true if any",
            ),
            THREE_BROKERS,
        ),
        (
            _specs("cluster/__tests__/findGroupCoordinator", "across all brokers|ECONNREFUSED"),
            THREE_BROKERS,
        ),
        (_specs("broker/__tests__/deleteRecords", "not the partition leader"), THREE_BROKERS),
        (_specs("admin/__tests__/createTopics", "manual replica"), THREE_BROKERS),
        (_specs("admin/__tests__/(alter|describe)Configs", " broker configs$"), THREE_BROKERS),
        (
            _specs(
                "admin/__tests__/deleteTopicRecords",
                "all broker errors are retriable|at least 1 broker error|of retriable error",
            ),
            THREE_BROKERS,
        ),
        (_specs("admin/__tests__/describeCluster"), THREE_BROKERS),
        (_specs("producer/__tests__/idempotentProduceMessages", "throws a"), THREE_BROKERS),
        (
            _specs("broker/__tests__/describeConfigs", "returns all config entries"),
            "it expects settings that Kafka 4 has removed, such as message.format.version",
        ),
        (
            _specs("broker/__tests__/listOffsets", " v0 request$"),
            "it asks in version 0 of ListOffsets, which Kafka 4 has removed",
        ),
        (
            _specs("broker/__tests__/produce", "max timestamp difference"),
            "it sets message.timestamp.difference.max.ms, which Kafka 4 has removed",
        ),
        (_specs("broker/__tests__/(heartbeat|offsetCommit|offsetFetch)", " request"), NO_TIME),
        (
            _specs("consumer/__tests__/errorRecovery", "offset out of range$"),
            "its member has 0 ms to join, which is a race with Apache Kafka, and too late here",
        ),
    ),
    there=(
        (_specs("cluster/__tests__/brokerPool"), LATER),
        (
            _specs("consumer/__tests__/instrumentationEvents", "emits request timeout events$"),
            "it lets a request time out after a millisecond, in which Kafka may have answered",
        ),
        (
            _specs("broker/__tests__/describeConfigs", "describeConfigs request$"),
            "it expects no error message, where Kafka 4 has an empty one",
        ),
    ),
    skips=(
        (_specs("broker/__tests__/fetch", " request"), "it is for Kafka 0.10 and older alone"),
        (
            _specs("broker/__tests__/reauthenticate", " OAUTHBEARER "),
            "it logs in by OAUTHBEARER, which this broker does not have",
        ),
        (
            _specs("consumer/__tests__/instrumentationEvents", "request queue size events"),
            "the client's authors skip it",
        ),
    ),
    without=(("The rest of `src`", "it talks to no broker"),),
)
