"""ApiVersions (key 18), versions 0 to 4: which versions of which APIs the broker serves (KIP-35).

The response always has a header of version 0, since a client cannot know yet what the broker
understands; and the answer to a version that the broker does not serve is a body of version 0 with
UNSUPPORTED_VERSION and the versions of this API alone (KIP-511).

v1   the throttle time (KIP-124)
v2   on a quota violation the response comes at once and says how long to wait (KIP-219)
v3   flexible (KIP-482); the client's software (KIP-511); features of the cluster (KIP-584)
v4   a supported feature may begin at level 0 (KAFKA-17011)
"""

from __future__ import annotations

from dataclasses import dataclass

from asyncbroker.protocol.schema import BOOL, INT16, INT32, INT64, STRING, array, wire


@dataclass(slots=True)
class ApiVersionsRequest:
    """Who asks. Up to v2 the request is empty."""

    client_software_name: str = wire(STRING, "3+", ignorable=True)
    client_software_version: str = wire(STRING, "3+", ignorable=True)


@dataclass(slots=True)
class ApiVersion:
    """The range of versions served of one API."""

    api_key: int = wire(INT16)
    min_version: int = wire(INT16)
    max_version: int = wire(INT16)


@dataclass(slots=True)
class SupportedFeatureKey:
    """The range of levels that the broker supports of one feature."""

    name: str = wire(STRING)
    min_version: int = wire(INT16)
    max_version: int = wire(INT16)


@dataclass(slots=True)
class FinalizedFeatureKey:
    """The range of levels that the cluster has settled on for one feature."""

    name: str = wire(STRING)
    max_version_level: int = wire(INT16)
    min_version_level: int = wire(INT16)


@dataclass(slots=True)
class ApiVersionsResponse:
    """The served APIs, and the features of the cluster."""

    error_code: int = wire(INT16)
    api_keys: list[ApiVersion] = wire(array(ApiVersion))
    throttle_time_ms: int = wire(INT32, "1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = wire(
        array(SupportedFeatureKey), "3+", tag=0, ignorable=True
    )
    finalized_features_epoch: int = wire(INT64, "3+", default=-1, tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = wire(
        array(FinalizedFeatureKey), "3+", tag=2, ignorable=True
    )
    zk_migration_ready: bool = wire(BOOL, "3+", tag=3, ignorable=True)
