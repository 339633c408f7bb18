"""The switch that writes the transcripts anew."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-transcripts",
        action="store_true",
        help="write the coordinator's transcripts anew; read the diff before you commit it",
    )
