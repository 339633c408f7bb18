"""`asyncbroker log`: looks into the files of a broker that is not running, checks and repairs them.

Each takes a data directory, the directory of a partition, or one file. `dump` and `check` only
read; `repair` takes the directory's lock, and does nothing without `--yes` but say what it would.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

import click

from asyncbroker.commands.log_dump import dump_file
from asyncbroker.log.checkpoint_sums import KAFKAS
from asyncbroker.log.files import RealFiles
from asyncbroker.log.inspection import (
    OFFSET_CHECKPOINTS,
    Finding,
    check_data_directory,
    check_partition,
    is_partition,
    needed_frames,
    partitions_of,
)
from asyncbroker.log.log_directory import LOCK
from asyncbroker.log.repair import carry_out, plan

DUMPED_SUFFIXES: Final = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
DUMPED_NAMES: Final = (
    "leader-epoch-checkpoint",
    "partition.metadata",
    "damaged-ranges",
    *OFFSET_CHECKPOINTS,
    KAFKAS,
    "meta.properties",
)

path_argument = click.argument("path", metavar="DIR", type=click.Path(exists=True))
json_lines_option = click.option(
    "--json", "as_json", is_flag=True, help="Print a JSON object a line."
)


@click.group()
def log() -> None:
    """Look into, check and repair the files of a stopped broker."""


@log.command()
@click.option("--records", "with_records", is_flag=True, help="Also the records of each batch.")
@click.option(
    "--offsets", "with_offsets", is_flag=True, help="Decode the records of __consumer_offsets."
)
@json_lines_option
@path_argument
def dump(path: str, as_json: bool, with_records: bool, with_offsets: bool) -> None:
    """Print what is in the files: batches, index entries, producers, checkpoints."""
    for file in _files_below(path):
        if not as_json:
            click.echo(f"{file}:")
        for row in dump_file(file, with_records=with_records, with_offsets=with_offsets):
            if as_json:
                click.echo(json.dumps({"file": file, **row}, ensure_ascii=False))
            else:
                click.echo("  " + "  ".join(f"{name}: {_text(row[name])}" for name in row))


@log.command()
@json_lines_option
@path_argument
def check(path: str, as_json: bool) -> None:
    """Read everything and list what is damaged; exit with 1 if anything is."""
    count = 0
    for finding in _findings(path):
        count += 1
        if as_json:
            click.echo(json.dumps(asdict(finding)))
        else:
            click.echo(_line_of(finding))
            click.echo(f"    a broker {finding.start_does}")
    if not as_json:
        click.echo("no damage" if not count else f"{count} found")
    sys.exit(1 if count else 0)


@log.command()
@click.option("-y", "--yes", is_flag=True, help="Do it; without, only say what would be done.")
@path_argument
def repair(path: str, yes: bool) -> None:
    """Take damage out of the files, and keep it beside them as *.quarantined."""
    if not os.path.isdir(path):
        raise click.UsageError("repair takes a directory: of a broker, or of a partition")
    files = RealFiles()
    data_directory = os.path.dirname(os.path.abspath(path)) if is_partition(path) else path
    try:
        lock = files.lock(os.path.join(data_directory, LOCK))
    except BlockingIOError:
        raise click.ClickException(f"{data_directory} is in use by a broker") from None
    try:
        if needed_frames(data_directory):
            raise click.ClickException(
                f"the journal of {data_directory} has records that the logs may lack: start the "
                "broker, which writes them to the logs, and stop it"
            )
        repairs = [step for directory in partitions_of(path) for step in plan(directory)]
        for step in repairs:
            click.echo(f"{step.path}: {step.what}")
        if not repairs:
            click.echo("nothing to repair")
        elif yes:
            carry_out(files, repairs)
            click.echo("done")
        else:
            click.echo("nothing was changed: --yes does it")
    finally:
        lock.release()


def _findings(path: str) -> Iterator[Finding]:
    directory = path if os.path.isdir(path) else os.path.dirname(path) or os.curdir
    if not is_partition(directory):
        yield from check_data_directory(directory)
    for partition in partitions_of(directory):
        for finding in check_partition(partition):
            if path == directory or os.path.samefile(path, finding.path):
                yield finding


def _files_below(path: str) -> Iterator[str]:
    if os.path.isfile(path):
        yield path
        return
    for name in sorted(os.listdir(path)):
        below = os.path.join(path, name)
        if os.path.isdir(below):
            if is_partition(below):
                yield from _files_below(below)
        elif name.endswith(DUMPED_SUFFIXES) or name in DUMPED_NAMES:
            yield below


def _line_of(finding: Finding) -> str:
    place = finding.path if finding.position < 0 else f"{finding.path}:{finding.position}"
    offsets = ""
    if finding.first_offset >= 0:
        last = "" if finding.next_offset < 0 else f" to {finding.next_offset - 1}"
        offsets = f": offsets {finding.first_offset}{last or ' and later'}"
    return f"{place}: {finding.what}{offsets}"


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
