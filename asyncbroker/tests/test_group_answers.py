"""What we answer about groups is what Apache Kafka answers (see `group_questions.py` and
`consumer_group_questions.py`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from pathlib import Path
from typing import Any

from asyncbroker.context import RequestContext
from asyncbroker.protocol.api import API_BY_NAME
from asyncbroker.tests import consumer_group_questions, group_questions
from asyncbroker.tests.asked_broker import Asked, Peer
from asyncbroker.tests.data_path_harness import UnderTest, settle, under_test

GOLDEN = Path(__file__).parent / "golden"


class HandlerPeer:
    """A connection without a socket: requests and responses still go through their codecs."""

    def __init__(self, t: UnderTest) -> None:
        self._t = t
        self._context = RequestContext(client_id="app")
        self._outcome: Any = None
        self._codec: Any = None

    async def send(self, request: Any, version: int) -> None:
        api = API_BY_NAME[type(request).__name__.removesuffix("Request")]
        codec = api.request_codec(version)
        self._codec = api.response_codec(version)
        decoded = codec.decode(codec.encode(request))
        self._outcome = self._t.begin(decoded, version, self._context)

    async def receive(self) -> Any:
        if isinstance(self._outcome, asyncio.Future):
            while not self._outcome.done():
                await settle()
                self._t.clock.advance(0)
            self._outcome = self._outcome.result()
        return self._codec.decode(self._codec.encode(self._outcome))

    async def ask(self, request: Any, version: int) -> Any:
        await self.send(request, version)
        return await self.receive()


async def test_we_answer_as_kafka_does() -> None:
    async with under_test(group_initial_rebalance_delay_ms="0") as t:
        asked = Asked(connecting_to(t), settle)
        await group_questions.ask_all(asked)
    hold_against(asked.answers, "group_answers_kafka_4_3_1.tsv")


async def test_we_answer_as_kafka_does_about_the_consumer_protocol() -> None:
    settings: dict[str, Any] = {
        "group_initial_rebalance_delay_ms": "0",
        "group_consumer_assignment_interval_ms": "0",
        "group_consumer_max_size": "3",
        "group_consumer_heartbeat_interval_ms": "300",
        "group_consumer_min_heartbeat_interval_ms": "100",
    }
    async with under_test(**settings) as t:
        asked = Asked(connecting_to(t), settle)
        await consumer_group_questions.ask_all(asked)
    hold_against(asked.answers, "consumer_group_answers_kafka_4_3_1.tsv")


def connecting_to(t: UnderTest) -> Callable[[], Coroutine[Any, Any, Peer]]:
    async def connect() -> Peer:
        return HandlerPeer(t)

    return connect


def hold_against(answers: dict[str, str], name: str, but: Collection[str] = ()) -> None:
    """All answers are Kafka's, but for those to these questions, which must differ."""
    expected = dict(line.split("\t") for line in (GOLDEN / name).read_text().splitlines())
    different = {
        question: (answers.get(question), expected.get(question))
        for question in answers.keys() | expected.keys()
        if answers.get(question) != expected.get(question)
    }
    assert different.keys() == set(but), different
