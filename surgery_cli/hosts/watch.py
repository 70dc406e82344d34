"""What a process among several does again and again beside its work: say that it lives, look whether the others do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from surgery_cli.hosts.lives import BEAT_SECONDS, PATIENCE_SECONDS

UNANSWERED_SECONDS: Final = 5.0
"""A question to the board that has no answer for so long gets none: the machine that keeps it is lost, or cut off."""


class Watch:
    """Two threads: one looks, the other sees to it that its looks are answered."""

    def __init__(self, look: Callable[[bool], None], lost: Callable[[], None]) -> None:
        """``look`` is told whether something has kept this process; ``lost`` is called once nobody answers it.

        What ``look`` raises (RuntimeError) is that nobody keeps the board.
        """
        self._look = look
        self._lost = lost
        self._answered = 0
        self._is_over = threading.Event()
        self.wait = self._is_over.wait

    def start(self) -> None:
        """Begin."""
        for target in (self._look_on, self._look_after):
            threading.Thread(target=target, name="surgery-watch", daemon=True).start()

    def stop(self) -> None:
        """From the next look on."""
        self._is_over.set()

    def _look_on(self) -> None:
        silent, before = 0, time.monotonic()
        while not self._is_over.wait(BEAT_SECONDS):
            now = time.monotonic()
            was_kept, before = now - before > 4 * BEAT_SECONDS, now
            try:
                self._look(was_kept)
                silent = 0
            except RuntimeError:
                silent += 1
            self._answered += 1
            if silent * BEAT_SECONDS >= PATIENCE_SECONDS:
                self._lost()
                return

    def _look_after(self) -> None:
        """Count in steps of our own: while this process stands still, nobody is late."""
        answered, steps = 0, 0
        while not self._is_over.wait(BEAT_SECONDS):
            steps = steps + 1 if self._answered == answered else 0
            answered = self._answered
            if steps * BEAT_SECONDS >= UNANSWERED_SECONDS:
                self._lost()
                return
