"""Large blocks of merges are made in as many passes as memory asks for; values and forecast go along."""

from __future__ import annotations

import numpy as np
import pytest

from surgery_cli.compute.host import HostKit
from surgery_cli.draft.expression import LeafRef, Made, Recipe, Stored
from surgery_cli.draft.kernels.deltas import AddElected
from surgery_cli.draft.kernels.gram import Karcher
from surgery_cli.engine.composition import Composition
from surgery_cli.engine.evaluation import Evaluation
from surgery_cli.engine.forecast import working_bytes
from surgery_cli.engine.grid import block_shape
from surgery_cli.engine.read_forecast import bytes_read
from surgery_cli.engine.reading import CountedSource
from surgery_cli.operations.electing import largest_of, masked
from surgery_cli.operations.interpolate import gram_of
from surgery_cli.operations.merging import difference
from surgery_cli.tree.paths import LeafPath
from tests.operations.value_edits import ArraySource, spec_of

W = LeafPath(("w",))
MIB = 1 << 20
COUNT = 7
SHAPE = (2304, 4096)  # 36 MiB in one chunk


def _members() -> dict[str, np.ndarray]:
    chance = np.random.default_rng(0)
    return {f"m{n}": chance.standard_normal(SHAPE, np.float32) for n in range(COUNT)}


def _ties(stored: list[Recipe]) -> Recipe:
    base, *others = stored
    deltas = [difference(other, base, W, narrow=True) for other in others]
    left = (masked(delta, largest_of(delta, delta.spec.size // 2)) for delta in deltas)
    return Made(AddElected((1.0,) * len(others), 1.0), (base, *left), base.spec, W)


def _karcher(stored: list[Recipe]) -> Recipe:
    kernel = Karcher(shares=(1.0,) * COUNT)
    return Made(kernel, (*stored, gram_of(stored, None, W)), stored[0].spec, W)


@pytest.mark.check_all
@pytest.mark.parametrize("make", [_ties, _karcher], ids=["ties", "karcher"])
def test_less_memory_means_more_passes_and_the_same_values(make) -> None:
    values = _members()
    spec = spec_of(values["m0"], chunk_shape=SHAPE, write_shape=SHAPE)
    recipe = make([Stored(LeafRef(name, W), spec) for name in values])
    window = tuple(slice(0, n) for n in SHAPE)
    made, taken, passes = [], [], []
    for memory in (4096 * MIB, 160 * MIB):
        sources = {name: CountedSource(ArraySource({"w": one})) for name, one in values.items()}
        evaluation = Evaluation(recipe, sources, HostKit(), SHAPE, memory_bytes=memory)
        made.append(evaluation.block(window))
        read = sum(one.read_bytes for one in sources.values())
        said = bytes_read([recipe], memory_bytes=memory)  # equal elements at a cut are read again
        assert said.usually <= read <= said.at_most
        of = Composition(recipe, memory)
        taken.append(working_bytes(of, SHAPE, HostKit.tile_elements))
        passes.append(len(of.passes(window)))
    np.testing.assert_array_equal(made[0], made[1])
    assert passes[0] == 1 < passes[1]
    assert taken[1] < 0.75 * taken[0]


def test_where_all_is_equal_as_much_is_read_as_the_forecast_says_at_most() -> None:
    """Places tell equal elements apart: of more than 2¹⁶ of them, in two passes beside the two for sizes."""
    shape, count = (2304, 2048), 2_000_001  # two blocks
    values = {"base": np.zeros(shape, np.float32), "other": np.ones(shape, np.float32)}
    base, other = (Stored(LeafRef(name, W), spec_of(one)) for name, one in values.items())
    delta = difference(other, base, W, narrow=True)
    recipe = masked(delta, largest_of(delta, count))
    sources = {name: CountedSource(ArraySource({"w": one})) for name, one in values.items()}
    evaluation = Evaluation(recipe, sources, HostKit(), block_shape(base.spec, None))
    made = np.concatenate([evaluation.block(window) for window in evaluation.windows])
    np.testing.assert_array_equal(made.ravel(), np.arange(made.size) < count)
    said, each = bytes_read([recipe]), sum(one.nbytes for one in values.values())
    assert said.usually == 3 * each
    assert said.at_most == sum(one.read_bytes for one in sources.values()) == 5 * each
