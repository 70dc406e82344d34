"""What was read of stored leaves, or made of them, and is needed once more."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from surgery_cli.compute.numpy_dtypes import numpy_dtype
from surgery_cli.draft.expression import Stored
from surgery_cli.draft.kernel import Window
from surgery_cli.engine.budget import Budget
from surgery_cli.engine.grid import is_inside, relative, window_shape
from surgery_cli.engine.reading import Values


class Held:
    """Values of parts, as long as they are needed: of stored leaves a window each, of made ones whatever was asked."""

    def __init__(self, stored: Mapping[int, tuple[Window, Values]] = MappingProxyType({})) -> None:
        self.stored: dict[int, tuple[Window, Values]] = dict(stored)
        self.made: dict[tuple[Any, ...], Values] = {}
        self.whole: dict[tuple[Any, ...], Values] = {}
        """Of kernels that make a whole leaf at once, which may take long or call a function of the user's."""

    def find(self, part: Stored, window: Window) -> Values | None:
        """The window of a stored leaf, if all of it is held."""
        held, values = self.stored.get(id(part), (None, None))
        if held is None or values is None:
            return None
        if held == window:
            return values
        return values[relative(window, held)] if is_inside(window, held) else None


class Band:
    """What is read of stored leaves for several blocks, a window of each, as long as one of them is to be made.

    ``held_bytes`` are those of the windows, ``computing_bytes`` what a block then takes while it is computed.
    """

    def __init__(
        self,
        reads: Sequence[tuple[Stored, Window]],
        blocks: int,
        held_bytes: int,
        computing_bytes: int,
    ) -> None:
        self.reads = reads
        self.held_bytes = held_bytes
        self.computing_bytes = computing_bytes
        self.stored = {
            id(part): (window, np.empty(window_shape(window), numpy_dtype(part.spec.dtype)))
            for part, window in reads
        }
        self._left = blocks
        self._lock = threading.Lock()

    def leave(self, budget: Budget) -> None:
        """A block is made; what was read for the last one goes."""
        with self._lock:
            self._left -= 1
            is_last = not self._left
        if is_last:
            self.stored.clear()
            budget.give(self.held_bytes)
