"""What the client's commands share: how to reach the cluster, and how to say that it failed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import click

from asyncbroker.client.cluster import CONNECT_TIMEOUT_MS, TIMEOUT_MS, Cluster
from asyncbroker.client.errors import ClientError
from asyncbroker.client.security import security_of

BOOTSTRAP_SERVERS_VARIABLE: Final = "KAFKA_BOOTSTRAP_SERVERS"
BOOTSTRAP_SERVERS_DEFAULT: Final = "localhost:9092"

# Where the path is kept while a command runs.
COMMAND_CONFIG: Final = "asyncbroker.command_config"

CLIENT_ID: Final = "asyncbroker-cli"

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def cluster_options(command: Decorated) -> Decorated:
    """Adds `--bootstrap-server` and `--timeout`, which `connected` takes, and `--command-config`,
    which it finds by itself."""
    command = click.option(
        "--command-config",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False),
        expose_value=False,
        callback=_keep_command_config,
        help="Properties of a Kafka client that say how to log in, and about TLS.",
    )(command)
    command = click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(min=0.1),
        default=TIMEOUT_MS / 1000,
        show_default=True,
        metavar="SECONDS",
        help="How long to try before giving up.",
    )(command)
    return click.option(
        "-b",
        "--bootstrap-server",
        "bootstrap_servers",
        envvar=BOOTSTRAP_SERVERS_VARIABLE,
        default=BOOTSTRAP_SERVERS_DEFAULT,
        show_default=True,
        show_envvar=True,
        metavar="HOST:PORT,...",
        help="Where to reach the cluster.",
    )(command)


def _keep_command_config(
    context: click.Context, _parameter: click.Parameter, path: str | None
) -> None:
    context.meta[COMMAND_CONFIG] = path


def json_option(command: Decorated) -> Decorated:
    """Adds `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def yes_option(command: Decorated) -> Decorated:
    """Adds `--yes`, which `confirm` takes."""
    return click.option("-y", "--yes", is_flag=True, help="Do not ask.")(command)


@contextmanager
def connected(bootstrap_servers: str, timeout_s: float) -> Iterator[Cluster]:
    """A cluster, whose errors become messages with exit status 1."""
    try:
        with cluster_at(bootstrap_servers, timeout_s) as cluster:
            yield cluster
    except ClientError as error:
        raise click.ClickException(str(error)) from error


def cluster_at(bootstrap_servers: str, timeout_s: float) -> Cluster:
    """A cluster that is logged in to as `--command-config` says. Raises ClientError."""
    timeout_ms = round(timeout_s * 1000)
    return Cluster(
        bootstrap_servers,
        client_id=CLIENT_ID,
        timeout_ms=timeout_ms,
        connect_timeout_ms=min(CONNECT_TIMEOUT_MS, timeout_ms),
        security=security_of(command_properties()),
    )


def command_properties() -> dict[str, str]:
    """What the file of `--command-config` says; raises ClientError."""
    context = click.get_current_context(silent=True)
    path = None if context is None else context.meta.get(COMMAND_CONFIG)
    if path is None:
        return {}
    from asyncbroker.properties import parse_properties

    try:
        with open(path, encoding="utf-8-sig") as file:
            return parse_properties(file.read())
    except (OSError, UnicodeDecodeError) as error:
        raise ClientError(f"{path}: {error}") from error


def confirm(question: str, *, yes: bool) -> None:
    """Asks a person on a terminal before something is lost; scripts are not asked."""
    if not yes and sys.stdin.isatty():
        click.confirm(question, abort=True, err=True)


def assignments(texts: tuple[str, ...], option: str) -> dict[str, str]:
    """Reads `name=value` pairs."""
    pairs = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise click.BadParameter(f"{text!r} is not name=value", param_hint=option)
        pairs[name] = value
    return pairs
