"""What moves elements does so as NumPy does, to leaves, to means of leaves, and one after the other."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import numpy as np
import pytest

from surgery_cli.draft.arrangement import Arrangement
from surgery_cli.draft.kernels.copies import Copies
from surgery_cli.draft.kernels.cut import Cut, Grow
from surgery_cli.draft.kernels.take import Take
from surgery_cli.operations.transpose import Permutation
from tests.draft.maps_by_numpy import (
    MAPS,
    Leaf,
    by_numpy,
    by_pieces,
    drawn_leaf,
    drawn_map,
)

TRIALS = 60
EVERY = pytest.mark.parametrize("kind", MAPS, ids=lambda kind: kind.__name__)


def fill_of(map_: Arrangement, array: Any) -> Any:
    """The mean along the axis that grows, which is what fills slots."""
    return array.mean(map_.grows, keepdims=True) if map_.grows is not None else None


@EVERY
def test_blocks_are_what_numpy_makes_of_the_whole(kind: type[Arrangement]) -> None:
    for seed in range(TRIALS):
        chance = Random(seed)
        leaf = drawn_leaf(chance)
        map_ = drawn_map(kind, leaf.array.shape, chance)
        fill = fill_of(map_, leaf.array)
        expected = by_numpy(map_, leaf.array, fill)
        output = map_.output(leaf.spec)
        assert output.shape == expected.shape
        leaves = [leaf] if fill is None else [leaf, Leaf(fill, fill.shape)]
        block = [chance.randint(1, max(size, 1)) for size in output.shape]
        np.testing.assert_array_equal(by_pieces(map_, leaves, block), expected, str((seed, map_)))
        same = output.shape == leaf.spec.shape and np.array_equal(expected, leaf.array)
        assert not map_.is_identity([leaf.spec], output) or same


@EVERY
def test_means_over_an_axis_are_mapped_as_the_leaf_is(kind: type[Arrangement]) -> None:
    known: Counter[int] = Counter()
    for seed in range(TRIALS):
        chance = Random(seed)
        leaf = drawn_leaf(chance, axes=(1, 3))
        map_ = drawn_map(kind, leaf.array.shape, chance)
        whole = by_numpy(map_, leaf.array, fill_of(map_, leaf.array))
        for axis in range(leaf.array.ndim):
            found = map_.without(axis, leaf.spec)
            assert (found is not None) == is_known(map_, axis, leaf.array.shape), (seed, map_, axis)
            if found is None:
                continue
            rest, place = found
            mean = leaf.array.mean(axis)
            known[axis] += 1
            np.testing.assert_allclose(
                by_numpy(rest, mean, fill_of(rest, mean)), whole.mean(place), atol=1e-6
            )
    assert known, "none was asked"


def is_known(map_: Arrangement, axis: int, shape: tuple[int, ...]) -> bool:
    """Whether a map of means over an axis says all: as little as that of a leaf of one axis would have none."""
    if isinstance(map_, Take) and axis == map_.axis:
        counts = {map_.index.count(n) for n in range(shape[axis])}
        return len(shape) > 1 and len(counts) == 1 and counts != {0}
    if isinstance(map_, Cut):
        return [*map_.axes[axis].places] == [*range(shape[axis])]
    return isinstance(map_, Copies | Grow | Permutation | Take) or axis != map_.axis  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", [Take, Cut, Grow, Permutation], ids=lambda kind: kind.__name__)
def test_a_vector_along_an_axis_is_mapped_as_the_leaf_is(kind: type[Arrangement]) -> None:
    for seed in range(TRIALS):
        chance = Random(seed)
        leaf = drawn_leaf(chance)
        shape = leaf.array.shape
        map_ = drawn_map(kind, shape, chance)
        for axis in range(len(shape)):
            found = map_.along(axis, leaf.spec)
            assert found is not None
            rest, place = found
            vector = np.arange(shape[axis], dtype=np.float32)
            spread = np.broadcast_to(
                vector.reshape([-1 if n == axis else 1 for n in range(len(shape))]), shape
            )
            whole = by_numpy(map_, spread, fill_of(map_, spread))
            mapped = by_numpy(rest, vector, fill_of(rest, vector))
            form = [-1 if n == place else 1 for n in range(whole.ndim)]
            np.testing.assert_array_equal(np.broadcast_to(mapped.reshape(form), whole.shape), whole)


PAIRS = [(Take, Take), (Take, Cut), (Cut, Cut), (Cut, Grow), (Permutation, Permutation)]


@pytest.mark.parametrize(
    "pair", [*PAIRS, (Cut, Take)], ids=lambda p: "-".join(k.__name__ for k in p)
)
def test_two_maps_that_are_one_do_what_both_do(pair: tuple[type[Arrangement], ...]) -> None:
    outer_kind, inner_kind = pair
    composed = 0
    for seed in range(4 * TRIALS):
        chance = Random(seed)
        leaf = drawn_leaf(chance, axes=(1, 2))
        inner = drawn_map(inner_kind, leaf.array.shape, chance)
        between = by_numpy(inner, leaf.array, fill_of(inner, leaf.array))
        if 0 in between.shape:
            continue
        outer = drawn_map(outer_kind, between.shape, chance)
        both = outer.after(inner)
        if both is not None:
            composed += 1
            np.testing.assert_array_equal(
                by_numpy(both, leaf.array, fill_of(inner, leaf.array)), by_numpy(outer, between)
            )
        if isinstance(outer, Cut) and isinstance(inner, Take):
            assert (both is not None) == follows_evenly(outer, inner)
    assert (composed > 0) == (pair != (Take, Cut))


def follows_evenly(cut: Cut, take: Take) -> bool:
    """Whether what is left of the places follows each other in steps of one size, which is not 0."""
    left = [take.index[n] for n in cut.axes[take.axis].places]
    steps = {int(step) for step in np.diff(left)}
    return bool(left) and len(steps) < 2 and 0 not in steps
