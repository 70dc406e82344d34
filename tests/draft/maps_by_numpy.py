"""Maps that move elements, drawn at random, and what NumPy makes of the same."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from random import Random
from typing import Any, NamedTuple

import numpy as np

from surgery_cli.draft.arrangement import Arrangement
from surgery_cli.draft.kernels.copies import Copies
from surgery_cli.draft.kernels.cut import Cut, Grow, Steps
from surgery_cli.draft.kernels.join import Part, Unstack
from surgery_cli.draft.kernels.take import Take
from surgery_cli.operations.transpose import Permutation
from tests.operations.value_edits import spec_of

MAPS = (Take, Cut, Grow, Unstack, Part, Copies, Permutation)
"""Those of one leaf."""


class Leaf(NamedTuple):
    """An array, in chunks."""

    array: Any
    chunks: tuple[int, ...]

    @property
    def spec(self) -> Any:
        return spec_of(self.array, chunk_shape=self.chunks, write_shape=self.chunks)


def drawn_leaf(chance: Random, *, axes: tuple[int, int] = (1, 4), least: int = 1) -> Leaf:
    shape = tuple(chance.randint(least, 5) for _ in range(chance.randint(*axes)))
    array = np.random.default_rng(chance.randrange(1 << 32)).normal(size=shape).astype(np.float32)
    return Leaf(array, tuple(chance.randint(1, max(size, 1)) for size in shape))


def drawn_map(kind: type[Arrangement], shape: Sequence[int], chance: Random) -> Arrangement:
    axis = chance.randrange(len(shape))
    size = shape[axis]
    if kind is Take:
        return Take(axis, _index(size, chance))
    if kind is Cut:
        return Cut(tuple(_steps(one, chance) for one in shape))
    if kind is Grow:
        return Grow(axis, chance.randint(0, 2), size, chance.randint(0, 2))
    if kind is Unstack:
        return Unstack(axis, chance.randrange(size))
    if kind is Part:
        groups = chance.choice([n for n in range(1, size + 1) if size % n == 0])
        width = size // groups
        start = chance.randrange(width)
        return Part(axis, start, chance.randint(1, width - start), width, groups)
    if kind is Copies:
        return Copies(chance.randint(0, len(shape)), chance.randint(2, 3))
    assert kind is Permutation
    return Permutation(tuple(chance.sample(range(len(shape)), len(shape))))


def _index(size: int, chance: Random) -> tuple[int, ...]:
    """Any places; all of them, each as often, every other time."""
    if chance.random() < 0.5:
        return tuple(chance.randrange(size) for _ in range(chance.randint(0, 6)))
    every = [*range(size)] * chance.randint(1, 2)
    chance.shuffle(every)
    return tuple(every)


def _steps(size: int, chance: Random) -> Steps:
    if chance.random() < 0.3:
        return Steps(0, size)
    step = chance.choice((1, 2, -1))
    places = range(size)[::step] if step > 0 else range(size - 1, -1, -1)
    first = chance.randrange(len(places))
    count = chance.randint(0, len(places) - first)
    return Steps(places[first], count, step if count > 1 else 1)


def by_numpy(map_: Any, x: Any, fill: Any = None) -> Any:
    """What a map makes of an array: ``fill`` comes to new places."""
    match map_:
        case Take(axis=axis, index=index):
            return np.take(x, np.array(index, int), axis)
        case Cut(axes=axes):
            return x[np.ix_(*([*steps.places] for steps in axes))]
        case Grow(axis=axis, before=before, after_=after):
            around = [np.repeat(fill, count, axis) for count in (before, after)]
            return np.concatenate([around[0], x, around[1]], axis)
        case Unstack(axis=axis, index=index):
            return np.take(x, index, axis)
        case Part(axis=axis, start=start, share=share, width=width, groups=groups):
            begins = [group * width + start for group in range(groups)]
            places = [begin + n for begin in begins for n in range(share)]
            return np.take(x, places, axis)
        case Copies(axis=axis, count=count):
            return np.stack([x] * count, axis)
        case Permutation(axes=axes):
            return np.transpose(x, axes)
    raise TypeError(map_)


def by_pieces(map_: Arrangement, leaves: Sequence[Leaf], block: Sequence[int]) -> Any:
    """The result, computed block by block, from the pieces that the map asks for, and from nothing else."""
    specs = [leaf.spec for leaf in leaves]
    output = map_.output(specs[0])
    result = np.full(output.shape, np.nan, np.float32)
    for window in _windows(output.shape, block):
        pieces = [*map_.pieces(window, specs, output)]
        assert pieces, "a block is made of something, be it empty"
        for piece in pieces:
            array = leaves[piece.input].array
            assert len(piece.read) == array.ndim
            for part, size in zip(piece.read, array.shape, strict=True):
                assert 0 <= part.start <= part.stop <= size
            read = array[piece.read]
            if 0 in result[window].shape:
                assert not read.size, "nothing is read for a block of nothing"
            result[piece.write] = map_.arrange(read, piece)
    return result


def _windows(shape: Sequence[int], block: Sequence[int]) -> Any:
    return product(
        *(
            [slice(start, min(start + step, size)) for start in range(0, size or 1, step)]
            for size, step in zip(shape, block, strict=True)
        )
    )
