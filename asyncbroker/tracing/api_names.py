"""What Kafka calls its APIs, those included that we have no schema of."""

from __future__ import annotations

from typing import Final

from asyncbroker.protocol.api import API_BY_KEY

_WITHOUT_SCHEMA: Final = {
    4: "LeaderAndIsr",
    5: "StopReplica",
    6: "UpdateMetadata",
    7: "ControlledShutdown",
    24: "AddPartitionsToTxn",
    25: "AddOffsetsToTxn",
    26: "EndTxn",
    27: "WriteTxnMarkers",
    28: "TxnOffsetCommit",
    30: "CreateAcls",
    31: "DeleteAcls",
    38: "CreateDelegationToken",
    39: "RenewDelegationToken",
    40: "ExpireDelegationToken",
    41: "DescribeDelegationToken",
    49: "AlterClientQuotas",
    55: "DescribeQuorum",
    57: "UpdateFeatures",
    61: "DescribeProducers",
    64: "UnregisterBroker",
    65: "DescribeTransactions",
    66: "ListTransactions",
    71: "GetTelemetrySubscriptions",
    72: "PushTelemetry",
    76: "ShareGroupHeartbeat",
    77: "ShareGroupDescribe",
    78: "ShareFetch",
    79: "ShareAcknowledge",
    88: "StreamsGroupHeartbeat",
    89: "StreamsGroupDescribe",
}


def api_name(key: int) -> str:
    """The name of an API; its number if Kafka has none of it."""
    api = API_BY_KEY.get(key)
    return api.name if api is not None else _WITHOUT_SCHEMA.get(key, f"API key {key}")


def known_names() -> list[str]:
    """All names."""
    return [api.name for api in API_BY_KEY.values()] + list(_WITHOUT_SCHEMA.values())
