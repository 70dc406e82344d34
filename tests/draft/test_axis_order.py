"""Whether a map changes the order within an axis, against NumPy's own indices moved by the same map."""

import numpy as np
import pytest

from surgery_cli.draft.arrangement import Arrangement
from surgery_cli.draft.axis_order import AxisOrder
from surgery_cli.draft.kernels.copies import Copies
from surgery_cli.draft.kernels.cut import Cut, Grow, Steps
from surgery_cli.draft.kernels.join import Concat, Part, Stack, Unstack
from surgery_cli.draft.kernels.rechunk import Rechunk
from surgery_cli.draft.kernels.reshape import Reshape
from surgery_cli.draft.kernels.take import Take
from surgery_cli.operations.transpose import Permutation
from surgery_cli.surgery.axis_order import permutes_within_an_axis


def is_permuted(coordinates):
    """True if, the others being fixed, a coordinate is not larger at each later place in C order."""
    flat = coordinates.reshape(len(coordinates), -1)
    flat = flat[:, flat[0] >= 0]  # of places that were there
    for axis, own in enumerate(flat):
        others = np.delete(flat, axis, axis=0)
        order = np.lexsort((np.arange(flat.shape[1]), *others))
        same = (others[:, order][:, 1:] == others[:, order][:, :-1]).all(axis=0)
        if (np.diff(own[order])[same] < 0).any():
            return True
    return False


def steps(rng, shape):
    """A map of a leaf of this shape, and what it does to an array [coordinates, *shape]."""
    axis, count = int(rng.integers(len(shape))), len(shape)
    size = shape[axis]
    order = tuple(map(int, rng.permutation(count)))
    split = (*shape[:axis], *((2, size // 2) if size % 2 == 0 else (size,)), *shape[axis + 1 :])
    joined = (*shape[:axis], int(np.prod(shape[axis : axis + 2])), *shape[axis + 2 :])
    index = tuple(map(int, rng.permutation(size)[: size - 1] if size > 2 else range(size)))
    even = tuple(sorted(index))
    step = int(rng.choice([1, 1, 2, -1]))
    whole = [Steps(0, n) for n in shape]
    places = range(size)[::step]
    whole[axis] = Steps(places.start, len(places), step)

    def along(function):
        return lambda x: function(np.moveaxis(x, axis + 1, 0), axis + 1)

    def wider(x):
        return np.pad(
            x,
            [(0, 0), *((1, 1) if n == axis else (0, 0) for n in range(count))],
            constant_values=-1,
        )

    kinds = [
        (Permutation(order), lambda x: x.transpose(0, *(n + 1 for n in order))),
        (Reshape(split), lambda x: x.reshape(len(x), *split)),
        (Reshape(joined), lambda x: x.reshape(len(x), *joined)),
        (Rechunk(), lambda x: x),
        (Take(axis, even), lambda x: x.take(even, axis + 1)),
        (Take(axis, index), lambda x: x.take(index, axis + 1)),
        (Cut(tuple(whole)), along(lambda x, n: np.moveaxis(x[::step], 0, n))),
        (Grow(axis, 1, size, 1), wider),
        (Unstack(axis, 0), along(lambda x, _: x[0])) if count > 1 else (Rechunk(), lambda x: x),
        (Part(axis, 0, 1, 2, size // 2), along(lambda x, n: np.moveaxis(x[: size // 2 * 2 : 2], 0, n))),
    ]  # fmt: skip
    return kinds[int(rng.integers(len(kinds)))]


@pytest.mark.parametrize("seed", range(300))
def test_it_is_what_the_indices_say(seed):
    rng = np.random.default_rng(seed)
    shape = [(4, 6), (2, 4, 3), (8,), (4, 4)][seed % 4]
    found, order = np.indices(shape), AxisOrder.of(shape)
    done = []
    for _ in range(6):
        by, move = steps(rng, found.shape[1:])
        after = by.reorder(order)
        if after is None or min(found.shape) == 0:
            break
        done.append((by, found.shape[1:]))
        found, order = move(found), after
        assert permutes_within_an_axis(done) == order.is_permuted
        if any(
            isinstance(by, Grow) for by, _ in done
        ):  # what is in another order may be new places
            assert order.is_permuted >= is_permuted(found), done
        else:
            assert order.is_permuted == is_permuted(found), done
        if order.is_permuted:  # what is left of it by later cuts may be in order by chance
            break


def test_the_axis_of_a_stack_and_of_copies_is_a_new_one():
    for by in (Stack(1, 3), Copies(1, 3), Concat(1, (6, 6))):
        halves = AxisOrder.of((4, 6)).regrouped((4, 2, 3))
        assert not by.reorder(AxisOrder.of((4, 6))).is_permuted
        swapped = halves.transposed((0, 2, 1)).regrouped((4, 6))
        assert swapped.is_permuted
        assert by.reorder(swapped) is None or by.reorder(swapped).is_permuted


def test_halves_that_become_neighbours_once_they_are_stacked_are_seen():
    """Split before the layers are stacked, turned behind it."""
    steps = [
        (Reshape((8, 2, 3)), (8, 6)),
        (Stack(1, 4), (8, 2, 3)),
        (Rechunk(), (8, 4, 2, 3)),
        (Permutation((0, 1, 3, 2)), (8, 4, 2, 3)),
        (Reshape((8, 4, 6)), (8, 4, 3, 2)),
    ]
    assert permutes_within_an_axis(steps)
    assert not permutes_within_an_axis([*steps[:3], (Reshape((8, 4, 6)), (8, 4, 2, 3))])


def kinds(of=Arrangement):
    for kind in of.__subclasses__():
        yield kind
        yield from kinds(kind)


@pytest.mark.parametrize("kind", list(kinds()), ids=lambda kind: kind.__name__)
def test_every_arrangement_says_it_itself(kind):
    assert "reorder" in vars(kind) or kind.__name__ == "OnEach", (
        "it is taken for one that cannot be followed"
    )
