"""For pytest, beside the tests of kafka-python: where they start a Kafka of their own, they meet
that which runs, at its listener of the kind that they want.

Its addresses are in BROKER_PLAINTEXT, BROKER_SSL and so on, the authority of its certificate in
AUTHORITY. The user of the tests is there from the start.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import py  # type: ignore[import-untyped]
from test.integration.fixtures import KafkaFixture  # type: ignore[import-not-found]


def running(
    broker_id: int,
    transport: str = "PLAINTEXT",
    sasl_mechanism: str | None = None,
    partitions: int = 4,
    tmp_dir: Any = None,
) -> Any:
    host, _, port = os.environ[f"BROKER_{transport}"].rpartition(":")
    fixture = KafkaFixture(
        host,
        int(port),
        broker_id,
        external=True,
        transport=transport,
        sasl_mechanism=sasl_mechanism,
        partitions=partitions,
    )
    # What it would write before it starts a Kafka, for Kafka's tools and for clients.
    fixture.tmp_dir = tmp_dir or py.path.local.mkdtemp()
    fixture.jaas_config = fixture._jaas_config()
    folder = Path(str(fixture.tmp_dir)) / "ssl"
    folder.mkdir(exist_ok=True)
    shutil.copy(os.environ["AUTHORITY"], folder / "ca-cert")
    fixture.ssl_dir = str(folder)
    return fixture


KafkaFixture.instance = staticmethod(running)
