"""A broker on the caller's event loop: `async with Broker() as broker`.

Looking (`records`, `group`) is immediate, since broker and test share a thread; what has to wait is
a coroutine. Any asyncio loop will do. Blocking clients would block the broker with the test: for
those there is `BrokerThread`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

from asyncbroker.testing.faults import Faults
from asyncbroker.testing.hands import (
    Group,
    Header,
    Record,
    all_groups,
    append_record,
    create_topic,
    look_at_group,
    read_records,
    topic_names,
)
from asyncbroker.testing.node import Node
from asyncbroker.testing.profile import SettingValue, make_config, text_of
from asyncbroker.testing.requests import Requests
from asyncbroker.testing.trace import Trace
from asyncbroker.testing.waiting import Wanted, wait_for


class Broker:
    """A broker for tests, with a server on a port of its own.

    `directory`: where its data is kept; in memory without one. `port`: 0 is any free one. Settings
    go by Kafka's names, over those of the test profile. `trace`: True writes a line for each
    request to standard error, a text chooses some ("api=Produce errors"), a function is called with
    each `Exchange` in the broker's thread. Raises ConfigError, BadChoice, and at the start
    CannotListen, DirectoryRefused or OSError.
    """

    def __init__(
        self,
        settings: Mapping[str, SettingValue] | None = None,
        *,
        directory: str | os.PathLike[str] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        trace: Trace = False,
        **keywords: SettingValue,
    ) -> None:
        self._node = Node(
            make_config(settings, keywords, directory=directory, host=host, port=port), trace
        )

    async def __aenter__(self) -> Broker:
        await self.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Returns when the broker answers."""
        await self._node.start()

    async def stop(self) -> None:
        """Stops in order. The state stays with this object, for another `start`."""
        await self._node.stop()

    async def restart(self, *, down_seconds: float = 0.0) -> None:
        """Stops and starts again with the same state and port, in memory too."""
        await self._node.restart(down_seconds=down_seconds)

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT for clients."""
        return self._node.bootstrap_servers

    @property
    def faults(self) -> Faults:
        """Which requests fail."""
        return self._node.faults

    @property
    def requests(self) -> Requests:
        """The last requests."""
        return self._node.requests

    @property
    def topics(self) -> list[str]:
        """The names of all topics but the broker's own."""
        return topic_names(self._node.broker)

    @property
    def groups(self) -> list[Group]:
        """All groups, as they are now."""
        return all_groups(self._node.broker)

    def topic(self, name: str) -> Topic:
        """One topic, whether it exists or not."""
        return Topic(self._node, name)

    def group(self, group_id: str) -> Group:
        """One group, as it is now; ask again to see what it has become."""
        return look_at_group(self._node.broker, group_id)

    async def wait_for(
        self,
        *,
        records: int | None = None,
        topic: str | None = None,
        group: str | None = None,
        members: int | None = None,
        state: str | None = None,
        until: Callable[[], bool] | None = None,
        timeout: float = 10.0,
    ) -> list[Record]:
        """Waits for so many records in a topic (and returns all it has), for so many members in a
        group, for a state of it, for a condition. Raises WaitTimedOut after `timeout` seconds."""
        wanted = Wanted(records, topic, group, members, state, until)
        return await wait_for(lambda: self._node.broker, wanted, timeout)


class Topic:
    """One topic of a broker on this loop."""

    def __init__(self, node: Node, name: str) -> None:
        self._node = node
        self.name = name

    def records(self, partition: int | None = None) -> list[Record]:
        """Its records, partition by partition, or those of one. Raises LookupError."""
        return read_records(self._node.broker, self.name, partition)

    async def create(
        self,
        partitions: int | None = None,
        settings: Mapping[str, SettingValue] | None = None,
    ) -> Topic:
        """Creates it, with settings by a topic's names. Raises KafkaError."""
        texts = {name: text_of(value) for name, value in (settings or {}).items()}
        await create_topic(self._node.broker, self.name, partitions, texts)
        return self

    async def append(
        self,
        value: bytes | str | None,
        *,
        key: bytes | str | None = None,
        partition: int = 0,
        timestamp: int | None = None,
        headers: Iterable[Header] = (),
    ) -> Record:
        """Appends one record, to a new topic if need be. Raises LookupError or KafkaError."""
        return await append_record(
            self._node.broker,
            self.name,
            value,
            key=key,
            partition=partition,
            timestamp=timestamp,
            headers=headers,
        )
