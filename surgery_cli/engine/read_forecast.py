"""What a run will read, told from metadata: bytes of values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

from surgery_cli.draft.expression import Made, Recipe, Stored
from surgery_cli.draft.kernel import Search, Window
from surgery_cli.draft.reads import reads
from surgery_cli.engine.composition import UNBOUNDED, Composition
from surgery_cli.engine.grid import block_shape, window_shape, windows
from surgery_cli.engine.measurements import inputs_read, measured_blocks, measured_passes
from surgery_cli.tree.dtypes import item_bytes


class BytesRead(NamedTuple):
    """Bytes of values that are read: as values usually are, and whatever they are."""

    usually: int
    at_most: int

    @classmethod
    def sum(cls, each: Iterable[BytesRead]) -> BytesRead:
        usually = at_most = 0
        for one in each:
            usually += one.usually
            at_most += one.at_most
        return cls(usually, at_most)


class WindowRead(NamedTuple):
    """A window of a stored leaf that is read: how often it usually is, and how much more often it may be."""

    stored: Stored
    window: Window
    times: int
    more: int = 0
    is_measured: bool = False
    """It is read to be measured, before there is a block."""

    @property
    def bytes(self) -> BytesRead:
        """Of its values, as often as they are read."""
        each = window_bytes(self.stored, self.window)
        return BytesRead(each * self.times, each * (self.times + self.more))


def bytes_read(
    recipes: Iterable[Recipe],
    partly: Iterable[tuple[Recipe, Sequence[Window]]] = (),
    memory_bytes: int = UNBOUNDED,
) -> BytesRead:
    """What is read to write these recipes, in this order; what is measured is measured once.

    ``partly``: others, with the only blocks of them that are written. ``memory_bytes``: see ``Composition``.
    """
    measured: set[int] = set()
    composed = partial(Composition, memory_bytes=memory_bytes)
    whole = ((made, _blocks(made)) for made in map(composed, recipes))
    parts = ((composed(recipe), blocks) for recipe, blocks in partly)
    return BytesRead.sum(_bytes_read(*one, measured) for one in chain(whole, parts))


def windows_read(
    recipe: Recipe, blocks: Sequence[Window], memory_bytes: int, measured: set[int]
) -> Iterator[WindowRead]:
    """What is read of stored leaves to make these blocks of a recipe; ``measured``: see ``bytes_read``."""
    return _windows_read(Composition(recipe, memory_bytes), blocks, measured)


def _bytes_read(made: Composition, blocks: Sequence[Window], measured: set[int]) -> BytesRead:
    """What these blocks of a recipe read."""
    return BytesRead.sum(one.bytes for one in _windows_read(made, blocks, measured))


def _windows_read(
    made: Composition, blocks: Sequence[Window], measured: set[int]
) -> Iterator[WindowRead]:
    """What these blocks of a recipe read, ``measured`` being there, to which is added what is measured for them."""
    held: set[int] = set()
    needed = (one.order for one in made.measured if id(one.part) not in measured)
    new = {id(part): part for order in needed for part in order if id(part) not in measured}
    again = made.kept_again if new else frozenset()
    for part in new.values():
        measured.add(id(part))
        over, (usual, most) = measured_blocks(part), _passes(part)
        is_all = len(over) == len(blocks) == 1
        for block in over:
            anew = len(measured_passes(part, block, made.memory_bytes))
            for stored, read in inputs_read(part, block):
                is_held = is_all and id(stored) in again and anew == 1
                if id(stored) not in held:
                    times = (1, 0) if is_held else (anew * usual, anew * (most - usual))
                    yield WindowRead(stored, read, *times, is_measured=True)
                if is_held:
                    held.add(id(stored))
    for window in blocks:
        passes = len(made.passes(window))
        for stored, read in reads(made.recipe, window):
            if passes > 1 or id(stored) not in held:
                yield WindowRead(stored, read, passes)


def _blocks(made: Composition) -> list[Window]:
    spec = made.recipe.spec
    block = spec.shape if made.is_whole else block_shape(spec, spec.write_shape)
    return list(windows(spec.shape, block))


def _passes(part: Made) -> tuple[int, int]:
    """How many passes a measurement usually takes, and at most."""
    kernel, specs = part.kernel, [one.spec for one in part.inputs]
    if not isinstance(kernel, Search):
        return 1, 1
    return kernel.passes(specs), kernel.most_passes(specs)


def window_bytes(part: Stored, window: Window) -> int:
    """Bytes of the values in a window of a stored leaf; 0 for what is no array."""
    return (
        math.prod(window_shape(window)) * item_bytes(part.spec.dtype) if part.spec.has_array else 0
    )
