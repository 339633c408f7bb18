"""A broker process from its start to its exit status: event loop, order of start and stop, signals.

Start: bind the listeners (so that a port in use is told before anything is opened), open the data,
then answer. Stop: no new connections and requests; the broker ends what waits; the last answers
leave; files are flushed and closed. All of that may take `asyncbroker.stop.timeout.ms`.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Protocol

from asyncbroker.broker import Broker
from asyncbroker.clock import SystemClock
from asyncbroker.config import BrokerConfig
from asyncbroker.connections import AcceptLimits, Connections
from asyncbroker.context import Address
from asyncbroker.dispatch import Dispatcher, Serving
from asyncbroker.handlers import HANDLERS, Handler
from asyncbroker.listeners import Listener
from asyncbroker.log.errors import DirectoryRefused
from asyncbroker.log.files import is_portable_forced
from asyncbroker.metrics import Metrics
from asyncbroker.peer_watch import ConnectionLimits
from asyncbroker.server import CannotListen, Server
from asyncbroker.workers import ThreadWorkers

logger = logging.getLogger(__name__)

EXIT_FAILED: Final = 1

# So many new objects that are still there begin a search for garbage in cycles.
GARBAGE_OBJECTS: Final = 20_000

# Listeners, the event loop, the metadata store, small files that are being written.
OTHER_DESCRIPTORS: Final = 32

# Without a limit in the configuration.
UNLIMITED_BYTES: Final = 1 << 62


class RequestObserver(Protocol):
    """Somebody who sees every request and its answer; chosen before the start, since a broker
    without one must not pay for the question whether there is one."""

    def handlers(self, table: Mapping[int, Handler]) -> Mapping[int, Handler]:
        """The handlers, with a look at each message."""

    def dispatcher(self, inner: Serving) -> Serving:
        """The dispatcher, with a look at each frame."""


class Exporter(Protocol):
    """Shows figures of the broker to somebody else."""

    def bind(self, broker: Broker) -> None:
        """Takes its port. Raises CannotListen."""

    async def start(self) -> None:
        """Begins to answer."""

    async def stop(self) -> None:
        """Ends, also when it has not begun."""


def run(
    config: BrokerConfig,
    on_ready: Callable[[Address], None],
    observer: RequestObserver | None = None,
    exporter: Exporter | None = None,
) -> int:
    """Runs a broker until a signal stops it; returns the exit status. `on_ready` is called with the
    address of the first listener when the broker answers there."""
    _fill_standard_descriptors()
    _raise_descriptor_limit()
    loop = new_event_loop()
    try:
        return loop.run_until_complete(_run(config, on_ready, observer, exporter))
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where it is installed, otherwise asyncio's. On Windows its selector loop, which
    alone can share descriptors with what listens."""
    if not is_portable_forced():
        with suppress(ImportError):
            import uvloop

            return uvloop.new_event_loop()
    return asyncio.SelectorEventLoop()


async def _run(
    config: BrokerConfig,
    on_ready: Callable[[Address], None],
    observer: RequestObserver | None,
    exporter: Exporter | None,
) -> int:
    for warning in config.warnings:
        logger.warning("%s", warning)
    if config.data_directory is None:
        logger.warning("records are kept in memory only (--data DIR keeps them)")
    stop_asked = _watch_signals()
    loop = asyncio.get_running_loop()
    clock = SystemClock(loop)
    workers = ThreadWorkers(loop, config.worker_threads)
    readers = ThreadWorkers(loop, config.reader_threads)
    broker = Broker(config, clock, workers, readers=readers)
    server = make_server(broker, observer=observer)
    try:
        addresses = server.bind()
        if exporter is not None:
            exporter.bind(broker)
        await broker.start()
    except (CannotListen, DirectoryRefused, OSError) as error:
        server.unbind()
        if exporter is not None:
            await exporter.stop()
        logger.error("cannot start: %s", error)
        return EXIT_FAILED
    # What is there now stays: garbage collection need not look at it again. Nor at requests that
    # wait for the disk, a few hundred with their messages: they are in no cycles, and would be gone
    # over with every few that come.
    gc.freeze()
    gc.set_threshold(GARBAGE_OBJECTS, *gc.get_threshold()[1:])
    server.start()
    if exporter is not None:
        await exporter.start()
    logger.info(
        "serving on %s as %s",
        ", ".join(map(str, server.bound)),
        ", ".join(map(str, addresses)),
        extra={"fields": {"bound": [str(address) for address in server.bound]}},
    )
    if not stop_asked.done():
        on_ready(addresses[0])
    logger.info("stopping: %s", await stop_asked)
    if exporter is not None:
        await exporter.stop()
    return await stop_in_order(broker, [server], config.stop_timeout_ms / 1000)


