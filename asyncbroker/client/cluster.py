"""Finds the broker for a request, keeps a connection to each, and tries again what may pass.

    cluster = Cluster("host1:9092,host2:9092")
    cluster.leader(TopicPartition("flights", 0))     # a node id
    cluster.call(node_id, ListGroupsRequest(), ListGroupsResponse)

Metadata is kept until an answer shows that it is out of date. Everything has a deadline
(`timeout_ms`), within which retriable errors and lost connections are met with fresh metadata and
another attempt. A cluster of which no broker can be reached at first is reported at once, and one
whose brokers advertise addresses that cannot be reached after `connect_timeout_ms`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

from asyncbroker.client.connection import Address, Connect, Connection, Deadline
from asyncbroker.client.errors import (
    BrokerError,
    BrokerUnreachable,
    ClientError,
    ConnectionLost,
    RequestTimedOut,
)
from asyncbroker.client.security import PLAINTEXT, Security
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from asyncbroker.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

CLIENT_ID: Final = "asyncbroker"
TIMEOUT_MS: Final = 30_000
CONNECT_TIMEOUT_MS: Final = 10_000
RETRY_BACKOFF_MS: Final = 100
AUTO_CREATION_S: Final = 5.0

GROUP_KEY: Final = 0

Response = TypeVar("Response")
Result = TypeVar("Result")


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Cluster:
    """A Kafka cluster as one client sees it; see the head of this file."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        client_id: str = CLIENT_ID,
        timeout_ms: int = TIMEOUT_MS,
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
        retry_backoff_ms: int = RETRY_BACKOFF_MS,
        security: Security = PLAINTEXT,
        connect: Connect | None = None,
    ) -> None:
        """Connects to nothing yet; raises `ClientError` when an address cannot be read."""
        if isinstance(bootstrap_servers, str):
            bootstrap_servers = bootstrap_servers.split(",")
        self.bootstrap = [Address.parse(text) for text in bootstrap_servers if text.strip()]
        if not self.bootstrap:
            raise ClientError("no bootstrap server is given")
        self.client_id = client_id
        self.timeout_s = timeout_ms / 1000
        self.connect_timeout_s = connect_timeout_ms / 1000
        self._retry_backoff_s = retry_backoff_ms / 1000
        self._security = security
        self._connect = connect
        self._nodes: dict[int, Address] = {}
        self._controller_id = -1
        self._topics: dict[str, MetadataResponseTopic] = {}
        # Of the partitions of these topics: who sends asks for them again and again.
        self._leaders: dict[TopicPartition, int] = {}
        self._coordinators: dict[str, int] = {}
        self._connections: dict[Address, Connection] = {}
        self._has_connected = False

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections; may be called again."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def deadline(self) -> Deadline:
        """The deadline of something that begins now."""
        return Deadline(self.timeout_s)

    # --- trying again -----------------------------------------------------------------------------

    def retrying(
        self, attempt: Callable[[Deadline], Result], deadline: Deadline | None = None
    ) -> Result:
        """The result of `attempt`, which is made again while it fails in a way that may pass."""
        if deadline is None:
            deadline = self.deadline()
        connect_deadline = Deadline(min(self.connect_timeout_s, deadline.remaining_s))
        failure: ClientError | None = None
        while True:
            try:
                return attempt(deadline)
            except RequestTimedOut as error:
                if failure is not None:
                    # What went wrong before says more than that there was no time left.
                    raise failure from error
                raise
            except (BrokerError, BrokerUnreachable, ConnectionLost) as error:
                limit = connect_deadline if isinstance(error, BrokerUnreachable) else deadline
                if not self.may_pass(error) or not self.back_off(limit):
                    raise
                failure = error

    def may_pass(self, error: ClientError) -> bool:
        """Whether another attempt may succeed where one has failed with this error."""
        if isinstance(error, BrokerError):
            return error.is_retriable
        if isinstance(error, BrokerUnreachable):
            return self._has_connected
        return isinstance(error, ConnectionLost)

    def back_off(self, deadline: Deadline) -> bool:
        """Forgets what led to a failure, and waits a little; whether there is time left then."""
        self.forget()
        time.sleep(min(self._retry_backoff_s, deadline.remaining_s))
        return not deadline.has_passed

    def wait_for_broker(self, deadline: Deadline) -> None:
        """Connects to a broker, and waits for one that is away.

        Whoever has never reached one is told so at once: it is most likely the address. This is
        for those who know that the address is right. Raises ClientError.
        """
        while True:
            try:
                self.any_connection(deadline)
                return
            except (BrokerUnreachable, ConnectionLost):
                if not self.back_off(deadline):
                    raise

    def forget(self) -> None:
        """Drops what is known of leaders and coordinators, so that it is asked for anew."""
        self._topics.clear()
        self._leaders.clear()
        self._coordinators.clear()

    # --- connections ------------------------------------------------------------------------------

    def call(
        self,
        node_id: int,
        message: object,
        response: type[Response],
        deadline: Deadline,
    ) -> Response:
        """One request to one broker, without a second attempt."""
        return self.connection(node_id, deadline).request(message, response, deadline)

    def connection(self, node_id: int, deadline: Deadline) -> Connection:
        """The connection to a broker, made if there is none."""
        return self._connection(self._address_of(node_id, deadline), deadline, node_id)

    def dedicated_connection(self, node_id: int, deadline: Deadline) -> Connection:
        """A connection of the caller's own, for requests that wait; the caller closes it."""
        return self._open(self._address_of(node_id, deadline), deadline, node_id)

    def any_connection(self, deadline: Deadline) -> Connection:
        """A connection to whichever broker can be reached."""
        for connection in self._connections.values():
            if not connection.is_closed and not connection.awaited_count:
                return connection
        failures = []
        addresses = list(dict.fromkeys([*self._nodes.values(), *self.bootstrap]))
        for address in addresses:
            try:
                return self._connection(address, deadline)
            except (BrokerUnreachable, ConnectionLost) as error:
                failures.append(str(error))
        raise BrokerUnreachable("; ".join(failures))

    def _connection(
        self, address: Address, deadline: Deadline, node_id: int | None = None
    ) -> Connection:
        connection = self._connections.get(address)
        if connection is not None and connection.awaited_count:
            # Whoever sent these requests was interrupted: their answers are nobody's.
            connection.close()
        if connection is None or connection.is_closed:
            connection = self._connections[address] = self._open(address, deadline, node_id)
        return connection

    def _open(self, address: Address, deadline: Deadline, node_id: int | None) -> Connection:
        try:
            connection = Connection.open(
                address,
                client_id=self.client_id,
                timeout_s=min(self.connect_timeout_s, deadline.remaining_s),
                security=self._security,
                connect=self._connect,
            )
        except BrokerUnreachable as error:
            if node_id is None:
                raise
            raise BrokerUnreachable(
                f"{error} (the cluster advertises this address for broker {node_id}: can it be "
                "reached from here?)"
            ) from error
        self._has_connected = True
        return connection

    def _address_of(self, node_id: int, deadline: Deadline) -> Address:
        if node_id not in self._nodes:
            self.metadata([], deadline)
        address = self._nodes.get(node_id)
        if address is None:
            raise BrokerError(
                ErrorCode.BROKER_NOT_AVAILABLE, api="Metadata", subject=f"broker {node_id}"
            )
        return address

    # --- metadata ---------------------------------------------------------------------------------

    def metadata(
        self,
        topics: Iterable[str] | None,
        deadline: Deadline,
        *,
        allow_auto_topic_creation: bool = False,
    ) -> MetadataResponse:
        """Asks for topics (None: for all), and takes note of brokers and leaders. One attempt;
        errors of single topics are left in the response."""
        connection = self.any_connection(deadline)
        version = connection.version_of(MetadataRequest)
        request = MetadataRequest(
            topics=None if topics is None else [MetadataRequestTopic(name=name) for name in topics],
            # Versions that have no such field create topics, and cannot be told not to.
            allow_auto_topic_creation=allow_auto_topic_creation or version < 4,
        )
        if request.topics is None and version == 0:
            request.topics = []
        response = connection.request(request, MetadataResponse, deadline)
        self._nodes = {row.node_id: Address(row.host, row.port) for row in response.brokers}
        self._controller_id = response.controller_id
        for topic in response.topics:
            if topic.name is not None:
                self._topics[topic.name] = topic
                for row in topic.partitions:
                    partition = TopicPartition(topic.name, row.partition_index)
                    self._leaders[partition] = row.leader_id
        return response

    def topics(self) -> list[MetadataResponseTopic]:
        """All topics, by name."""
        response = self.retrying(lambda deadline: self.metadata(None, deadline))
        return sorted(response.topics, key=lambda topic: topic.name or "")

    def topic(self, name: str) -> MetadataResponseTopic:
        """One topic; raises `BrokerError` UNKNOWN_TOPIC_OR_PARTITION when there is none."""
        return self.retrying(lambda deadline: self._known_topic(name, deadline))

    def topic_or_new(self, name: str) -> MetadataResponseTopic:
        """One topic, which the broker may create if it is set to. It may answer for a while that
        there is none, so it is asked again for up to `AUTO_CREATION_S`."""

        def look(deadline: Deadline) -> MetadataResponseTopic:
            try:
                return self._known_topic(name, deadline, allow_auto_topic_creation=True)
            except BrokerError as error:
                error.is_retriable |= error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                raise

        return self.retrying(look, Deadline(min(AUTO_CREATION_S, self.timeout_s)))

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """The partitions of a topic, in order."""
        rows = self.topic(topic).partitions
        return [TopicPartition(topic, index) for index in sorted(r.partition_index for r in rows)]

    def node_ids(self, deadline: Deadline) -> list[int]:
        """All brokers."""
        self.metadata([], deadline)
        return sorted(self._nodes)

    def controller(self, deadline: Deadline) -> int:
        """The broker that creates and deletes topics; asked for anew, since it moves."""
        self.metadata([], deadline)
        if self._controller_id < 0:
            raise BrokerError(ErrorCode.NOT_CONTROLLER, api="Metadata", message="no controller yet")
        return self._controller_id

    def leader(self, partition: TopicPartition, deadline: Deadline) -> int:
        """The broker that leads a partition. One attempt."""
        self._known_topic(partition.topic, deadline)
        leader = self._leaders.get(partition)
        if leader is None:
            raise BrokerError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                api="Metadata",
                subject=str(partition),
                message="the topic has no such partition",
            )
        if leader < 0:
            raise BrokerError(
                ErrorCode.LEADER_NOT_AVAILABLE, api="Metadata", subject=str(partition)
            )
        return leader

    def topic_id(self, topic: str, deadline: Deadline) -> bytes:
        """A topic's id; zeros when the broker is too old to have any."""
        return self._known_topic(topic, deadline).topic_id

    def _known_topic(
        self, name: str, deadline: Deadline, *, allow_auto_topic_creation: bool = False
    ) -> MetadataResponseTopic:
        if name not in self._topics:
            self.metadata([name], deadline, allow_auto_topic_creation=allow_auto_topic_creation)
        topic = self._topics.get(name)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error_code
        # LEADER_NOT_AVAILABLE comes for a topic that has leaders for some partitions only.
        if topic is None or (code != ErrorCode.NONE and not topic.partitions):
            self._topics.pop(name, None)
            raise BrokerError(code, api="Metadata", subject=f"topic {name!r}")
        return topic

    # --- coordinators -----------------------------------------------------------------------------

    def coordinator(self, group_id: str, deadline: Deadline) -> int:
        """The broker that coordinates a group. One attempt."""
        known = self._coordinators.get(group_id)
        if known is not None:
            return known
        connection = self.any_connection(deadline)
        request = FindCoordinatorRequest()
        if connection.version_of(FindCoordinatorRequest) >= 4:
            request.coordinator_keys = [group_id]
        else:
            request.key = group_id
        response = connection.request(request, FindCoordinatorResponse, deadline)
        # From version 4 on there is one row for each key; before, the response is the row.
        found = response.coordinators[0] if response.coordinators else response
        if found.error_code != ErrorCode.NONE:
            raise BrokerError(
                found.error_code,
                api="FindCoordinator",
                subject=f"group {group_id!r}",
                broker=str(connection.address),
                message=found.error_message,
            )
        self._nodes[found.node_id] = Address(found.host, found.port)
        self._coordinators[group_id] = found.node_id
        return found.node_id
