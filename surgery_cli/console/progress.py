"""Progress on standard error: a bar on a terminal, a line every so often in a log."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Self, TextIO

from surgery_cli.console.printable import escaped
from surgery_cli.words.quantities import byte_text, duration_text

if TYPE_CHECKING:
    from surgery_cli.engine.progress import Progress

_BAR_SECONDS: Final = 0.1
_LOG_SECONDS: Final = 10.0
_BEAT_SECONDS: Final = 1.0
_BAR_WIDTH: Final = 24


class ProgressLine:
    """A listener that draws how far a command has come; use it as a context, so that the bar is removed.

    On a terminal one line is drawn over and over, the first time after half a second. Elsewhere a plain line comes
    every ten seconds. Of a command that tells nothing a terminal shows every second that it lives. A stream that was
    closed is drawn on no more: work goes on.
    """

    def __init__(
        self, stream: TextIO, *, clock: Callable[[], float] = time.monotonic, width: int = 0
    ) -> None:
        self.stream = stream
        self.clock = clock
        self.width = width
        self.is_terminal = stream.isatty()
        self.started = self.stage_started = clock()
        self.stage = ""
        self.stage_bytes = 0
        self.next_at = self.started + (0.5 if self.is_terminal else _LOG_SECONDS)
        self.is_drawn = False
        self._told_at = self.started
        self._has_ended = threading.Event()
        self._drawing = threading.Lock()

    def __enter__(self) -> Self:
        if self.is_terminal:
            threading.Thread(target=self._beat, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._has_ended.set()
        with self._drawing:
            if self.is_drawn:
                self._write("\r\x1b[K")

    def _beat(self) -> None:
        """Show that something is going on while nothing is told: libraries are imported, a model is compiled."""
        while not self._has_ended.wait(_BEAT_SECONDS):
            with self._drawing:
                if not self._has_ended.is_set():
                    self.show_life()

    def show_life(self) -> None:
        """Draw how long the command has been at work, if it has told nothing for a while."""
        now = self.clock()
        if now - self._told_at < _BEAT_SECONDS:
            return
        # at the begin of the line: whoever else prints, writes over it
        self._write(f"\r\x1b[Kworking, {duration_text(now - self.started)}\r")
        self.is_drawn = True

    def __call__(self, event: Progress) -> None:
        with self._drawing:
            self._take(event)

    def _take(self, event: Progress) -> None:
        now = self._told_at = self.clock()
        if event.stage != self.stage:
            self.stage, self.stage_started, self.stage_bytes = event.stage, now, event.done_bytes
        if now < self.next_at:
            return
        self.next_at = now + (_BAR_SECONDS if self.is_terminal else _LOG_SECONDS)
        if self.is_terminal:
            self._write(f"\r\x1b[K{self._bar(event, now)}")
            self.is_drawn = True
        else:
            self._write(f"{duration_text(now - self.started)}: {self._words(event, now)}\n")

    def _bar(self, event: Progress, now: float) -> str:
        width = self.width or shutil.get_terminal_size().columns
        share = min(event.done_bytes / event.total_bytes, 1.0) if event.total_bytes else 0.0
        filled = round(share * _BAR_WIDTH)
        bar = "█" * filled + "░" * (_BAR_WIDTH - filled)
        text = f"{bar} {self._words(event, now)}"
        if event.path:
            text = f"{text}  {escaped(event.path)}"
        return text if len(text) < width else f"{text[: max(width - 2, 0)]}…"

    def _words(self, event: Progress, now: float) -> str:
        words = escaped(event.stage)
        if event.total_bytes:
            share = min(event.done_bytes / event.total_bytes, 1.0)
            words += f" {share:4.0%} of {byte_text(event.total_bytes)}"
        elapsed = now - self.stage_started
        done = event.done_bytes - self.stage_bytes
        if elapsed > 0 and done > 0:
            rate = done / elapsed
            words += f", {byte_text(round(rate))}/s"
            left = event.total_bytes - event.done_bytes
            if left > 0:
                words += f", {duration_text(left / rate)} left"
        return words

    def _write(self, text: str) -> None:
        try:
            self.stream.write(text)
            self.stream.flush()
        except (OSError, ValueError):
            self.next_at = float("inf")
            self.is_drawn = False
