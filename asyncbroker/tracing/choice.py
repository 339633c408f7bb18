"""Which exchanges somebody wants to see, and how much of each.

As text, words that all must hold: `api=Produce,Fetch topic=t client=c group=g errors
slower-than=10ms`, and for how it is shown `json` and `full`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from asyncbroker.tracing.api_names import known_names
from asyncbroker.tracing.exchange import Exchange

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s)?")


class BadChoice(ValueError):
    """The text says nothing that can be chosen by; the message is for the user."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What to show. An empty set asks for nothing in particular."""

    apis: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()
    clients: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    has_errors: bool = False
    slower_than_ms: float = 0.0
    is_json: bool = False
    is_full: bool = False

    def wants(self, exchange: Exchange) -> bool:
        """Whether this one is to be shown."""
        return (
            (not self.apis or exchange.api in self.apis)
            and (not self.clients or exchange.client_id in self.clients)
            and (not self.groups or not self.groups.isdisjoint(exchange.groups))
            and (not self.topics or any(part.topic in self.topics for part in exchange.parts))
            and (not self.has_errors or bool(exchange.errors or exchange.problem))
            and exchange.milliseconds >= self.slower_than_ms
        )


def parse_choice(text: str) -> Choice:
    """Reads the text above. Raises BadChoice."""
    lists: dict[str, list[str]] = {"api": [], "topic": [], "client": [], "group": []}
    flags = dict.fromkeys(("errors", "json", "full"), False)
    slower_than_ms = 0.0
    for word in text.split():
        name, separator, value = word.partition("=")
        if name in flags and not separator:
            flags[name] = True
        elif name == "slower-than" and value:
            slower_than_ms = parse_duration_ms(value)
        elif name in lists and value:
            lists[name] += value.split(",")
        else:
            raise BadChoice(
                f"{word!r}: it can be api=NAME,..., topic=, client=, group=, errors, "
                "slower-than=10ms, json, full"
            )
    return Choice(
        apis=check_apis(lists["api"]),
        topics=frozenset(lists["topic"]),
        clients=frozenset(lists["client"]),
        groups=frozenset(lists["group"]),
        has_errors=flags["errors"],
        slower_than_ms=slower_than_ms,
        is_json=flags["json"],
        is_full=flags["full"],
    )


def check_apis(names: list[str]) -> frozenset[str]:
    """The names of APIs as Kafka spells them, in whatever case they are given."""
    spelled = {name.lower(): name for name in known_names()}
    for name in names:
        if name.lower() not in spelled:
            raise BadChoice(f"Kafka has no API {name!r}")
    return frozenset(spelled[name.lower()] for name in names)


def parse_duration_ms(text: str) -> float:
    """Reads "10ms", "1.5s" or a number of milliseconds."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise BadChoice(f"{text!r} is not a time like 10ms or 1.5s")
    return float(match[1]) * (1000 if match[2] == "s" else 1)
