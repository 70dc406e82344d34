"""Integers on request: every edit by arithmetic computes them exactly, rounds once, and refuses what does not fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import PlanError, ValueRefusal
from surgery_cli.operations.add_scaled import AddScaled
from surgery_cli.operations.average import Average
from surgery_cli.operations.base import Operation
from surgery_cli.operations.breadcrumbs import Breadcrumbs
from surgery_cli.operations.clip import Clip
from surgery_cli.operations.dare import Dare
from surgery_cli.operations.ema import Ema
from surgery_cli.operations.interpolate import Interpolate
from surgery_cli.operations.karcher import KarcherMean
from surgery_cli.operations.mask import Mask
from surgery_cli.operations.model_stock import ModelStockMerge
from surgery_cli.operations.noise import Noise
from surgery_cli.operations.normalize import Normalize
from surgery_cli.operations.numeric import Numeric
from surgery_cli.operations.prune import Prune
from surgery_cli.operations.rescale import Rescale
from surgery_cli.operations.shrink_and_perturb import ShrinkAndPerturb
from surgery_cli.operations.swa import Swa
from surgery_cli.operations.table import operations
from surgery_cli.operations.task_arithmetic import TaskArithmetic
from surgery_cli.operations.ties import Ties
from tests.cli.conftest import SAMPLES
from tests.cli.conftest import surgery as command  # noqa: F401 - a fixture
from tests.operations.value_edits import (
    ArrayScene,
    ArraySource,
    computed,
    draft_of,
    path_of,
    rewritten,
)
from tests.optimizer.optax_registry import train_state
from tests.optimizer.test_new_shapes import drafted

LEAF = np.array([[7, -3, 120], [0, 5, -8]])
OTHER = np.array([[2, 2, 1], [1, 2, 3]])

Expected = Callable[[np.ndarray], Any]
EDITS: dict[type[Operation], tuple[dict[str, Any], Expected | None]] = {
    Rescale: ({"by": 0.5}, lambda x: x * 0.5),
    Normalize: ({"norm": "max", "to": 30.0}, lambda x: x / np.abs(x).max() * 30),
    AddScaled: ({"with_": "other", "scale": -0.5}, lambda x: x - 0.5 * OTHER),
    Average: ({"with_": "other"}, lambda x: (x + OTHER) / 2),
    Swa: ({"steps": "1..2"}, lambda x: (x + OTHER) / 2),
    Ema: ({"steps": "1..2", "decay": 0.25}, lambda x: 0.25 * OTHER + 0.75 * x),
    Interpolate: ({"with_": "other", "t": 0.25}, lambda x: 0.75 * x + 0.25 * OTHER),
    TaskArithmetic: ({"with_": "other", "scale": 0.5}, lambda x: x + 0.5 * (OTHER - x)),
    Ties: ({"with_": "other", "density": 1}, lambda x: x + (OTHER - x)),
    Dare: ({"with_": "other", "density": 1, "scale": 0.5}, lambda x: x + 0.5 * (OTHER - x)),
    Breadcrumbs: (
        {"with_": "other", "density": 1, "outliers": 0, "scale": 0.5},
        lambda x: x + 0.5 * (OTHER - x),
    ),
    ModelStockMerge: ({"with_": ("other", "more")}, None),
    KarcherMean: ({"with_": "other"}, None),
    Clip: ({"min": -4.5, "max": 6.0}, lambda x: np.clip(x, -4.5, 6)),
    Prune: ({"sparsity": 0.5}, lambda x: np.where(np.abs(x) > 5, x, 0)),
    Mask: ({"by": "mask"}, lambda x: np.where(OTHER > 1, x, 0)),
    Noise: ({"std": 3.0}, None),
    ShrinkAndPerturb: ({"shrink": 0.5, "std": 1.0}, None),
}
"""Every edit by arithmetic, and what it comes to in float64 before it is rounded; None if random."""


def result(kind: type[Operation], leaf: np.ndarray, **fields: Any) -> np.ndarray:
    draft, scene = edited(kind, leaf, fields)
    return computed(draft.leaves[path_of("w")].recipe, {path_of("w"): leaf}, scene=scene)


def edited(
    kind: type[Operation], leaf: np.ndarray, fields: dict[str, Any]
) -> tuple[Draft, ArrayScene]:
    other = OTHER.astype(leaf.dtype)
    sources = {"other": ArraySource({"w": other}), "mask": ArraySource({"w": OTHER > 1})}
    sources["more"] = ArraySource({"w": other})
    for name, source in sources.items():
        source.places, source.address, source.steps = frozenset({name}), name, {}
        source.step = 1
    scene = ArrayScene(**sources)
    scene.source = ArraySource({"w": leaf})
    scene.source.places, scene.source.address = frozenset({"own"}), "own"
    for name, source in {"own": scene.source, **sources}.items():
        source.fingerprint = name
    scene.source.step_formats = []
    scene.source.step, scene.source.steps = 2, {1: "other", 2: "own"}
    return rewritten(kind(at="w", integers=True, **fields), draft_of({"w": leaf}), scene), scene


def test_every_edit_by_arithmetic_is_here() -> None:
    assert EDITS.keys() == {kind for kind in operations().values() if issubclass(kind, Numeric)}


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
@pytest.mark.parametrize("kind", EDITS)
def test_integers_are_computed_exactly_and_rounded_once(kind: type[Operation], dtype: str) -> None:
    fields, expected = EDITS[kind]
    leaf = LEAF.astype(dtype)
    found = result(kind, leaf, **fields)
    assert found.dtype == dtype
    if expected is not None:
        np.testing.assert_array_equal(found, np.rint(expected(LEAF.astype(np.float64))))
    else:
        again = result(kind, leaf, **fields)
        np.testing.assert_array_equal(found, again)
        assert (found != leaf).any()


@pytest.mark.parametrize("kind", EDITS)
def test_integers_are_left_alone_unless_the_edit_says_so(kind: type[Operation]) -> None:
    edit = kind(at="w", **EDITS[kind][0])
    leaves = {"w": LEAF.astype(np.int32)}
    with pytest.raises(PlanError) as caught:
        edit.output(draft_of(leaves).leaves[path_of("w")].spec)
    assert "`integers: true`" in str(caught.value.problems[0].fix)


def test_what_the_dtype_does_not_hold_is_refused() -> None:
    with pytest.raises(ValueRefusal, match="1 values of 'w'"):
        result(Rescale, LEAF.astype(np.int8), by=2.0)
    with pytest.raises(ValueRefusal, match="beyond"):
        result(Rescale, np.array([2**53 + 1], np.int64), by=0.5)
    with pytest.raises(ValueRefusal, match="beyond"):
        result(Rescale, np.array([3], np.uint8), by=-1.0)
    assert result(Rescale, np.array([2**53], np.uint64), by=0.5) == 2**52


def test_ties_go_to_the_even_number() -> None:
    found = result(Rescale, np.array([1, 3, 5, -1, -3], np.int16), by=0.5)
    np.testing.assert_array_equal(found, [0, 2, 2, 0, -2])


def test_a_counter_of_steps_is_no_number_to_compute_with() -> None:
    edit = Rescale(at="opt_state/0/count", by=0.5, integers=True)
    with pytest.raises(PlanError, match="counts the steps of slots"):
        drafted(train_state("adam"), edit)
    drafted(train_state("adam"), Rescale(at="step", by=0.5, integers=True))


@pytest.mark.parametrize("kind", EDITS)
def test_it_is_said_where_there_are_no_integers_to_compute(kind: type[Operation]) -> None:
    fields = EDITS[kind][0]
    for leaf, is_said in ((LEAF.astype("float32"), True), (LEAF, False)):
        notes = edited(kind, leaf, fields)[0].notes
        assert any("`integers: true` changes nothing" in note for note in notes) is is_said


def test_counters_that_are_averaged_are_named_wherever_they_stand(command, tmp_path) -> None:  # noqa: F811
    run = SAMPLES / "letters_run"
    words = ("swa", run, tmp_path / "new", "--steps", "last:2", "--integers", "--dry-run")
    alone = command(*words)
    assert "`--integers` changes nothing" in alone.out
    assert "these are not averaged, and stay as the source has them" in alone.out
    said = command(*words, "**", "--twins", "named").out
    assert "changes nothing" not in said
    (line,) = (line for line in said.splitlines() if "are averaged, too" in line)
    inside = command("inspect", run, "--json").document["leaves"]
    counters = [leaf["path"] for leaf in inside if leaf.get("clock")]
    assert "step" in counters
    assert all(f"'{path}' (" in line for path in counters)
