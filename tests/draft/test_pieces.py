"""Of what a block is made: a kernel whose inputs do not broadcast to its output has to say it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from surgery_cli.draft.expression import Made, parts
from surgery_cli.draft.kernel import Kernel, Kit, Measurement, Place, broadcasts
from surgery_cli.operations.base import LeafOperation
from surgery_cli.operations.table import operations
from tests.operations.value_edits import drafted_example, spec_of


class Returned(Kernel, frozen=True, tag="returned"):
    """A kernel that says no pieces."""

    def compute(self, blocks: Sequence[Any], kit: Kit, at: Place) -> Any:
        return blocks[0]


IDLE = {"Squeeze"}
"""Operations whose example changes nothing of leaves of two axes."""

SHAPES = [
    (),
    (1,),
    (4,),
    (6, 4),
    (3, 4),
    (12, 4),
    (6, 1),
    (1, 4),
    (6, 8),
    (2, 6, 4),
    (1, 1, 1),
    (0, 4),
]


@pytest.mark.parametrize("given", SHAPES)
@pytest.mark.parametrize("made", SHAPES)
def test_the_same_window_of_an_input_is_read_only_where_numpy_broadcasts_it(
    given: tuple[int, ...], made: tuple[int, ...]
) -> None:
    try:
        is_one = np.broadcast_to(np.zeros(given), made).shape == made
    except ValueError:
        is_one = False
    inputs, output = [spec_of(np.zeros(given))], spec_of(np.zeros(made))
    out = tuple(slice(0, n) for n in made)
    assert broadcasts(given, made) == is_one
    if is_one:
        (piece,) = Returned().pieces(out, inputs, output)
        assert np.zeros(given)[piece.read].shape == given
    else:
        with pytest.raises(TypeError, match="says no pieces"):
            list(Returned().pieces(out, inputs, output))


def every(kind: type[Kernel]) -> Iterator[type[Kernel]]:
    for one in kind.__subclasses__():
        yield one
        yield from every(one)


def test_a_kernel_that_needs_all_of_its_inputs_says_so() -> None:
    """Of all kernels that operations have: one that makes a leaf whole is given no crop by default."""
    operations()
    ours = [one for one in every(Kernel) if one.__module__.startswith("surgery_cli.")]
    whole = [one for one in ours if "is_whole" in dir(one) and one.is_whole is not Kernel.is_whole]
    assert {one.__name__ for one in whole} >= {"Called", "CalledAnew", "Draw"}
    silent = {
        one.__name__
        for one in whole
        if one.pieces is Kernel.pieces and not issubclass(one, Measurement)
    }
    assert silent == {"Draw"}, "a draw is made of nothing"


@pytest.mark.parametrize(
    "kind",
    [kind for kind in operations().values() if issubclass(kind, LeafOperation)],
    ids=lambda kind: kind.__name__,
)
def test_every_part_of_every_example_is_made_of_windows_within_its_inputs(kind: Any) -> None:
    """Also for parts of a block: each window lies in its input, and each input of which something is made is read."""
    leaf = np.ones((4, 3), np.float32)
    draft, _ = drafted_example(kind, leaf, leaf * 2)
    looked_at = 0
    for output in draft.leaves.values():
        for part in parts(output.recipe):
            if not isinstance(part, Made) or isinstance(part.kernel, Measurement):
                continue
            specs = tuple(one.spec for one in part.inputs)
            out = tuple(slice(n // 2, n) for n in part.spec.shape)
            out = tuple(slice(0, n) for n in part.spec.shape) if part.kernel.is_whole else out
            for piece in part.kernel.pieces(out, specs, part.spec):
                shape = specs[piece.input].shape
                assert len(piece.read) == len(shape)
                for one, size in zip(piece.read, shape, strict=True):
                    assert 0 <= one.start <= one.stop <= size
            looked_at += 1
    assert looked_at or kind.__name__ in IDLE
