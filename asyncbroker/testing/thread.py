"""A broker with a thread and an event loop of its own: `with BrokerThread() as broker`.

For tests that are synchronous, or whose clients block, or that run on any other loop. Every method
may be called from any thread but a handler's; it does its work in the broker's thread and returns
what came of it. In a test that is a coroutine, `wait_for` would stop the client that is waited for:
there it is `await broker.wait_for_async(...)`.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

from asyncbroker.runner import new_event_loop
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
from asyncbroker.testing.node import Node, NotRunning
from asyncbroker.testing.profile import SettingValue, make_config, text_of
from asyncbroker.testing.requests import Requests
from asyncbroker.testing.waiting import Wanted, wait_for

# Loaded here for the sake of the first test; `new_event_loop` does without where it is missing.
with suppress(ImportError):
    import uvloop  # noqa: F401

Result = TypeVar("Result")

# Beyond what anything here may take: a broker that hangs fails the test instead of hanging it.
CALL_SECONDS_MAX: Final = 30.0


class BrokerThread:
    """A broker for tests; everything that `Broker` says of its arguments and errors holds here."""

    def __init__(
        self,
        settings: Mapping[str, SettingValue] | None = None,
        *,
        directory: str | os.PathLike[str] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        **keywords: SettingValue,
    ) -> None:
        self._node = Node(
            make_config(settings, keywords, directory=directory, host=host, port=port)
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> BrokerThread:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def start(self) -> None:
        """Returns when the broker answers."""
        if self._thread is not None:
            raise RuntimeError("the broker runs already")
        loop = self._loop = new_event_loop()
        # A daemon: a test run that is broken off must not wait for it.
        self._thread = threading.Thread(target=_run, args=(loop,), name="asyncbroker", daemon=True)
        self._thread.start()
        try:
            self._wait(self._node.start())
        except BaseException:
            self._end_thread()
            raise

    def stop(self) -> None:
        """Stops in order, and ends the thread. The state stays with this object, for another
        `start`. Harmless when it does not run."""
        if self._thread is None:
            return
        try:
            self._wait(self._node.stop())
        finally:
            self._end_thread()

    def restart(self, *, down_seconds: float = 0.0) -> None:
        """Stops and starts again with the same state and port, in memory too."""
        self._wait(self._node.restart(down_seconds=down_seconds), down_seconds)

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
        return self._call(lambda: topic_names(self._node.broker))

    @property
    def groups(self) -> list[Group]:
        """All groups, as they are now."""
        return self._call(lambda: all_groups(self._node.broker))

    def topic(self, name: str) -> ThreadTopic:
        """One topic, whether it exists or not."""
        return ThreadTopic(self, name)

    def group(self, group_id: str) -> Group:
        """One group, as it is now; ask again to see what it has become."""
        return self._call(lambda: look_at_group(self._node.broker, group_id))

    def wait_for(
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
        group, for a state of it, for a condition (asked in the broker's thread). Raises
        WaitTimedOut after `timeout` seconds."""
        wanted = Wanted(records, topic, group, members, state, until)
        return self._wait(wait_for(lambda: self._node.broker, wanted, timeout), timeout)

    async def wait_for_async(
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
        """`wait_for`, for coroutines of an asyncio loop."""
        wanted = Wanted(records, topic, group, members, state, until)
        waiting = wait_for(lambda: self._node.broker, wanted, timeout)
        return await asyncio.wrap_future(
            asyncio.run_coroutine_threadsafe(waiting, self._running_loop())
        )

    # ---- the broker's thread

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise NotRunning("the broker does not run")
        return self._loop

    def _call(self, function: Callable[[], Result]) -> Result:
        """Runs something that does not wait in the broker's thread."""
        if self._thread is threading.current_thread():
            return function()

        async def call() -> Result:
            return function()

        return self._wait(call())

    def _wait(self, work: Coroutine[Any, Any, Result], more_seconds: float = 0.0) -> Result:
        """Runs a coroutine in the broker's thread to its end."""
        if self._loop is None or self._thread is threading.current_thread():
            work.close()
            reason = "does not run" if self._loop is None else "cannot wait for itself"
            raise NotRunning(f"the broker {reason}")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(CALL_SECONDS_MAX + more_seconds)
        except BaseException:
            future.cancel()
            raise

    def _end_thread(self) -> None:
        loop, thread = self._loop, self._thread
        assert loop is not None
        assert thread is not None
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        self._loop = self._thread = None


class ThreadTopic:
    """One topic of a broker in a thread."""

    def __init__(self, owner: BrokerThread, name: str) -> None:
        self._owner = owner
        self.name = name

    def records(self, partition: int | None = None) -> list[Record]:
        """Its records, partition by partition, or those of one. Raises LookupError."""
        node = self._owner._node
        return self._owner._call(lambda: read_records(node.broker, self.name, partition))

    def create(
        self,
        partitions: int | None = None,
        settings: Mapping[str, SettingValue] | None = None,
    ) -> ThreadTopic:
        """Creates it, with settings by a topic's names. Raises KafkaError."""
        texts = {name: text_of(value) for name, value in (settings or {}).items()}
        node = self._owner._node
        self._owner._wait(create_topic(node.broker, self.name, partitions, texts))
        return self

    def append(
        self,
        value: bytes | str | None,
        *,
        key: bytes | str | None = None,
        partition: int = 0,
        timestamp: int | None = None,
        headers: Iterable[Header] = (),
    ) -> Record:
        """Appends one record, to a new topic if need be. Raises LookupError or KafkaError."""
        return self._owner._wait(
            append_record(
                self._owner._node.broker,
                self.name,
                value,
                key=key,
                partition=partition,
                timestamp=timestamp,
                headers=headers,
            )
        )


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """The thread's life."""
    asyncio.set_event_loop(loop)
    loop.run_forever()
    loop.run_until_complete(loop.shutdown_asyncgens())
