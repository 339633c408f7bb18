"""Types of Avro's that only `avro_resolution.py` puts into schemas, and both ways of decoding know.

They are logical types, so that fastavro can be told of them; a user's schema has none of these
names, since it is without logical types that are not known (`typed_avro.py`).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

# Of no bytes: the same for all values; with one, no value can be decoded.
CONSTANT: Final = "asyncbroker-constant"
REFUSED: Final = "asyncbroker-refused"
# Whole numbers that are floats, and symbols of which some become others.
AS_FLOAT: Final = "asyncbroker-float"
AS_DOUBLE: Final = "asyncbroker-double"
AS_SYMBOL: Final = "asyncbroker-symbol"


def tell_fastavro() -> None:
    from fastavro.read import LOGICAL_READERS

    LOGICAL_READERS.update(
        {
            f"null-{CONSTANT}": _constant,
            f"null-{REFUSED}": _refuse,
            f"enum-{AS_SYMBOL}": _symbol,
        }
    )
    for form in ("int", "long"):
        LOGICAL_READERS[f"{form}-{AS_FLOAT}"] = _as_float
        LOGICAL_READERS[f"{form}-{AS_DOUBLE}"] = lambda item, *_: float(item)


def _constant(item: Any, schema: Any, *_: Any) -> Any:
    return schema["value"]


def _symbol(item: Any, schema: Any, *_: Any) -> Any:
    return schema["becomes"].get(item, item)


def _as_float(item: int, *_: Any) -> float:
    """Rounded once: as a double first it would be rounded twice."""
    return float(np.int64(item).astype(np.float32))


def _refuse(*_: Any) -> None:
    raise ValueError("a type of a union that the newer schema has not")
