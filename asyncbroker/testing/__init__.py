"""A broker inside a test: started in milliseconds, looked into, and made to fail on purpose.

    async with Broker() as broker:            # on the loop that runs
    with BrokerThread() as broker:            # in a thread of its own, for any test

`embedding.py` is the first, around `node.py`, and `thread.py` has the same methods for any thread,
by the bridges of `loop_thread.py`. `hands.py` reads and writes topics and groups past the protocol,
and `snapshot.py` the whole state. `faults.py` decides which request fails, and `watch.py`, the one
seam between the dispatcher and the handlers, carries that out and notes each request in
`requests.py`. `nodes.py`, `node_view.py` and `node_answers.py` are how one broker poses as several.
`broker_clock.py` moves the time of `movable_clock.py`.
`disk.py` and `releases.py` are a bad disk and an old release, `scenarios.py` has what goes wrong by
name, `assertions.py` the diffs, `plugin.py` pytest's fixtures and `cases.py` unittest's cases.
`arguments.py` is how wrong arguments are told.

Importing this package imports none of it: pytest loads the plugin at each start, also where no
test needs a broker.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from asyncbroker.protocol.errors import ErrorCode
    from asyncbroker.testing.assertions import (
        assert_committed,
        assert_rebalanced,
        assert_records,
    )
    from asyncbroker.testing.cases import (
        KafkaBrokerAsyncTestCase,
        KafkaBrokerMixin,
        KafkaBrokerTestCase,
    )
    from asyncbroker.testing.disk import DiskFault
    from asyncbroker.testing.embedding import Broker
    from asyncbroker.testing.faults import Fault, Faults
    from asyncbroker.testing.hands import Group, Member, Record
    from asyncbroker.testing.nodes import NodeInfo
    from asyncbroker.testing.requests import Request
    from asyncbroker.testing.scenarios import Scenarios
    from asyncbroker.testing.snapshot import Snapshot
    from asyncbroker.testing.thread import BrokerThread
    from asyncbroker.testing.waiting import WaitTimedOut

__all__ = [
    "Broker",
    "BrokerThread",
    "DiskFault",
    "ErrorCode",
    "Fault",
    "Faults",
    "Group",
    "KafkaBrokerAsyncTestCase",
    "KafkaBrokerMixin",
    "KafkaBrokerTestCase",
    "Member",
    "NodeInfo",
    "Record",
    "Request",
    "Scenarios",
    "Snapshot",
    "WaitTimedOut",
    "assert_committed",
    "assert_rebalanced",
    "assert_records",
]

_HOMES: Final = {
    "Broker": "asyncbroker.testing.embedding",
    "BrokerThread": "asyncbroker.testing.thread",
    "DiskFault": "asyncbroker.testing.disk",
    "ErrorCode": "asyncbroker.protocol.errors",
    "Fault": "asyncbroker.testing.faults",
    "Faults": "asyncbroker.testing.faults",
    "Group": "asyncbroker.testing.hands",
    "KafkaBrokerAsyncTestCase": "asyncbroker.testing.cases",
    "KafkaBrokerMixin": "asyncbroker.testing.cases",
    "KafkaBrokerTestCase": "asyncbroker.testing.cases",
    "Member": "asyncbroker.testing.hands",
    "NodeInfo": "asyncbroker.testing.nodes",
    "Record": "asyncbroker.testing.hands",
    "Request": "asyncbroker.testing.requests",
    "Scenarios": "asyncbroker.testing.scenarios",
    "Snapshot": "asyncbroker.testing.snapshot",
    "WaitTimedOut": "asyncbroker.testing.waiting",
    "assert_committed": "asyncbroker.testing.assertions",
    "assert_rebalanced": "asyncbroker.testing.assertions",
    "assert_records": "asyncbroker.testing.assertions",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
