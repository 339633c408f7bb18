"""What is kept of a password by SCRAM, and what SCRAM's mechanisms are called.

Apart from `scram.py`, which every start of a broker would pay for and few need: to read credentials
takes no cryptography.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16384
ITERATIONS_DEFAULT: Final = 8192

# Mechanisms by their number in Kafka's API (KIP-554), with their hash, the weakest first.
SCRAM_NUMBERS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
SCRAM_MECHANISMS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What a broker keeps for one user and mechanism. Whoever has it can pretend to be the broker,
    and guess at the password, but cannot log in with it."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int
