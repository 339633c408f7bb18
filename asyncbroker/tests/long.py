"""Whether tests are to take their time."""

from __future__ import annotations

import os
from typing import Final

IS_LONG: Final = os.environ.get("ASYNCBROKER_LONG", "0") not in ("", "0")
