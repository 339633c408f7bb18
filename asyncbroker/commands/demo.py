"""`asyncbroker demo`: things to watch, each on a broker of its own."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import click

NEEDED = ("aiokafka", "confluent_kafka")


@click.group()
def demo() -> None:
    """Shows the broker at work."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise click.ClickException(
            f"the demo needs {' and '.join(missing)}: pip install 'asyncbroker[demo]'"
        )


@demo.command()
def rebalance() -> None:
    """A consumer group whose members come, go and are killed, generation by generation."""
    from asyncbroker.demo.processes import DemoError
    from asyncbroker.demo.rebalance import run_rebalance_demo
    from asyncbroker.demo.show import Show

    show = Show()
    try:
        run_rebalance_demo(show)
    except DemoError as error:
        raise click.ClickException(str(error)) from error
    if show.failures:
        sys.exit(1)
