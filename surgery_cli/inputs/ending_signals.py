"""The signals by which people and schedulers ask a run to end; it loads nothing, as the edge needs it at once."""

from __future__ import annotations

import signal
from typing import Final

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

ENDED_BY_ANOTHER: Final = signal.SIGUSR1
"""What the thread that watches sends to the main one when another process has ended their run."""

INTERRUPTING: Final = (*ENDING, ENDED_BY_ANOTHER)
