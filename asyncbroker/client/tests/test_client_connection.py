"""One connection: versions, order, and every way in which the other side can fail."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from asyncbroker.client.connection import Address, Connection, Deadline
from asyncbroker.client.errors import (
    BrokerError,
    BrokerUnreachable,
    ClientError,
    ConnectionLost,
    RequestTimedOut,
    UnsupportedVersion,
)
from asyncbroker.client.tests.scripted_broker import CLOSE, SILENCE, ScriptedBroker
from asyncbroker.protocol.api import API_BY_NAME
from asyncbroker.protocol.messages.api_versions import ApiVersionsResponse
from asyncbroker.protocol.messages.create_topics import CreateTopicsRequest
from asyncbroker.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from asyncbroker.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from asyncbroker.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)


def _in_version_0(response: ApiVersionsResponse) -> bytes:
    return API_BY_NAME["ApiVersions"].response_codec(0).encode(response)


def connect(broker: ScriptedBroker) -> Connection:
    address = Address("127.0.0.1", broker.port)
    return Connection.open(address, client_id="test", timeout_s=5)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost:9093", Address("localhost", 9093)),
        ("kafka", Address("kafka", 9092)),
        (" 10.0.0.1:1 ", Address("10.0.0.1", 1)),
        ("[::1]:9092", Address("::1", 9092)),
        ("[::1]", Address("::1", 9092)),
    ],
)
def test_addresses_are_read(text: str, address: Address) -> None:
    assert Address.parse(text) == address


@pytest.mark.parametrize("text", ["", ":9092", "host:", "host:port", "host:70000", "host:-1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ClientError, match="is not an address"):
        Address.parse(text)


def test_an_ipv6_address_is_shown_in_brackets() -> None:
    assert str(Address("::1", 9092)) == "[::1]:9092"


def test_the_newest_version_that_both_know_is_spoken(broker: ScriptedBroker) -> None:
    broker.limit("ListGroups", "0-3")
    broker.answers["ListGroups"] = ListGroupsResponse()
    with_timeout = Deadline(5)
    connection = connect(broker)
    connection.request(ListGroupsRequest(), ListGroupsResponse, with_timeout)
    assert broker.versions_of("ListGroups") == [3]
    connection.close()


def test_an_older_broker_is_asked_for_its_versions_again_in_one_it_knows(
    broker: ScriptedBroker,
) -> None:
    broker.limit("ApiVersions", "0-3")
    connection = connect(broker)
    assert broker.versions_of("ApiVersions") == [4, 3]
    assert connection.supports(ListGroupsRequest)
    connection.close()


def test_a_broker_that_names_no_versions_is_asked_in_version_0(broker: ScriptedBroker) -> None:
    empty = ApiVersionsResponse(error_code=35)
    broker.answers["ApiVersions"] = [_in_version_0(empty), ApiVersionsResponse()]
    connection = connect(broker)
    assert broker.versions_of("ApiVersions") == [4, 0]
    connection.close()


def test_an_api_that_the_broker_lacks_is_named(broker: ScriptedBroker) -> None:
    broker.limit("CreateTopics", "none")
    connection = connect(broker)
    assert not connection.supports(CreateTopicsRequest)
    with pytest.raises(UnsupportedVersion, match=r"127\.0\.0\.1:\d+ does not serve CreateTopics"):
        connection.send(CreateTopicsRequest(), Deadline(5))
    connection.close()


def test_versions_without_overlap_are_named(broker: ScriptedBroker) -> None:
    broker.limit("Heartbeat", "9-11")
    connection = connect(broker)
    with pytest.raises(UnsupportedVersion, match="versions 9 to 11, and this client knows 0 to 4"):
        connection.version_of(HeartbeatRequest)
    connection.close()


def test_what_a_version_cannot_express_is_not_sent(broker: ScriptedBroker) -> None:
    broker.limit("ListGroups", "0-3")
    connection = connect(broker)
    with pytest.raises(UnsupportedVersion, match=r"ListGroups cannot be sent .* no states_filter"):
        connection.send(ListGroupsRequest(states_filter=["Empty"]), Deadline(5))
    assert connection.awaited_count == 0
    connection.close()


def test_requests_may_be_sent_ahead_and_are_answered_in_order(broker: ScriptedBroker) -> None:
    broker.answers["ListGroups"] = [
        ListGroupsResponse(groups=[ListedGroup(name)]) for name in ("first", "second")
    ]
    broker.answers["Heartbeat"] = HeartbeatResponse(error_code=27)
    connection = connect(broker)
    deadline = Deadline(5)
    connection.send(ListGroupsRequest(), deadline)
    connection.send(HeartbeatRequest(), deadline)
    connection.send(ListGroupsRequest(), deadline)
    assert connection.awaited_count == 3
    assert connection.receive(ListGroupsResponse, deadline).groups[0].group_id == "first"
    assert connection.receive(HeartbeatResponse, deadline).error_code == 27
    assert connection.receive(ListGroupsResponse, deadline).groups[0].group_id == "second"
    connection.close()


@pytest.mark.parametrize(
    "batch_sizes", [[10], [3_000_000], [1, 900_000, 0, 2_000_000], [9000] * 90]
)
def test_large_requests_arrive_as_they_are(broker: ScriptedBroker, batch_sizes: list[int]) -> None:
    """However little of them the socket takes at a time."""
    broker.answers["Produce"] = ProduceResponse()
    with socket.create_connection(("127.0.0.1", broker.port)) as connected:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 5000)
        connection = Connection.open(
            Address("127.0.0.1", broker.port),
            client_id="test",
            timeout_s=5,
            connect=lambda address, timeout_s: connected,
        )
        sent = [random.Random(size).randbytes(size) for size in batch_sizes]
        rows = [PartitionProduceData(at, data) for at, data in enumerate(sent)]
        request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicProduceData("t", rows)])
        connection.request(request, ProduceResponse, Deadline(10))
        connection.close()
    (found,) = broker.requests_of("Produce")
    assert [bytes(row.records) for row in found.topic_data[0].partition_data] == sent


def test_nobody_listening_is_said_with_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(BrokerUnreachable, match=rf"cannot connect to 127\.0\.0\.1:{port}: Conn"):
        Connection.open(Address("127.0.0.1", port), client_id="test", timeout_s=5)


def test_an_unknown_host_is_said_with_its_name() -> None:
    with pytest.raises(BrokerUnreachable, match=r"cannot connect to no\.such\.host\.invalid:1"):
        Connection.open(Address("no.such.host.invalid", 1), client_id="test", timeout_s=5)


def test_silence_ends_at_the_deadline(broker: ScriptedBroker) -> None:
    broker.answers["ListGroups"] = SILENCE
    connection = connect(broker)
    with pytest.raises(RequestTimedOut, match=r"did not answer ListGroups within 0\.05 s"):
        connection.request(ListGroupsRequest(), ListGroupsResponse, Deadline(0.05))
    assert connection.is_closed


def test_a_close_is_a_lost_connection(broker: ScriptedBroker) -> None:
    broker.answers["ListGroups"] = CLOSE
    connection = connect(broker)
    with pytest.raises(ConnectionLost, match="closed by the broker, while waiting for ListGroups"):
        connection.request(ListGroupsRequest(), ListGroupsResponse, Deadline(5))
    with pytest.raises(ConnectionLost, match="is closed"):
        connection.send(ListGroupsRequest(), Deadline(5))


def test_a_response_that_is_none_is_refused(broker: ScriptedBroker) -> None:
    broker.answers["ListGroups"] = b"\x00\x01"
    connection = connect(broker)
    with pytest.raises(ClientError, match="answered ListGroups v5 with bytes that are no such"):
        connection.request(ListGroupsRequest(), ListGroupsResponse, Deadline(5))
    assert connection.is_closed


def test_an_error_in_the_answer_to_api_versions_is_raised(broker: ScriptedBroker) -> None:
    broker.answers["ApiVersions"] = ApiVersionsResponse(error_code=42)
    with pytest.raises(BrokerError, match=r"ApiVersions failed at broker .*: INVALID_REQUEST"):
        connect(broker)


@pytest.fixture
def stranger() -> Iterator[Callable[[bytes], Address]]:
    """A server that is no broker: it answers whatever comes with the given bytes, and hangs up."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(answer: bytes) -> Address:
        def answer_one() -> None:
            connected, _ = listener.accept()
            with connected:
                connected.recv(4096)
                connected.sendall(answer)

        threading.Thread(target=answer_one, daemon=True).start()
        return Address("127.0.0.1", listener.getsockname()[1])

    yield serve
    listener.close()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is not Kafka's protocol"),
        (b"\xff\xff\xff\xff", "is not Kafka's protocol"),
        (b"\x00\x00\x00\x08\x00\x00", "was closed by the broker"),
        (b"\x00\x00\x00\x06\x00\x00\x00\x63\x00\x00", "correlation id 99, not 1"),
        (b"\x00\x00\x00\x04\x00\x00\x00\x01", "no such response"),
        (b"\x00\x00\x00\x00", "no such response"),
        (b"", "was closed by the broker"),
    ],
)
def test_what_is_no_broker_is_told_from_one(
    stranger: Callable[[bytes], Address], answer: bytes, says: str
) -> None:
    with pytest.raises(ClientError, match=says):
        Connection.open(stranger(answer), client_id="test", timeout_s=5)


def test_the_socket_comes_from_whoever_wants_to_make_it(broker: ScriptedBroker) -> None:
    made: list[socket.socket] = []

    def connect_and_keep(address: Address, timeout_s: float) -> socket.socket:
        made.append(socket.create_connection(("127.0.0.1", broker.port), timeout_s))
        return made[-1]

    connection = Connection.open(
        Address("behind.a.tunnel", 1), client_id="test", timeout_s=5, connect=connect_and_keep
    )
    assert connection.fileno() == made[0].fileno()
    connection.close()
