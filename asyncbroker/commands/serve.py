"""`asyncbroker serve`: reads the configuration, runs a broker until it is told to stop.

Standard output gets exactly one line, `asyncbroker ready HOST:PORT`, when the broker answers on the
address it names; everything else goes to standard error. The first SIGTERM or SIGINT stops in order
and ends with status 0; a second one ends the process at once.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Final

import click

from asyncbroker.commands.trace_options import recording_option, trace_option

if TYPE_CHECKING:
    from asyncbroker.config import BrokerConfig
    from asyncbroker.context import Address
    from asyncbroker.metrics_server import MetricsServer

DEFAULT_PORT: Final = 9092


@click.command()
@click.option(
    "--listen",
    "listen",
    multiple=True,
    metavar="HOST:PORT",
    help="Where to listen; port 0 takes a free one. May be given several times. "
    f"[default: the listeners of --config, otherwise localhost:{DEFAULT_PORT}]",
)
@click.option(
    "--advertise",
    "advertise",
    multiple=True,
    metavar="HOST:PORT",
    help="The address that clients are told, for each --listen in turn. "
    "[default: the one that was bound]",
)
@click.option("--data", "data", metavar="DIR", help="Keep topics and records in this directory.")
@click.option("--memory", "memory", is_flag=True, help="Keep everything in memory only.")
@click.option(
    "--config", "config_path", metavar="FILE", help="A server.properties file, as Kafka's."
)
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting by Kafka's name; goes before the file. May be given several times.",
)
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
)
@trace_option
@recording_option
@click.option(
    "--metrics",
    "metrics",
    metavar="[HOST:]PORT",
    help="Answer GET /metrics there in Prometheus' text format; without HOST on 127.0.0.1.",
)
def serve(
    listen: tuple[str, ...],
    advertise: tuple[str, ...],
    data: str | None,
    memory: bool,
    config_path: str | None,
    assignments: tuple[str, ...],
    log_format: str,
    log_level: str,
    trace: str | None,
    record: str | None,
    metrics: str | None,
) -> None:
    """Run a broker.

    Without --data, or log.dirs in the configuration, records are kept in memory and are gone when
    the broker ends.
    """
    from asyncbroker import logs
    from asyncbroker.config import ConfigError, load_config
    from asyncbroker.runner import run

    if data is not None and memory:
        raise click.UsageError("--data and --memory exclude each other")
    if data == "":
        # A variable that is not set, as a rule; the working directory is not what was meant.
        raise click.UsageError("--data needs a directory")
    logs.configure(log_format, log_level)
    try:
        config = load_config(config_path, assignments)
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    if data is not None or memory:
        options = {} if data is None else {"log.dirs": data}
        config = dataclasses.replace(config, data_directory=data, options=options)
    config = with_listeners(config, listen, advertise)
    exporter = None if metrics is None else _make_exporter(metrics)
    if trace is None and record is None:
        requests = None if exporter is None else exporter.observer
        sys.exit(run(config, _say_ready, requests, exporter))
    from asyncbroker.commands.tracing import BrokerTrace

    with BrokerTrace(trace, record) as observer:
        observers = observer if exporter is None else exporter.observer_and(observer)
        status = run(config, _say_ready, observers, exporter)
    sys.exit(status)


def with_listeners(
    config: BrokerConfig, listen: tuple[str, ...], advertise: tuple[str, ...]
) -> BrokerConfig:
    """The configuration with the listeners of the command line, if it names any."""
    from asyncbroker.context import Address
    from asyncbroker.listeners import Listener

    told = [_parse_address(text, "--advertise") for text in advertise]
    if not listen and "listeners" in config.static:
        if told:
            raise click.UsageError("--advertise goes with --listen; use advertised.listeners")
        return config
    if len(told) > max(1, len(listen)):
        raise click.UsageError("there are more --advertise than --listen")
    if not listen:
        # Clients try the addresses of "localhost" in any order, so it listens on both; what it
        # tells them is the one that always works.
        address = told[0] if told else ("127.0.0.1", None)
        default = Listener("PLAINTEXT", "localhost", DEFAULT_PORT, *address)
        return dataclasses.replace(config, listeners=(default,))
    listeners = []
    for index, text in enumerate(listen):
        host, port = _parse_address(text, "--listen")
        advertised_host, advertised_port = told[index] if index < len(told) else (None, None)
        name = "PLAINTEXT" if index == 0 else f"PLAINTEXT{index + 1}"
        listeners.append(Listener(name, host, port, advertised_host, advertised_port))
    options = {
        "listeners": ",".join(
            f"{each.name}://{Address(each.host, each.port)}" for each in listeners
        )
    }
    return dataclasses.replace(
        config, listeners=tuple(listeners), options={**config.options, **options}
    )


def _make_exporter(text: str) -> MetricsServer:
    host, port = _parse_address(text if ":" in text else f"127.0.0.1:{text}", "--metrics")
    try:
        from asyncbroker.metrics_server import MetricsServer
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "prometheus_client":
            raise
        raise click.ClickException(
            '--metrics needs prometheus-client: pip install "asyncbroker[metrics]"'
        ) from error
    return MetricsServer(host, port)


def _parse_address(text: str, option: str) -> tuple[str, int]:
    from asyncbroker.listeners import HOST_LENGTH_MAX

    host, colon, port = text.rpartition(":")
    if len(host) > HOST_LENGTH_MAX or not colon or not port.isdecimal() or int(port) > 65535:
        raise click.BadParameter(f"{text!r} is not HOST:PORT", param_hint=option)
    host = host.removeprefix("[").removesuffix("]")
    return ("" if host == "*" else host), int(port)


def _say_ready(address: Address) -> None:
    print(f"asyncbroker ready {address}", flush=True)
