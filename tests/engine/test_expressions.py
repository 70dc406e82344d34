"""Recipes are expressions: equal parts are read, measured, computed and digested once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.compute.host import HostKit
from surgery_cli.draft import expression
from surgery_cli.draft.digest import draft_digest
from surgery_cli.draft.expression import LeafRef, Made, Recipe, Stored
from surgery_cli.draft.kernel import Kernel, Kit, Place
from surgery_cli.engine import composition
from surgery_cli.engine.composition import Composition
from surgery_cli.engine.evaluation import Evaluation
from surgery_cli.engine.forecast import working_bytes
from surgery_cli.engine.read_forecast import bytes_read
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.tree.paths import LeafPath
from tests.operations.value_edits import ArraySource, spec_of

W = LeafPath(("w",))


class Sum(Kernel, frozen=True, tag="sum"):
    """Two leaves added."""

    def compute(self, blocks: Sequence[Any], kit: Kit, at: Place) -> Any:
        return kit.in_float32(blocks[0], lambda x: x + blocks[1])


class Counted(ArraySource):
    """Arrays, and how often each was read."""

    count = 0

    def read(self, path: LeafPath, window: Any = None) -> Any:
        self.count += 1
        return super().read(path, window)


def doubled(times: int, leaf: Any) -> Recipe:
    """A leaf added to itself, and so on."""
    recipe: Recipe = Stored(LeafRef("", W), spec_of(leaf))
    for _ in range(times):
        recipe = Made(Sum(), (recipe, recipe), recipe.spec, W)
    return recipe


@pytest.mark.parametrize("size", [5, 300_000], ids=["one tile", "several"])
def test_a_leaf_added_to_itself_twenty_times_is_read_and_digested_once(size: int) -> None:
    leaf = np.random.default_rng(0).normal(size=size).astype(np.float32)
    recipe, source = doubled(20, leaf), Counted({"w": leaf})
    evaluation = Evaluation(recipe, {"": source}, HostKit(), leaf.shape)
    (window,) = evaluation.windows
    np.testing.assert_array_equal(evaluation.block(window), leaf * np.float32(2**20))
    assert source.count == 1
    assert bytes_read([recipe]).usually == leaf.nbytes
    assert working_bytes(Composition(recipe), leaf.shape, 1 << 17) < 4 * leaf.nbytes + (8 << 20)
    assert draft_digest({W: recipe}, "", {}) != draft_digest({W: doubled(19, leaf)}, "", {})


def test_the_parts_of_an_expression_are_looked_for_once_for_each_that_asks(monkeypatch) -> None:
    walked: list[Recipe] = []

    def parts(recipe: Recipe, **beyond: Any) -> list[Recipe]:
        walked.append(recipe)
        return expression.parts(recipe, **beyond)

    monkeypatch.setattr(composition, "parts", parts)
    leaf = np.ones((8, 8), np.float32)
    recipe = doubled(3, leaf)
    bytes_read([recipe])
    assert walked == [recipe]
    working_bytes(Composition(recipe), leaf.shape, 1 << 17)
    assert walked == [recipe] * 2
    evaluation = Evaluation(recipe, {"": ArraySource({"w": leaf})}, HostKit(), leaf.shape)
    evaluation.block(evaluation.windows[0])
    assert walked == [recipe] * 3


@pytest.mark.parametrize("rows", [64, 12288], ids=["one block", "two blocks"])
def test_a_norm_that_serves_a_param_and_its_moments_is_measured_once(
    tmp_path: Path, rows: int
) -> None:
    params = {"w": jnp.full((rows, 512), 0.5, jnp.float32)}
    with ocp.StandardCheckpointer() as checkpointer:
        state = {"params": params, "opt_state": optax.adam(1e-3).init(params)}
        checkpointer.save(tmp_path / "a", state)
    plan = plan_of([operation_from_options("normalize", {"at": "params/w"})], optimizer_kind="adam")

    promised = surgery.plan(str(tmp_path / "a"), plan).bytes_read
    report = surgery.apply(str(tmp_path / "a"), str(tmp_path / "b"), plan)

    assert promised == report.bytes_read == 4 * params["w"].nbytes


def test_a_leaf_is_edited_two_thousand_times_in_one_plan(tmp_path: Path) -> None:
    """An expression that deep is walked without recursion, from its digest to its values."""
    leaf = np.arange(1, 9, dtype=np.float32)
    ocp.PyTreeCheckpointer().save(tmp_path / "a", {"w": leaf})
    by = [2.0, 0.5] * 1000 + [3.0]
    plan = plan_of([operation_from_options("rescale", {"at": "w", "by": one}) for one in by])
    surgery.apply(str(tmp_path / "a"), str(tmp_path / "b"), plan)
    restored = ocp.PyTreeCheckpointer().restore(tmp_path / "b")
    np.testing.assert_array_equal(restored["w"], leaf * 3)
