"""Whether the compiled extension does the work, or numpy and pyarrow.

`ASYNCBROKER_PORTABLE=1` chooses the latter, as it chooses every other portable fallback.
"""

from __future__ import annotations

import os
from types import ModuleType
from typing import Final

from asyncbroker.protocol import native

EXTENSION: Final[ModuleType | None] = (
    native.RECORDS if os.environ.get("ASYNCBROKER_PORTABLE", "") in ("", "0") else None
)
