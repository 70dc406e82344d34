"""Operands: the parts of other stored arrays that a step reads beside a block of its leaf."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from surgery_cli.draft.recipe import Operand, Step
from surgery_cli.engine.grid import Window, kept_bytes, relative
from surgery_cli.engine.reading import Readable, Values, read_values
from surgery_cli.tree.dtypes import is_complex, item_bytes

MOST_KEPT = 2
"""So many operands of a block are kept, while it is computed tile by tile. More of them (an average of many
checkpoints) are read one after the other for the whole block, whose sum then costs more memory than they would."""

SUM_BYTES = 8
"""A sum over many operands, per element, in float64."""


class BlockOperands(Mapping[str, Values]):
    """The operands of a step for one block; each is read when it is first asked for, many whenever they are."""

    def __init__(self, step: Step, sources: Mapping[str, Readable], window: Window) -> None:
        self._operands = {operand.name: operand for operand in step.operands}
        self._sources = sources
        self._window = window
        self._are_kept = are_kept(step)
        self._kept: dict[str, Values] = {}

    def __getitem__(self, name: str) -> Values:
        if name in self._kept:
            return self._kept[name]
        operand = self._operands[name]
        window = operand_window(operand.spec.shape, self._window)
        values = read_values(self._sources[operand.ref.source], operand.ref.path, window)
        if self._are_kept:
            self._kept[name] = values
        return values

    def __iter__(self) -> Iterator[str]:
        return iter(self._operands)

    def __len__(self) -> int:
        return len(self._operands)

    def of_tile(self, tile: Window) -> Mapping[str, Values]:
        """What belongs to a tile of the block."""
        if not self._operands or tile == self._window:
            return self
        place = relative(tile, self._window)
        return {name: part[operand_window(part.shape, place)] for name, part in self.items()}


def are_kept(step: Step) -> bool:
    """True if a block's operands are all in memory while it is computed."""
    return len(step.operands) <= MOST_KEPT


def operand_window(shape: tuple[int, ...], window: Window) -> Window:
    """The part of an operand that belongs to a window of the leaf, to which it broadcasts.

    >>> operand_window((1, 8), (slice(3, 4), slice(2, 6), slice(0, 4)))
    (slice(0, 1, None), slice(0, 4, None))
    """
    last = window[len(window) - len(shape) :]
    return tuple(slice(0, 1) if n == 1 else part for n, part in zip(shape, last, strict=True))


def read_bytes(step: Step, block: tuple[int, ...]) -> int:
    """Bytes of operands that are read for all blocks of a leaf; what broadcasts along an axis, for each block anew."""
    leaf = step.before.shape
    total = 0
    for operand in step.operands:
        shape = (1,) * (len(leaf) - len(operand.spec.shape)) + operand.spec.shape
        counts = (
            n if n == size else -(-size // max(part, 1))
            for n, size, part in zip(shape, leaf, block, strict=True)
        )
        total += math.prod(counts) * item_bytes(operand.spec.dtype)
    return total


def working_bytes(step: Step, block: tuple[int, ...], *, has_tiles: bool) -> int:
    """Bytes in memory for the operands of one block, as stored and as read.

    Chunks larger than a block are kept for the next ones; of the others one is decoded at a time.
    """
    if not step.operands:
        return 0
    parts = [_part_bytes(operand, block) for operand in step.operands]
    kept = [kept_bytes(operand.spec, _part(operand, block)) for operand in step.operands]
    stored = sum(kept) + max(*kept, *parts)
    if are_kept(step):
        return sum(parts) + stored
    sums = SUM_BYTES * (2 if is_complex(step.before.dtype) else 1)
    # a kit without tiles has the next term and the next sum beside the sum
    return max(parts) + stored + math.prod(block) * sums * (1 if has_tiles else 3)


def _part(operand: Operand, block: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the part of an operand that belongs to a block."""
    shape = operand.spec.shape
    return tuple(map(min, shape, block[len(block) - len(shape) :]))


def _part_bytes(operand: Operand, block: tuple[int, ...]) -> int:
    return math.prod(_part(operand, block)) * item_bytes(operand.spec.dtype)
