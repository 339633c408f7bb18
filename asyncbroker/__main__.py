"""The command line: `asyncbroker COMMAND ...`, also as `python -m asyncbroker`.

A command's module is imported when that command runs, so that `serve` starts without paying for the
client, and the client's commands without paying for the broker.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final, NamedTuple

import click

from asyncbroker import __version__


class Command(NamedTuple):
    """Where a command is (in a module and function of one name), and what `--help` says of it."""

    module: str
    help: str


COMMANDS: Final[dict[str, Command]] = {
    "serve": Command("serve", "Run a broker."),
    "topics": Command("topics", "List, create, describe, change and delete topics."),
    "groups": Command("groups", "List, describe, reset and delete consumer groups."),
    "users": Command("users", "Add, list and delete the users who can log in."),
    "produce": Command("produce", "Write lines from standard input to a topic."),
    "consume": Command("consume", "Print the records of a topic."),
    "spark": Command("spark", "See what Spark would read."),
    "test-broker": Command("run_with_broker", "Run a command against a fresh broker."),
    "trace": Command("trace", "Show what clients and any broker say to each other."),
    "explain": Command("explain", "Say what captured bytes mean."),
    "watch": Command("watch", "Watch a consumer group as it moves."),
    "log": Command("log", "Look into, check and repair the files of a stopped broker."),
    "replay": Command("replay", "Send a recording to another broker, or make a test of it."),
    "demo": Command("demo", "See a broker, its clients and a rebalance at work."),
}


class LazyGroup(click.Group):
    """A group whose commands are the rows of `COMMANDS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"asyncbroker.commands.{COMMANDS[cmd_name].module}")
        command: click.Command = getattr(module, COMMANDS[cmd_name].module)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the list of commands without importing them, as click would."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.help) for name, command in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(prog)s %(version)s")
def cli() -> None:
    """A Kafka-compatible broker, and commands for daily use with any Kafka."""


def main() -> None:
    """The entry point of the `asyncbroker` script."""
    cli(prog_name="asyncbroker")


if __name__ == "__main__":
    main()
