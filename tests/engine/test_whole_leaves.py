"""A kernel that needs a whole leaf gets it, whatever part of the result the next edit asks for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from surgery_cli.compute.host import HostKit
from surgery_cli.draft.expression import LeafRef, Made, Recipe, Stored
from surgery_cli.draft.kernels.cut import Cut, Steps
from surgery_cli.draft.user_function import UserFunction
from surgery_cli.engine.composition import Composition
from surgery_cli.engine.evaluation import Evaluation
from surgery_cli.engine.forecast import TEMPORARY_BYTES, working_bytes
from surgery_cli.engine.read_forecast import bytes_read
from surgery_cli.engine.reading import CountedSource
from surgery_cli.operations.base import LeafOperation
from surgery_cli.operations.map import Called, CalledAnew
from surgery_cli.operations.normalize import Normalize
from surgery_cli.operations.reinit import Reinit
from surgery_cli.operations.table import operations
from surgery_cli.tree.paths import LeafPath
from tests.operations.value_edits import ArrayScene, ArraySource, drafted_example, made, spec_of

W = LeafPath(("w",))
SHAPE = (4, 3)


def centred(array: Any) -> Any:
    """What is another array where only a part is given."""
    return array - array.mean()


def values_after(kind: type[LeafOperation], leaf: Any, donor: Any, first: Any) -> dict[str, Any]:
    """The params after the example of an operation."""
    draft, sources = drafted_example(kind, leaf, donor, first=first)
    return {
        str(path): value_of(output.recipe, sources)
        for path, output in draft.leaves.items()
        if path[0] == "params"
    }


def value_of(recipe: Recipe, sources: Any) -> Any:
    evaluation = Evaluation(recipe, sources, HostKit(), recipe.spec.shape)
    return evaluation.block(tuple(slice(0, n) for n in recipe.spec.shape))


@pytest.mark.parametrize(
    "kind",
    [kind for kind in operations().values() if issubclass(kind, LeafOperation)],
    ids=lambda kind: kind.__name__,
)
def test_every_edit_of_what_a_function_returned_is_that_of_the_same_array_stored(
    kind: type[LeafOperation],
) -> None:
    draws = np.random.default_rng(5)
    leaf, donor = (draws.normal(size=SHAPE).astype(np.float32) for _ in range(2))
    given = set()

    def first(array: Any) -> Any:
        given.add(array.shape)
        return centred(array)

    after = values_after(kind, leaf, donor, first)
    expected = values_after(kind, centred(leaf), donor, None)
    assert after.keys() == expected.keys()
    for name, array in after.items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)
    assert given <= {SHAPE}


@pytest.mark.parametrize("init", ["orthogonal", "delta_orthogonal"])
def test_a_part_of_an_orthogonal_leaf_is_cut_out_of_it(init: str) -> None:
    leaf = np.ones((3, 3, 8, 8), np.float32)
    edit = Reinit(at="w", init=init)
    whole = made(edit, leaf, W)
    cut = Cut((Steps(1, 2), Steps(0, 3), Steps(2, 3), Steps(0, 8)))
    part = Made(cut, (whole,), cut.output(whole.spec), W)
    sources = {"": ArraySource({"w": leaf})}
    np.testing.assert_array_equal(
        value_of(part, sources), value_of(whole, sources)[1:3, :3, 2:5, :]
    )


def test_a_norm_of_what_a_function_returned_is_that_of_the_whole_leaf_of_many_blocks() -> None:
    """The leaf is larger than a block; the function is called once, and what was read is what was promised."""
    leaf = np.random.default_rng(0).normal(size=5_000_000).astype(np.float32)
    spec = spec_of(leaf, chunk_shape=(500_000,), write_shape=(500_000,))
    called: list[tuple[int, ...]] = []

    def function(array: Any, path: str) -> Any:
        called.append(array.shape)
        return centred(array)

    kernel = Called(UserFunction.of("edit.py:f", "sha256:0", function))
    centre = Made(kernel, (Stored(LeafRef("", W), spec),), spec, W)
    recipe = Normalize(at="w").made(W, centre, ArrayScene())
    source = CountedSource(ArraySource({"w": leaf}))
    evaluation = Evaluation(recipe, {"": source}, HostKit(), (500_000,))
    (window,) = evaluation.windows
    found = evaluation.block(window)
    expected = centred(leaf).astype(np.float64)
    np.testing.assert_allclose(found, expected / np.linalg.norm(expected), rtol=1e-5)
    assert called == [leaf.shape]
    assert source.read_bytes == bytes_read([recipe]).usually


@pytest.mark.parametrize("rows", [1, 40, 400], ids=["less", "as much", "more"])
def test_memory_is_foreseen_for_all_that_a_function_is_given_and_returns(rows: int) -> None:
    """Whatever is then cut out of it: both stand there at once, and what the function takes beside them."""
    leaf = np.ones((40, 1000), np.float32)
    kernel = CalledAnew(UserFunction.of("edit.py:f", "sha256:0", lambda array, _: array))
    returned = spec_of(np.ones((rows, 1000), np.float32))
    whole = Made(kernel, (Stored(LeafRef("", W), spec_of(leaf)),), returned, W)
    cut = Cut((Steps(0, 1), Steps(0, 10)))
    part = Made(cut, (whole,), cut.output(returned), W)
    for recipe in (whole, part):
        foreseen = working_bytes(Composition(recipe), recipe.spec.shape, 1 << 17)
        assert foreseen >= leaf.nbytes + TEMPORARY_BYTES * max(leaf.size, returned.size)


def test_memory_is_foreseen_for_an_orthogonal_leaf_of_which_a_part_is_kept() -> None:
    leaf = np.ones((1000, 200), np.float32)
    whole = made(Reinit(at="w", init="orthogonal"), leaf, W)
    cut = Cut((Steps(0, 1), Steps(0, 10)))
    part = Made(cut, (whole,), cut.output(whole.spec), W)
    foreseen = [working_bytes(Composition(one), one.spec.shape, 1 << 17) for one in (whole, part)]
    assert min(foreseen) >= 5 * 8 * leaf.size
