"""Says what in a history should not have been possible. See `history.py` for what a history is."""

from __future__ import annotations

from asyncbroker.tests.history.group_checks import check_groups
from asyncbroker.tests.history.history import History
from asyncbroker.tests.history.log_checks import Anomaly, check_logs


def check(history: History) -> list[Anomaly]:
    """All anomalies; none is what everybody hopes for."""
    stuck = [Anomaly("stuck", "", who) for who in history.stuck]
    return [*check_logs(history), *check_groups(history), *stuck]
