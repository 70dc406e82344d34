"""The signals by which people and schedulers ask a run to end; it loads nothing, as the edge needs it at once."""

from __future__ import annotations

import signal
from typing import Final

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
