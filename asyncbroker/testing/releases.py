"""Which versions of which APIs a release of Apache Kafka serves, to pose as that release.

Each row is what the release changed: `key:last` for an API that is new or has a new last version.
Up to 3.9 they are those of a cluster with ZooKeeper. All first versions are 0 until 4.0, which
removed old ones (KIP-896). APIs that brokers ask of each other are left out.

What the test's broker then serves is what both have. It is its own behaviour in those versions, and
not a copy of the old release's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from asyncbroker.protocol.schema import Versions
from asyncbroker.testing.handler_table import Table, wrap_handler

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.context import RequestContext
    from asyncbroker.handlers import Handle, Handler
    from asyncbroker.protocol.api import Api

API_VERSIONS: Final = "ApiVersions"

CHANGES: Final[dict[str, str]] = {
    "0.11": "0:3 1:5 2:2 3:4 8:3 9:3 10:1 11:2 12:1 13:1 14:1 15:1 16:1 17:0 18:1 19:2 20:1 21:0"
    " 22:0 23:0 24:0 25:0 26:0 28:0 29:0 30:0 31:0 32:0 33:0",
    "1.0": "0:5 1:6 3:5 17:1 34:0 35:0 36:0 37:0",
    "1.1": "1:7 32:1 42:0",
    "2.0": "0:6 1:8 2:3 3:6 8:4 9:4 10:2 11:3 12:2 13:2 14:2 15:2 16:2 18:2 19:3 20:2 21:1 22:1"
    " 23:1 24:1 25:1 26:1 28:1 29:1 30:1 31:1 32:2 33:1 34:1 35:1 37:1 42:1",
    "2.1": "0:7 1:10 2:4 3:7 8:6 9:5 20:3 23:2 28:2",
    "2.2": "2:5 11:4 36:1 43:0",
    "2.3": "1:11 3:8 8:7 11:5 12:3 14:3 15:3 23:3 44:0",
    "2.4": "0:8 3:9 8:8 9:6 10:3 11:6 12:4 13:4 14:4 15:5 16:3 18:3 19:5 20:4 22:2 42:2 43:2 44:1"
    " 45:0 46:0 47:0",
    "2.5": "9:7 11:7 14:5 22:3 28:3 29:2 30:2 31:2 36:2 37:2",
    "2.6": "16:4 21:2 32:3 35:2 48:0 49:0",
    "2.7": "1:12 19:6 20:5 22:4 24:2 25:2 26:2 37:3 50:0 51:0",
    "2.8": "0:9 2:6 3:11 19:7 20:6 23:4 24:3 25:3 26:3 32:4 33:2 34:2 48:1 49:1 60:0 61:0",
    "3.0": "2:7 9:8 10:4 65:0 66:0",
    "3.1": "1:13 3:12",
    "3.2": "11:9 13:5 35:3",
    "3.3": "29:3 30:3 31:3 35:4",
    "3.4": "",
    "3.5": "1:15 2:8",
    "3.6": "24:4",
    "3.7": "0:10 1:16 8:9 9:9 60:1 68:0",
    "3.8": "0:11 10:5 16:5 22:5 24:5 25:4 26:4 28:4 66:1 69:0",
    "3.9": "1:17 2:9 10:6 18:4",
    "4.0": "0:12 2:10 3:13 15:6 26:5 28:5 60:2 68:1 69:1 75:0",
    "4.1": "0:13 1:18 45:1 66:2",
    "4.2": "2:11 8:10 9:10",
}

FIRST_VERSIONS_FROM: Final = "4.0"
FIRST_VERSIONS: Final = dict.fromkeys((2, 9, 20, 29, 30, 31, 32, 34, 35), 1) | {
    1: 4,
    8: 2,
    11: 2,
    19: 2,
    23: 2,
}

RELEASES: Final = tuple(CHANGES)


def release_of(version: str) -> str:
    """The release of a version such as "2.8" or "2.8.1". Raises ValueError for one that is not
    known."""
    known = {release: release for release in RELEASES}
    parts = version.removeprefix("v").split(".")
    for count in (2, 3):
        if (release := known.get(".".join(parts[:count]))) is not None:
            return release
    raise ValueError(f"Kafka {version} is not known; {', '.join(RELEASES)} are")


def versions_of(release: str) -> dict[int, Versions]:
    """The versions of each API, by its key."""
    last: dict[int, int] = {}
    for name in RELEASES[: RELEASES.index(release) + 1]:
        for change in CHANGES[name].split():
            key, _, version = change.partition(":")
            last[int(key)] = int(version)
    is_new = RELEASES.index(release) >= RELEASES.index(FIRST_VERSIONS_FROM)
    first = FIRST_VERSIONS if is_new else {}
    return {key: Versions(first.get(key, 0), version) for key, version in last.items()}


def as_release(table: Table, release: str) -> Table:
    """The handlers of a broker that poses as a release: what both serve."""
    limits = versions_of(release)
    advertised: dict[int, Versions] = {}
    limited: dict[int, Handler] = {}

    def wrap(api: Api, handle: Handle) -> Handle:
        if api.name != API_VERSIONS:
            return handle

        def tell(broker: Broker, context: RequestContext, request: Any) -> Any:
            response: Any = handle(broker, context, request)
            response.api_keys = [each for each in response.api_keys if each.api_key in advertised]
            for each in response.api_keys:
                versions = advertised[each.api_key]
                each.min_version, each.max_version = versions.first, versions.last
            return response

        return tell

    for key, handler in table.items():
        limit = limits.get(key)
        both = None if limit is None else _both(handler.advertised, limit)
        served = None if limit is None else _both(handler.served, limit)
        if both is not None and served is not None:
            advertised[key] = both
            limited[key] = wrap_handler(handler, wrap, advertised=both, served=served)
    return limited


def _both(ours: Versions, theirs: Versions) -> Versions | None:
    first, last = max(ours.first, theirs.first), min(ours.last, theirs.last)
    return Versions(first, last) if first <= last else None
