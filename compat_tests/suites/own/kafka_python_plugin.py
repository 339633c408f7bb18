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
        tmp_dir=tmp_dir,
    )
    if tmp_dir is not None:
        folder = Path(str(tmp_dir)) / "ssl"
        folder.mkdir()
        shutil.copy(os.environ["AUTHORITY"], folder / "ca-cert")
        fixture.ssl_dir = str(folder)
    return fixture


KafkaFixture.instance = staticmethod(running)
