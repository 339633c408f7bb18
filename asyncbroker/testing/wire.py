"""Wire tests: requests as objects, sent to a broker in a given version; answers as objects.

    with Wire("127.0.0.1:9092", "me") as wire:
        answer = wire.ask(MetadataRequest(topics=None), 12)
        assert errors(answer) == []

What `asyncbroker replay --as-test` writes is made of these.
"""

from __future__ import annotations

from typing import Any, Final

from asyncbroker.client.connection import Address, Connection, Deadline
from asyncbroker.protocol.api import API_BY_NAME
from asyncbroker.tracing.describe import error_names
from asyncbroker.tracing.plain import record_values

SECONDS_MAX: Final = 30.0


class Wire:
    """One connection. Raises ClientError when an answer does not come or cannot be decoded."""

    def __init__(self, bootstrap_servers: str, client_id: str) -> None:
        self._asked: list[str] = []
        self._connection = Connection.open(
            Address.parse(bootstrap_servers), client_id=client_id, timeout_s=SECONDS_MAX
        )

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *exception: object) -> None:
        self._connection.close()

    def ask(self, request: Any, version: int) -> Any:
        """Sends a request and waits for its answer."""
        self.send(request, version)
        return self.receive()

    def send(self, request: Any, version: int) -> None:
        """Sends a request; its answer will be `receive`d."""
        self._connection.send(request, Deadline(SECONDS_MAX), version=version)
        self._asked.append(type(request).__name__.removesuffix("Request"))

    def receive(self) -> Any:
        """The answer to the oldest request that has none yet."""
        response = API_BY_NAME[self._asked.pop(0)].response
        return self._connection.receive(response, Deadline(SECONDS_MAX))

    def tell(self, request: Any, version: int) -> None:
        """Sends a request that has no answer: a Produce with acks=0."""
        deadline = Deadline(SECONDS_MAX)
        self._connection.send(request, deadline, version=version, is_answered=False)


def errors(response: Any) -> list[str]:
    """The names of the errors in an answer, each once."""
    return list(error_names(response))


def topic_id(response: Any, name: str) -> bytes:
    """A topic's id, by an answer to Metadata or CreateTopics."""
    found: bytes = next(topic.topic_id for topic in response.topics if topic.name == name)
    return found


def values(response: Any) -> list[bytes | None]:
    """The values of all records that a Fetch brought."""
    return record_values(response)
