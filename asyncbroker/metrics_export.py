"""A broker's figures as Prometheus knows them: what there is, where it is read, and its text.

`FAMILIES` is the list of all; `docs/metrics.md` shows it. `collect` reads our numbers on the event
loop, some partitions at a time; `render` makes text of them and may run in a thread, which also
asks the system about the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric

from asyncbroker.coordinator.consumer.group import ConsumerGroupState
from asyncbroker.coordinator.group import GroupState
from asyncbroker.damaged_log import DamagedLog
from asyncbroker.metrics_requests import RequestMetrics, error_name
from asyncbroker.peer_watch import TooSlow

if TYPE_CHECKING:
    from asyncbroker.broker import Broker
    from asyncbroker.metrics import Histogram
    from asyncbroker.topic import Topic

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"

PREFIX: Final = "asyncbroker_"
PARTITIONS_TOGETHER_MAX: Final = 256


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: its name without the prefix, and what it says."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()


def _families() -> tuple[Family, ...]:
    counter, gauge, histogram = COUNTER, GAUGE, HISTOGRAM
    topic, api = ("topic",), ("api",)
    return (
        Family("requests_total", counter, "Requests that were answered or refused.", api),
        Family(
            "request_errors_total", counter, "Error codes in answers, each item.", ("api", "error")
        ),
        Family("request_seconds", histogram, "From a request to its answer, waits too.", api),
        Family("protocol_errors_total", counter, "Requests with bytes that cannot be."),
        Family("unsupported_requests_total", counter, "Requests in versions not served."),
        Family("internal_errors_total", counter, "Mistakes of the broker; each has a traceback."),
        Family("connections", gauge, "Open connections."),
        Family("connections_accepted_total", counter, "Connections that came in."),
        Family("connections_refused_total", counter, "Connections over a limit."),
        Family(
            "connections_closed_total", counter, "Connections closed for their peer.", ("reason",)
        ),
        Family("requests_held_bytes", gauge, "Memory of unfinished and waiting requests."),
        Family("loop_lag_seconds", histogram, "How late the event loop is, four times a second."),
        Family("bytes_in_total", counter, "Bytes of batches that were appended."),
        Family("records_in_total", counter, "Records that were appended."),
        Family("bytes_out_total", counter, "Bytes of batches in answers to fetches."),
        Family("topic_bytes_in_total", counter, "As bytes_in_total, of a topic.", topic),
        Family("topic_records_in_total", counter, "As records_in_total, of a topic.", topic),
        Family("topic_bytes_out_total", counter, "As bytes_out_total, of a topic.", topic),
        Family("topic_log_bytes", gauge, "Bytes in the segments of a topic.", topic),
        Family("append_seconds", histogram, "An append to a log, without its fsync."),
        Family(
            "fsync_seconds", histogram, "A write that makes data durable: a journal round, a log."
        ),
        Family("commit_round_waiters", histogram, "How many waited for a commit round."),
        Family("journal_rounds_total", counter, "Rounds that were written to the journal."),
        Family("journal_used_bytes", gauge, "Of the journal, what a start after a crash needs."),
        Family("journal_free_bytes", gauge, "The rest of it; without room rounds go past it."),
        Family("topics", gauge, "Topics, the internal ones too."),
        Family("partitions", gauge, "Partitions."),
        Family("partitions_offline", gauge, "Partitions that answer no request."),
        Family("log_directory_offline", gauge, "1 when the disk failed; until a restart."),
        Family("disk_full", gauge, "1 while records are refused for want of room."),
        Family("log_segments", gauge, "Segments of all logs."),
        Family("log_bytes", gauge, "Bytes in all segments."),
        Family("log_undurable_partitions", gauge, "Partitions with bytes not fsynced yet."),
        Family("log_damaged_ranges", gauge, "Ranges answered CORRUPT_MESSAGE."),
        Family("corrupt_reads_total", counter, "Fetches of a partition that met damage."),
        Family("log_deleted_segments_total", counter, "Segments that retention or requests ended."),
        Family("log_deleted_bytes_total", counter, "Bytes of those segments."),
        Family("cleaner_runs_total", counter, "Compactions of a log that were finished."),
        Family("cleaner_failures_total", counter, "Compactions that an error ended."),
        Family("cleaner_read_bytes_total", counter, "Bytes that finished compactions read."),
        Family("cleaner_kept_bytes_total", counter, "Bytes that they left."),
        Family("cleaner_uncleanable_partitions", gauge, "Logs not compacted until a restart."),
        Family("scrubber_read_bytes_total", counter, "Bytes held against their CRCs."),
        Family("scrubber_damaged_ranges_total", counter, "Damaged ranges found so."),
        Family("scrubber_read_errors_total", counter, "Slices that could not be read."),
        Family("start_seconds", gauge, "How long the last start took, recovery included."),
        Family("start_unclean", gauge, "1 if the last start followed a crash."),
        Family("recovered_partitions", gauge, "Logs with more than was durable then."),
        Family("recovered_bytes", gauge, "How much more: bytes that the start checked."),
        Family("groups", gauge, "Consumer groups in a state.", ("state",)),
    )


FAMILIES: Final = _families()

Labels = tuple[str, ...]
Samples = Sequence[tuple[Labels, "float | HistogramState"]]


@dataclass(frozen=True, slots=True)
class HistogramState:
    """A histogram at one moment."""

    buckets: tuple[tuple[str, float], ...]
    total: float

    @classmethod
    def of(cls, histogram: Histogram) -> HistogramState:
        """What it is now: how many up to each bound."""
        count = 0
        buckets: list[tuple[str, float]] = []
        bounds = [*(repr(float(bound)) for bound in histogram.bounds), "+Inf"]
        for bound, more in zip(bounds, histogram.counts, strict=True):
            count += more
            buckets.append((bound, count))
        return cls(tuple(buckets), histogram.total)


Figures = Mapping[str, Samples]


async def collect(broker: Broker, requests: RequestMetrics, lag: Histogram) -> Figures:
    """All figures, by the name of the family."""
    figures: dict[str, Samples] = {
        name: [((), value)] for name, value in (*_edge(broker), *_storage(broker))
    }
    figures["loop_lag_seconds"] = [((), HistogramState.of(lag))]
    figures["connections_closed_total"] = [
        ((reason.name.lower(),), broker.metrics.connections_closed[reason]) for reason in TooSlow
    ]
    groups = broker.groups_by_state()
    names = dict.fromkeys(state.value for state in (*GroupState, *ConsumerGroupState))
    figures["groups"] = [((name,), groups.get(name, 0)) for name in names]
    states = [(name, HistogramState.of(each.seconds)) for name, each in requests.items()]
    figures["request_seconds"] = [((name,), state) for name, state in states]
    figures["requests_total"] = [((name,), state.buckets[-1][1]) for name, state in states]
    figures["request_errors_total"] = [
        ((name, error_name(code)), count)
        for name, each in requests.items()
        for code, count in each.errors.items()
    ]
    logs, of_topics = await _logs(broker)
    for name, value in logs:
        figures[name] = [((), value)]
    figures.update(of_topics)
    return figures


def _edge(broker: Broker) -> Iterable[tuple[str, float]]:
    edge = broker.metrics
    return (
        ("protocol_errors_total", edge.protocol_errors),
        ("unsupported_requests_total", edge.unsupported_requests),
        ("internal_errors_total", edge.internal_errors),
        ("connections", edge.connections_open),
        ("connections_accepted_total", edge.connections_accepted),
        ("connections_refused_total", edge.connections_refused),
        ("requests_held_bytes", edge.bytes_in_flight),
    )


def _storage(broker: Broker) -> Iterable[tuple[str, float | HistogramState]]:
    storage, scrubber = broker.storage, broker.scrubber
    metrics, traffic = storage.metrics, storage.metrics.traffic
    if metrics.append_seconds is not None:
        yield "append_seconds", HistogramState.of(metrics.append_seconds)
    yield "fsync_seconds", HistogramState.of(metrics.fsync_seconds)
    yield "commit_round_waiters", HistogramState.of(metrics.round_waiters)
    journal = broker.journal
    yield "journal_rounds_total", 0 if journal is None else journal.round_count
    yield "journal_used_bytes", 0 if journal is None else journal.used_bytes
    yield "journal_free_bytes", 0 if journal is None else journal.free_bytes
    yield from (
        ("bytes_in_total", traffic.bytes_in),
        ("records_in_total", traffic.records_in),
        ("bytes_out_total", traffic.bytes_out),
        ("log_directory_offline", storage.error is not None),
        ("disk_full", storage.reserve.is_short),
        ("corrupt_reads_total", metrics.corrupt_reads),
        ("log_deleted_segments_total", metrics.deleted_segments),
        ("log_deleted_bytes_total", metrics.deleted_bytes),
        ("cleaner_runs_total", metrics.cleanings),
        ("cleaner_failures_total", metrics.cleanings_failed),
        ("cleaner_read_bytes_total", metrics.cleaner_read_bytes),
        ("cleaner_kept_bytes_total", metrics.cleaner_kept_bytes),
        ("cleaner_uncleanable_partitions", len(broker.cleaner.uncleanable)),
        ("scrubber_read_bytes_total", scrubber.bytes_read),
        ("scrubber_damaged_ranges_total", scrubber.damaged_ranges_found),
        ("scrubber_read_errors_total", scrubber.read_errors),
        ("start_seconds", metrics.start_seconds),
        ("start_unclean", metrics.is_start_unclean),
        ("recovered_partitions", metrics.recovered_partitions),
        ("recovered_bytes", metrics.recovered_bytes),
    )


async def _logs(broker: Broker) -> tuple[list[tuple[str, float]], Figures]:
    """What the partitions add up to, and the figures of topics."""
    topics = list(broker.topics)
    partitions = offline = segments = size = undurable = damaged = 0
    for topic in topics:
        for partition in topic.partitions:
            partitions += 1
            if not partitions % PARTITIONS_TOGETHER_MAX:
                await asyncio.sleep(0)
            log = partition.log
            offline += isinstance(log, DamagedLog) or not partition.is_readable()
            size += log.size
            if not isinstance(log, DamagedLog):
                segments += log.segment_count
                undurable += log.durable_end_offset < log.end_offset
                damaged += log.damaged_range_count
    sums: list[tuple[str, float]] = [
        ("topics", len(topics)),
        ("partitions", partitions),
        ("partitions_offline", offline),
        ("log_segments", segments),
        ("log_bytes", size),
        ("log_undurable_partitions", undurable),
        ("log_damaged_ranges", damaged),
    ]
    return sums, _topics(topics[: broker.config.metrics_topics_max])


def _topics(topics: Iterable[Topic]) -> Figures:
    names = ("bytes_in_total", "records_in_total", "bytes_out_total", "log_bytes")
    figures: dict[str, list[tuple[Labels, float | HistogramState]]] = {
        f"topic_{name}": [] for name in names
    }
    for topic in topics:
        parts = topic.partitions
        sums = (
            sum(each.traffic.bytes_in for each in parts),
            sum(each.traffic.records_in for each in parts),
            sum(each.traffic.bytes_out for each in parts),
            sum(each.log.size for each in parts),
        )
        for name, value in zip(names, sums, strict=True):
            figures[f"topic_{name}"].append(((topic.name,), value))
    return figures


# ---- text


class _Collector:
    """Gives figures to prometheus_client, when it asks."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterable[Metric]:
        """All families."""
        for family in FAMILIES:
            yield _metric(family, self._figures.get(family.name, ()))


def _metric(family: Family, samples: Samples) -> Metric:
    name, labels = PREFIX + family.name, family.labels
    if family.kind == HISTOGRAM:
        histogram = HistogramMetricFamily(name, family.help, labels=labels)
        for values, state in samples:
            assert isinstance(state, HistogramState)
            histogram.add_metric(values, state.buckets, state.total)
        return histogram
    make = CounterMetricFamily if family.kind == COUNTER else GaugeMetricFamily
    metric = make(name, family.help, labels=labels)
    for values, value in samples:
        assert not isinstance(value, HistogramState)
        metric.add_metric(values, float(value))
    return metric


def render(figures: Figures) -> bytes:
    """The text of the figures, and of the process."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(figures))
    ProcessCollector(registry=registry)
    return generate_latest(registry)
