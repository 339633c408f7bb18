"""For all tests: processes that they start can be interrupted.

A shell has its background jobs ignore SIGINT, children inherit that, and Python leaves it as it
finds it. The tests would then wait in vain for what they have interrupted.
"""

from __future__ import annotations

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
