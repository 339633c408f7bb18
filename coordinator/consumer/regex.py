"""Regular expressions in subscriptions, in the syntax of RE2 as Kafka has it (KIP-848).

RE2 takes time in proportion to the text, whatever the expression; Python's own `re` may take for
ever, and a client could stop the broker with it. So this needs the package google-re2
(`pip install asyncbroker[regex]`). Without it, every expression is INVALID_REGULAR_EXPRESSION, and
the message says why.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

from asyncbroker.protocol.errors import ErrorCode, KafkaError

EXPRESSIONS_KEPT: Final = 256
# What the automaton of one expression may take; Kafka's RE2/J knows no such limit.
MEMORY_BYTES_MAX: Final = 8 * 1024 * 1024


def check_regex(regex: str) -> None:
    """Raises INVALID_REGULAR_EXPRESSION with the reason."""
    _compile(regex)


def matching(regex: str, names: Iterable[str]) -> frozenset[str]:
    """The names that match as a whole."""
    pattern = _compile(regex)
    return frozenset(name for name in names if pattern.fullmatch(name) is not None)


@lru_cache(EXPRESSIONS_KEPT)
def _compile(regex: str) -> Any:
    try:
        import re2
    except ImportError:
        raise _invalid(
            regex, "this broker has no RE2; pip install asyncbroker[regex] brings it"
        ) from None
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MEMORY_BYTES_MAX
    try:
        return re2.compile(regex, options)
    except re2.error as error:
        reason = error.args[0] if error.args else "?"
        if isinstance(reason, bytes):
            reason = reason.decode("utf-8", "replace")
        raise _invalid(regex, str(reason)) from None


def _invalid(regex: str, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {reason}.",
    )
