"""`asyncbroker users`: who can log in, by SCRAM or with a password (PLAIN).

With `--data DIR` the users of a broker that does not run are changed, as before its first start;
otherwise those of any running one, Apache Kafka as well. Passwords are asked for, or read from
standard input: on a command line others could see them. They do not leave this process: a broker
gets them salted and iterated.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import click

from asyncbroker.client.users import Credential, alter_users, describe_users
from asyncbroker.commands.common import (
    cluster_options,
    confirm,
    connected,
    json_option,
    yes_option,
)
from asyncbroker.commands.tables import print_json, print_table
from asyncbroker.protocol.scram import credential_of, salt_password
from asyncbroker.protocol.scram_credential import (
    ITERATIONS_DEFAULT,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SCRAM_MECHANISMS,
)

if TYPE_CHECKING:
    from asyncbroker.metadata_store import Change

# The iterations of each credential, by user and mechanism.
Found = dict[str, dict[str, int]]

SALT_BYTES: Final = 32

data_option = click.option(
    "--data",
    "data",
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="The data directory of a broker that does not run.",
)
mechanism_option = click.option(
    "--mechanism",
    "mechanisms",
    multiple=True,
    type=click.Choice(list(SCRAM_MECHANISMS)),
    help="May be given several times. [default: both]",
)


@click.group()
def users() -> None:
    """Add, list and delete the users who can log in."""


@users.command()
@click.argument("name", metavar="USER")
@mechanism_option
@click.option(
    "--iterations",
    type=click.IntRange(ITERATIONS_MIN, ITERATIONS_MAX),
    default=ITERATIONS_DEFAULT,
    show_default=True,
    help="How slow it is to guess at the password.",
)
@data_option
@cluster_options
def add(
    bootstrap_servers: str,
    timeout_s: float,
    name: str,
    mechanisms: tuple[str, ...],
    iterations: int,
    data: str | None,
) -> None:
    """Add a user, or give one another password.

    The password is asked for; without a terminal it is the first line of standard input.
    """
    password = _read_password(name)
    credentials = []
    for mechanism in mechanisms or SCRAM_MECHANISMS:
        salt = secrets.token_bytes(SALT_BYTES)
        salted = salt_password(mechanism, password.encode(), salt, iterations)
        credentials.append(Credential(name, mechanism, iterations, salt, salted))
    if data is not None:
        from asyncbroker.metadata_store import PutScramCredential

        puts = [
            PutScramCredential(
                name,
                each.mechanism,
                credential_of(each.mechanism, each.salted_password, each.salt, iterations),
            )
            for each in credentials
        ]
        _change_stored(data, lambda _: puts, may_make=True)
        return
    with connected(bootstrap_servers, timeout_s) as cluster:
        alter_users(cluster, upserted=credentials)


@users.command()
@click.argument("name", metavar="USER")
@mechanism_option
@data_option
@yes_option
@cluster_options
def delete(
    bootstrap_servers: str,
    timeout_s: float,
    name: str,
    mechanisms: tuple[str, ...],
    data: str | None,
    yes: bool,
) -> None:
    """Delete a user. Whoever has logged in stays so until the connection ends."""
    confirm(f"Delete user {name}?", yes=yes)

    def present(found: Found) -> list[str]:
        present = [each for each in found.get(name, {}) if each in (mechanisms or found[name])]
        if not present:
            raise click.ClickException(f"there is no user {name} with such a credential")
        return present

    if data is not None:
        from asyncbroker.metadata_store import DeleteScramCredential

        _change_stored(
            data,
            lambda found: [DeleteScramCredential(name, each) for each in present(found)],
        )
        return
    with connected(bootstrap_servers, timeout_s) as cluster:
        alter_users(cluster, deleted=[(name, each) for each in present(describe_users(cluster))])


@users.command("list")
@data_option
@json_option
@cluster_options
def list_(
    bootstrap_servers: str,
    timeout_s: float,
    data: str | None,
    as_json: bool,
) -> None:
    """List users, with the mechanisms by which they can log in."""
    if data is not None:
        found = _change_stored(data, lambda _: [])
    else:
        with connected(bootstrap_servers, timeout_s) as cluster:
            found = describe_users(cluster)
    rows = [
        (user, mechanism, iterations)
        for user, by_mechanism in sorted(found.items())
        for mechanism, iterations in by_mechanism.items()
    ]
    columns = ("user", "mechanism", "iterations")
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print_table(columns, rows)


def _read_password(name: str) -> str:
    if sys.stdin.isatty():
        password = str(
            click.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True)
        )
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise click.UsageError("the password is empty")
    return password


def _change_stored(
    data: str, changes: Callable[[Found], Sequence[Change]], *, may_make: bool = False
) -> Found:
    """Changes the users in a data directory, which is made only if it may be; returns those that
    were there, as `describe_users` does."""
    from asyncbroker.log.errors import DirectoryRefused
    from asyncbroker.sqlite_metadata import FILE_NAME, SqliteMetadataStore

    path = os.path.join(data, FILE_NAME)
    if not may_make and not os.path.exists(path):
        raise click.ClickException(
            f"{data} is not the directory of a broker: it has no {FILE_NAME}"
        )
    try:
        os.makedirs(data, exist_ok=True)
        store = SqliteMetadataStore(path)
        state = store.open()
    except (DirectoryRefused, OSError) as error:
        text = str(error)
        if "locked" in text:
            text = f"{data} is in use by a broker: leave out --data to change its users"
        raise click.ClickException(text) from error
    try:
        found: Found = {}
        for (user, mechanism), credential in state.scram_credentials.items():
            found.setdefault(user, {})[mechanism] = credential.iterations
        wanted = changes(found)
        if wanted:
            store.apply(wanted)
    except OSError as error:
        raise click.ClickException(str(error)) from error
    finally:
        store.close()
    return found
