"""A broker for the client's tests: a listening socket, our own codecs, and answers as told.

It knows nothing by itself. A test says what comes back for each API: one function for all
requests, or a list that is worked off in order. ApiVersions is answered from `versions`.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

from asyncbroker.protocol.api import API_BY_KEY, API_BY_NAME, APIS
from asyncbroker.protocol.errors import ErrorCode
from asyncbroker.protocol.framing import FrameReader
from asyncbroker.protocol.headers import decode_request_header, encode_response_header
from asyncbroker.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from asyncbroker.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from asyncbroker.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from asyncbroker.protocol.schema import Versions

TOPIC_ID = bytes(range(16))

CLOSE = object()
"""The answer that closes the connection."""

SILENCE = object()
"""The answer that never comes."""

Answer = Callable[[Any, int], Any]


class ScriptedBroker:
    """One broker at a port of its own; connections are served by threads that end with it."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.versions = {api.key: api.versions for api in APIS}
        self.answers: dict[str, Any] = {}
        self.requests: list[tuple[str, int, Any]] = []
        self.connection_count = 0
        self._arrival = threading.Condition()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def requests_of(self, api: str) -> list[Any]:
        """The requests of one API, in the order in which they came."""
        return [request for name, _, request in self.requests if name == api]

    def await_request(self, api: str) -> None:
        """Waits until a request of this API has come, whose answer is then settled."""
        with self._arrival:
            assert self._arrival.wait_for(lambda: self.requests_of(api), timeout=10)

    def versions_of(self, api: str) -> list[int]:
        """The versions in which they came."""
        return [version for name, version, _ in self.requests if name == api]

    def close(self) -> None:
        if self._listener.fileno() < 0:
            return
        # Shutting down wakes the thread in accept(); closing alone would leave it there.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connected in self._open:
            connected.close()

    def _accept(self) -> None:
        while True:
            try:
                connected, _ = self._listener.accept()
            except OSError:
                return
            self.connection_count += 1
            self._open.append(connected)
            threading.Thread(target=self._serve, args=(connected,), daemon=True).start()

    def _serve(self, connected: socket.socket) -> None:
        reader = FrameReader(10**8)
        try:
            while count := connected.recv_into(reader.buffer()):
                for frame in reader.received(count):
                    response = self._respond(frame)
                    if response is None:
                        connected.shutdown(socket.SHUT_RDWR)
                        return
                    connected.sendall(response)
        except OSError:
            # The test closed one end or the other.
            return

    def _respond(self, frame: bytearray) -> bytes | None:
        header, position = decode_request_header(frame)
        api = API_BY_KEY[header.api_key]
        version = header.api_version
        if version not in self.versions[api.key]:
            assert api.name == "ApiVersions", f"{api.name} v{version} was not offered"
            request: Any = None
            answer: Any = self._api_versions(ErrorCode.UNSUPPORTED_VERSION)
        else:
            request = api.request_codec(version).decode(frame, position)
            answer = self._answer(api.name, request, version)
        with self._arrival:
            self.requests.append((api.name, version, request))
            self._arrival.notify_all()
        if request is None:
            version = 0
        if answer is CLOSE:
            return None
        if answer is SILENCE:
            return b""
        if not isinstance(answer, bytes):
            answer = api.response_codec(version).encode(answer)
        head = encode_response_header(header.api_key, header.api_version, header.correlation_id)
        frame_bytes = len(head) + len(answer)
        return b"".join((frame_bytes.to_bytes(4, "big"), head, answer))

    def _answer(self, name: str, request: Any, version: int) -> Any:
        answer = self.answers.get(name)
        if answer is None and name == "ApiVersions":
            return self._api_versions(ErrorCode.NONE)
        assert answer is not None, f"the test expects no {name}"
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        return answer(request, version) if callable(answer) else answer

    def _api_versions(self, code: ErrorCode) -> ApiVersionsResponse:
        """All versions, or with an error those of ApiVersions alone (KIP-511)."""
        keys = self.versions if code == ErrorCode.NONE else [API_BY_NAME["ApiVersions"].key]
        rows = [ApiVersion(key, self.versions[key].first, self.versions[key].last) for key in keys]
        return ApiVersionsResponse(error_code=code, api_keys=rows)

    def limit(self, api: str, versions: str) -> None:
        """Serves only these versions of an API; "none" is none at all."""
        key = API_BY_NAME[api].key
        if versions == "none":
            del self.versions[key]
        else:
            self.versions[key] = Versions.parse(versions)


def metadata_of(
    brokers: list[ScriptedBroker],
    leaders: dict[str, list[int]],
    topic_id: bytes = TOPIC_ID,
) -> Answer:
    """Answers Metadata: the brokers, and of each topic the leader of each partition."""

    def answer(request: Any, version: int) -> MetadataResponse:
        asked = list(leaders) if request.topics is None else [t.name for t in request.topics]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(b.node_id, "127.0.0.1", b.port) for b in brokers],
            controller_id=brokers[0].node_id,
            topics=[_topic(name, leaders.get(name), topic_id) for name in asked],
        )

    return answer


def coordinated_by(broker: ScriptedBroker) -> Answer:
    """Answers FindCoordinator with one broker."""

    def answer(request: Any, version: int) -> FindCoordinatorResponse:
        node_id, port = broker.node_id, broker.port
        if version < 4:
            return FindCoordinatorResponse(node_id=node_id, host="127.0.0.1", port=port)
        rows = [
            Coordinator(key=key, node_id=node_id, host="127.0.0.1", port=port)
            for key in request.coordinator_keys
        ]
        return FindCoordinatorResponse(coordinators=rows)

    return answer


def _topic(name: str, leaders: list[int] | None, topic_id: bytes) -> MetadataResponseTopic:
    if leaders is None:
        return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
    rows = [
        MetadataResponsePartition(partition_index=index, leader_id=leader)
        for index, leader in enumerate(leaders)
    ]
    return MetadataResponseTopic(name=name, topic_id=topic_id, partitions=rows)
