"""`asyncbroker watch group`: a group as it moves, at any broker.

On a terminal it is a picture that is drawn anew; anywhere else a line for each thing that happens;
with `--json` an object for each look. A broker that is away is said to be, and asked again.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from typing import Final

import click

from asyncbroker.client.errors import ClientError
from asyncbroker.client.groups import DEAD
from asyncbroker.commands.common import cluster_at, cluster_options, connected, json_option
from asyncbroker.tracing.group_table import headline, plain_lines, render
from asyncbroker.tracing.group_view import GenerationWatch, GroupView, as_json, moves, take_view
from asyncbroker.tracing.lines import clock_text
from asyncbroker.tracing.text import printable

EVENTS_SHOWN: Final = 8

Look = tuple["GroupView | None", str]
"""A view, or what keeps it from being had."""


@click.group()
def watch() -> None:
    """Watch something as it moves."""


@watch.command()
@click.argument("group_id", metavar="GROUP")
@click.option("--once", is_flag=True, help="Show it once, and end.")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0.1),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="How often to look.",
)
@json_option
@cluster_options
def group(
    bootstrap_servers: str,
    timeout_s: float,
    group_id: str,
    once: bool,
    interval_s: float,
    as_json: bool,
) -> None:
    """Show a group's members, partitions, lag, and what moves, until Ctrl-C."""
    if once:
        _show_once(bootstrap_servers, timeout_s, group_id, as_json=as_json)
        return
    # Whoever ends it gets the terminal back as it was.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    looks = _looks(bootstrap_servers, min(timeout_s, 5.0), group_id, interval_s)
    try:
        if as_json:
            _show_json(looks)
        elif sys.stdout.isatty():
            _show_live(looks, group_id)
        else:
            _show_lines(looks)
    except KeyboardInterrupt:
        # The way to end it.
        pass
    except BrokenPipeError:
        # Whoever read it has seen enough; Python must not find out again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except ClientError as error:
        raise click.ClickException(str(error)) from error
    finally:
        looks.close()


def _show_once(servers: str, timeout_s: float, group_id: str, *, as_json: bool) -> None:
    with connected(servers, timeout_s) as cluster, ExitStack() as stack:
        generations = GenerationWatch(cluster, group_id)
        stack.callback(generations.close)
        view = take_view(cluster, group_id, generations.look())
    if view.state == DEAD and not view.partitions:
        raise click.ClickException(f"there is no group {group_id!r}")
    click.echo(_json_line(view) if as_json else "\n".join(plain_lines(view)))


def _looks(
    servers: str, timeout_s: float, group_id: str, interval_s: float
) -> Generator[Look, None, None]:
    """A look each interval, for ever."""
    with cluster_at(servers, timeout_s) as cluster:
        generations = GenerationWatch(cluster, group_id)
        try:
            while True:
                due = time.monotonic() + interval_s
                try:
                    yield take_view(cluster, group_id, generations.look()), ""
                except ClientError as error:
                    cluster.close()
                    cluster.forget()
                    yield None, str(error)
                time.sleep(max(0.0, due - time.monotonic()))
        finally:
            generations.close()


def _show_json(looks: Iterator[Look]) -> None:
    for view, trouble in looks:
        if view is None:
            print(json.dumps({"at": round(time.time(), 3), "error": trouble}), flush=True)
        else:
            print(_json_line(view), flush=True)


def _show_lines(looks: Iterator[Look]) -> None:
    before: GroupView | None = None
    last_trouble = ""
    for view, trouble in looks:
        if view is None:
            if trouble != last_trouble:
                print(f"{clock_text(time.time())}  {printable(trouble)}", flush=True)
            last_trouble = trouble
            continue
        if before is None or last_trouble:
            print("\n".join(plain_lines(view)), flush=True)
        else:
            for move in moves(before, view):
                print(f"{clock_text(view.at)}  {printable(move)}", flush=True)
            if before.lag != view.lag:
                print(headline(view), flush=True)
        before, last_trouble = view, ""


def _show_live(looks: Iterator[Look], group_id: str) -> None:
    from rich.live import Live
    from rich.text import Text

    events: deque[str] = deque(maxlen=EVENTS_SHOWN)
    last: GroupView | None = None
    with Live(auto_refresh=False, vertical_overflow="crop") as live:
        for view, trouble in looks:
            before = last
            if view is not None:
                if last is not None:
                    events.extend(f"{clock_text(view.at)}  {move}" for move in moves(last, view))
                last = view
            if last is None:
                text = f"group {printable(group_id)}: {printable(trouble)}"
                live.update(Text(text, "bold red"), refresh=True)
            else:
                live.update(render(last, before, list(events), trouble), refresh=True)


def _json_line(view: GroupView) -> str:
    return json.dumps(as_json(view))
