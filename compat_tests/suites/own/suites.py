"""Which suites of clients are run.

The tests are in the clients' repositories, not in their packages: the command is given a clone, and
takes the version named here from it. Where a suite starts a broker in a container, it is made to
meet the one that runs; nothing else of it is changed.
"""

from __future__ import annotations

from typing import Final

from compat_tests.suites.own.kafkajs import KAFKAJS
from compat_tests.suites.own.librdkafka import (
    LIBRDKAFKA,
    LIBRDKAFKA_848,
    LIBRDKAFKA_NOAUTOCREATE,
    LIBRDKAFKA_SASL,
    LIBRDKAFKA_SSL,
)
from compat_tests.suites.own.python_clients import (
    AIOKAFKA,
    CONFLUENT_KAFKA,
    CONFLUENT_KAFKA_848,
    KAFKA_PYTHON,
)
from compat_tests.suites.own.suite import OwnSuite

SUITES: Final[tuple[OwnSuite, ...]] = (
    AIOKAFKA,
    KAFKA_PYTHON,
    KAFKAJS,
    CONFLUENT_KAFKA,
    CONFLUENT_KAFKA_848,
    LIBRDKAFKA,
    LIBRDKAFKA_848,
    LIBRDKAFKA_NOAUTOCREATE,
    LIBRDKAFKA_SASL,
    LIBRDKAFKA_SSL,
)
