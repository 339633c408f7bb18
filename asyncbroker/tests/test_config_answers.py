"""What we answer about settings is what Apache Kafka answers (see `config_questions.py`)."""

from __future__ import annotations

from typing import Any

from asyncbroker.tests import config_questions
from asyncbroker.tests.asked_broker import Asked
from asyncbroker.tests.data_path_harness import settle, under_test
from asyncbroker.tests.test_group_answers import connecting_to, hold_against

# Kafka's controller sets this for all brokers when a cluster is made.
SET_BY_KAFKA = "min.insync.replicas"

# Kafka's loggers are those of Java; here none can be described.
LISTS_OF_LOGGERS = {"lists [8]", "lists everything: types"}


async def test_we_answer_as_kafka_does_about_settings() -> None:
    settings: dict[str, Any] = {
        name.replace(".", "_"): value for name, value in config_questions.SETTINGS.items()
    }
    async with under_test(**settings) as t:
        asked = Asked(connecting_to(t), settle)
        await config_questions.ask_all(asked)
    but = {f"{topic}: {SET_BY_KAFKA}" for topic in ("a new topic", "an altered topic")}
    but |= LISTS_OF_LOGGERS
    hold_against(asked.answers, "config_answers_kafka_4_3_1.tsv", but)
