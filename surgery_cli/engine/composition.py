"""What an expression is made of, looked at once for all who ask: a plan may make thousands of leaves."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from surgery_cli.draft.arrangement import Arrangement
from surgery_cli.draft.expression import Made, Recipe, Stored, is_computed, once, parts
from surgery_cli.draft.kernel import Window
from surgery_cli.draft.reads import reads
from surgery_cli.engine.grid import BLOCK_BYTES, block_bytes, tiles
from surgery_cli.tree.dtypes import Rounding, item_bytes
from surgery_cli.tree.specs import LeafKind

MOST_KEPT: Final = 3
"""So many stored leaves stand in memory together while a block is computed tile by tile. More of them (an average of
many checkpoints) are read one after the other where that costs less, with sums that stand for the whole block."""


_MOST_AGAIN_BYTES: Final = 128 << 20
"""What may stay in memory of the inputs of a streamed block to be needed again; else they are read again."""

_LEAST_ROOM_BYTES: Final = 5 * BLOCK_BYTES

_DECODING: Final = 2
"""So many times its size a stored unit takes while it is read: as it is stored, and decoded."""

UNBOUNDED: Final = sys.maxsize
"""Bytes of memory, where nothing says how much there may be."""


class Measured(NamedTuple):
    """A measurement, what it is taken of, and what follows from that.

    ``order`` are the measurements in it and then itself, inner ones first; ``parts`` and ``again`` are the identities
    of all that it is made of, and of what is needed more than once for that.
    """

    part: Made
    order: list[Made]
    is_whole: bool
    parts: frozenset[int]
    again: frozenset[int]


class Rounded(NamedTuple):
    """A stored leaf in another dtype."""

    stored: Stored
    rounding: Rounding


def room_for_parts(memory_bytes: int, largest: int) -> int:
    """Bytes for what is held at once of parts of a large block, beside a stored unit of ``largest`` that is decoded.

    It is never so little that all of the block would have to be read very often.
    """
    return max(memory_bytes - _DECODING * largest, _LEAST_ROOM_BYTES)


class Composition:
    """The parts of an expression, and what follows from them.

    ``measured`` is what must be measured to compute it; ``kernels`` compute every block: neither the measurements nor
    what they are taken of is among them. By ``memory_bytes``, what may be in memory at once, goes in how many passes a
    large block is made.
    """

    def __init__(self, recipe: Recipe, memory_bytes: int = UNBOUNDED) -> None:
        self.recipe = recipe
        self.memory_bytes = memory_bytes
        computed = parts(recipe, beyond=is_computed)
        self._made = [part for part in computed if isinstance(part, Made)]
        used = [part.inputs for part in self._made if {*map(type, part.inputs)} != {Stored}]
        every = itertools.chain(*used) if self._made else (recipe,)
        inner = {id(one): one for one in every if isinstance(one, Made)}
        measured = (one for one in inner.values() if not is_computed(one))
        self.measured = [once(one, "measured", partial(_look_inside, one)) for one in measured]
        self.kernels = [part.kernel for part in self._made]
        self.made_whole = [part for part in self._made if part.kernel.is_whole]
        self._stored = [part for part in computed if isinstance(part, Stored)]

    @property
    def is_whole(self) -> bool:
        """True if a part needs the whole leaf in memory, or the values are no array."""
        if self.recipe.spec.kind is LeafKind.STRING or any(one.is_whole for one in self.kernels):
            return True
        return any(measured.is_whole for measured in self.measured)

    @property
    def rounded(self) -> Rounded | None:
        """The stored leaf of which this is nothing but each element rounded; None for all else."""
        recipe = self.recipe
        if not isinstance(recipe, Made) or len(recipe.inputs) != 1:
            return None
        (stored,), spec = recipe.inputs, recipe.spec
        if not isinstance(stored, Stored) or not recipe.kernel.is_rounding([stored.spec], spec):
            return None
        return Rounded(stored, Rounding(stored.spec.dtype, spec.dtype))

    @property
    def is_divisible(self) -> bool:
        """True if a block may be computed in tiles: all stored leaves that it is made of are kept meanwhile."""
        if not isinstance(self.recipe, Made) or isinstance(self.recipe.kernel, Arrangement):
            return False
        is_whole = any(kernel.is_whole for kernel in self.kernels)
        return not is_whole and (len(self._stored) <= MOST_KEPT or self._is_cheap_to_keep)

    @property
    def is_streamed(self) -> bool:
        """True if the inputs go one after the other into sums, all tiles of one before the next is read."""
        if not isinstance(self.recipe, Made) or self.recipe.kernel.keeps_inputs:
            return False
        is_elementwise = not (self.moves_elements or any(one.is_whole for one in self.kernels))
        return is_elementwise and not self.is_divisible

    @property
    def sum_bytes(self) -> int:
        """Bytes that the sums take for each element, where inputs are streamed."""
        assert isinstance(self.recipe, Made)
        inputs = [one.spec for one in self.recipe.inputs]
        return self.recipe.kernel.state_bytes(inputs, self.recipe.spec)

    def passes(self, window: Window) -> list[Window]:
        """The parts of a block that are made one after the other, inputs being read anew for each.

        There are several only where a stored unit makes a block large, its inputs are streamed, and memory has no room
        for the sums of all of it, which may be many times as large as what it is made of.
        """
        if not self.is_streamed or block_bytes(self.recipe.spec, window) <= 2 * BLOCK_BYTES:
            return [window]
        size = block_bytes(self.recipe.spec, window)
        every, again = reads(self.recipe, window), self.kept_again
        largest = max((block_bytes(one.spec, read) for one, read in every), default=0)
        each = self.sum_bytes + max((item_bytes(one.spec.dtype) for one, _ in every), default=0)
        each += sum(item_bytes(one.spec.dtype) for one, _ in every if id(one) in again)
        return list(tiles(window, room_for_parts(self.memory_bytes - size, largest) // each))

    @property
    def kept_again(self) -> frozenset[int]:
        """The identities of what stays in memory until it is needed again.

        Of many large leaves that are streamed it is only those of which several inputs are made: a base, say.
        """
        again = self.needed_again
        if not self.is_streamed:
            return again
        large = sum(one.spec.bytes for one in self._stored if id(one) in again)
        if large <= _MOST_AGAIN_BYTES:
            return again
        assert isinstance(self.recipe, Made)
        each = (parts(one, beyond=is_computed) for one in self.recipe.inputs)
        uses = Counter(id(one) for of in each for one in of if isinstance(one, Stored))
        return frozenset(one for one, count in uses.items() if count > 1)

    @property
    def _is_cheap_to_keep(self) -> bool:
        """True if all that is stored takes less than sums and what goes into them, one after the other."""
        if not isinstance(self.recipe, Made) or self.recipe.kernel.keeps_inputs:
            return False
        each = [item_bytes(one.spec.dtype) for one in self._stored]
        return sum(each) < self.sum_bytes + 2 * max(each)

    @property
    def moves_elements(self) -> bool:
        """True if elements stand elsewhere than in what they are made of."""
        return not all(kernel.keeps_places for kernel in self.kernels)

    @property
    def only_moves(self) -> bool:
        """True if nothing is computed: every value is one that is stored, here or elsewhere."""
        return not self.measured and all(isinstance(one, Arrangement) for one in self.kernels)

    @property
    def needed_again(self) -> frozenset[int]:
        """The identities of the parts of which more than one other is made, and of what these are made of."""
        again = _needed_again(self._made, (measured.parts for measured in self.measured))
        return again.union(*(measured.again for measured in self.measured))


def _look_inside(measured: Made) -> Measured:
    every = parts(measured)
    made = [part for part in every if isinstance(part, Made)]
    return Measured(
        measured,
        [part for part in made if not is_computed(part)],
        any(part.kernel.is_whole for part in made),
        frozenset(map(id, every)),
        _needed_again(made),
    )


def _needed_again(made: Sequence[Made], elsewhere: Iterable[frozenset[int]] = ()) -> frozenset[int]:
    """The identities of what more than one of these parts is made of, and of what that is made of.

    ``elsewhere``: parts that are needed for something else once more.
    """
    uses = Counter(id(one) for part in made for one in part.inputs)
    for others in elsewhere:
        few, many = sorted((uses.keys(), others), key=len)  # there are thousands of either, maybe
        uses.update([one for one in few if one in many])
    again = {part for part, count in uses.items() if count > 1}
    for part in reversed(made) if again else ():
        if id(part) in again:
            again.update(id(one) for one in part.inputs)
    return frozenset(again)
