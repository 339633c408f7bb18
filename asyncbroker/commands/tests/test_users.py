"""`asyncbroker users --data`: users of a broker that does not run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from asyncbroker.__main__ import cli


def users(*args: str, stdin: str = "") -> Result:
    return CliRunner().invoke(cli, ["users", *args], input=stdin)


def test_users_are_added_listed_and_deleted_before_the_first_start(tmp_path: Path) -> None:
    data = str(tmp_path / "new")
    added = users(
        *("add", "alice", "--data", data, "--mechanism", "SCRAM-SHA-256"),
        stdin="secret\n",
    )
    assert added.exit_code == 0, added.output
    listed = json.loads(users("list", "--data", data, "--json").stdout)
    assert listed == [{"user": "alice", "mechanism": "SCRAM-SHA-256", "iterations": 8192}]
    assert users("delete", "alice", "--data", data, "--yes").exit_code == 0
    assert json.loads(users("list", "--data", data, "--json").stdout) == []


@pytest.mark.parametrize("command", [("list",), ("delete", "alice", "--yes")])
def test_a_directory_that_is_not_there_is_told_and_not_made(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    data = tmp_path / "tpyo"
    result = users(*command, "--data", str(data))
    assert result.exit_code == 1
    assert f"{data} is not the directory of a broker" in result.output
    assert not data.exists()
