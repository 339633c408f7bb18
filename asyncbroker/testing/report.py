"""What a failed test is told about its broker: the last requests, the faults that it has set for
nothing, and the groups in the requests."""

from __future__ import annotations

from concurrent.futures import TimeoutError as CallTimedOut
from typing import TYPE_CHECKING, Final

from asyncbroker.protocol.errors import KafkaError
from asyncbroker.testing.loop_thread import NotRunning

if TYPE_CHECKING:
    from asyncbroker.testing.thread import BrokerThread

SECTION: Final = "requests of the Kafka broker"


def describe_broker(broker: BrokerThread, since: float) -> str:
    """The requests since the start of the test, and the groups that they were about."""
    text = broker.requests.describe(since=since) or "(there were none)"
    for fault in broker.faults.never_fired:
        text += f"\nnever fired: {fault} on {fault.where}; {fault.matched} requests fitted"
    concerned = {
        group for request in broker.requests if request.at >= since for group in request.groups
    }
    try:
        groups = [group for group in broker.groups if group.group_id in concerned]
    except (NotRunning, KafkaError, CallTimedOut) as error:
        return f"{text}\nthe groups cannot be looked at: {error}"
    return "\n".join([text, *(group.describe() for group in groups)])