async def stop_in_order(broker: Broker, servers: Sequence[Server], seconds_max: float) -> int:
    """Stops all of it; returns the exit status that is due. Half of the time is for peers that take
    their last answers slowly, the rest for the disk."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds_max
    for server in servers:
        server.begin_stop()
    try:
        broker.end_waits()
        await asyncio.gather(*(server.finish_stop(seconds_max / 2) for server in servers))
        await asyncio.wait_for(broker.stop(), deadline - loop.time())
    except asyncio.TimeoutError:
        logger.error("not stopped within %.0f s: ending without", seconds_max)
        return EXIT_FAILED
    logger.info("stopped")
    return 0


def make_server(
    broker: Broker,
    *,
    metrics: Metrics | None = None,
    handlers: Mapping[int, Handler] = HANDLERS,
    listeners: Iterable[Listener] | None = None,
    observer: RequestObserver | None = None,
) -> Server:
    """The server in front of a broker, with the limits and (without others) the listeners of its
    configuration."""
    config: BrokerConfig = broker.config
    return Server(
        make_connections(broker, metrics=metrics, handlers=handlers, observer=observer),
        config.listeners if listeners is None else listeners,
        backlog=config.socket_listen_backlog_size,
        send_buffer_bytes=config.socket_send_buffer_bytes,
        receive_buffer_bytes=config.socket_receive_buffer_bytes,
        handshake_seconds_max=config.connection_frame_timeout_ms / 1000,
    )


def make_connections(
    broker: Broker,
    *,
    metrics: Metrics | None = None,
    handlers: Mapping[int, Handler] = HANDLERS,
    observer: RequestObserver | None = None,
) -> Connections:
    """What serves a broker's connections, wherever they come from."""
    config: BrokerConfig = broker.config
    metrics = metrics or broker.metrics
    dispatcher: Serving = Dispatcher(
        broker,
        metrics,
        frame_bytes_max=config.socket_request_max_bytes,
        handlers=handlers if observer is None else observer.handlers(handlers),
    )
    if observer is not None:
        dispatcher = observer.dispatcher(dispatcher)
    in_flight_max = config.queued_max_request_bytes
    descriptors_max = _connection_descriptors_max(has_files=config.data_directory is not None)

    def accept_limits() -> AcceptLimits:
        # Asked for each connection: these can be altered while the broker runs.
        current = broker.config
        return AcceptLimits(
            current.max_connections,
            current.max_connections_per_ip,
            current.max_connections_per_ip_overrides,
            descriptors_max,
        )

    return Connections(
        dispatcher,
        clock=broker.peer_clock,
        workers=broker.storage.readers,
        metrics=metrics,
        limits=ConnectionLimits(
            frame_bytes_max=config.socket_request_max_bytes,
            idle_seconds_max=seconds(config.connections_max_idle_ms),
            unfinished_seconds_max=config.connection_frame_timeout_ms / 1000,
            output_bytes_max=config.connection_output_max_bytes,
        ),
        accept_limits=accept_limits,
        bytes_in_flight_max=in_flight_max if in_flight_max >= 0 else UNLIMITED_BYTES,
        may_sendfile=not is_portable_forced() and hasattr(os, "sendfile"),
        make_answer=lambda: broker.commits.make_answer,
    )


def seconds(milliseconds: int) -> float:
    """Kafka's negative times have no end."""
    return milliseconds / 1000 if milliseconds >= 0 else float("inf")


def _connection_descriptors_max(*, has_files: bool) -> int:
    """Half of the file descriptors, as the other half is the logs', if they have files at all; less
    a few for everything else."""
    try:
        import resource
    except ImportError:  # Windows
        return sys.maxsize
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return sys.maxsize
    return max(1, (soft // 2 if has_files else soft) - OTHER_DESCRIPTORS)


def _fill_standard_descriptors() -> None:
    """Opens what whoever started us has closed of 0, 1 and 2. Otherwise a socket or a log file gets
    such a number, and is closed, or written to, by whoever takes it for a standard stream."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free number is given, which is this one.
            os.open(os.devnull, os.O_RDWR)


def _raise_descriptor_limit() -> None:
    """Takes as many file descriptors as the system allows: connections and segments need them, and
    the customary limit of 1024 is for programs that use `select`."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _watch_signals() -> asyncio.Future[str]:
    """A future that has the name of the first signal to stop. The second ends the process."""
    loop = asyncio.get_running_loop()
    asked: asyncio.Future[str] = loop.create_future()

    def on_signal(number: signal.Signals) -> None:
        if asked.done():
            logger.error("ending at once: a second %s", number.name)
            os._exit(128 + number)
        asked.set_result(number.name)

    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(number, on_signal, number)
        except NotImplementedError:
            # Windows: signals come between two bytecodes, and the loop has to be told.
            signal.signal(
                number,
                lambda received, _: loop.call_soon_threadsafe(on_signal, signal.Signals(received)),
            )
    return asked
