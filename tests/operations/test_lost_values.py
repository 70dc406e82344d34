"""No edit makes 0 of values that count, or NaN and infinities of what is none, in any dtype by any factor."""

from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorstore as ts

from surgery_cli.draft.kernels.cut import Grow
from surgery_cli.draft.slots import Slot
from surgery_cli.engine.finite import check_finite
from surgery_cli.errors import PlanError, ValueRefusal
from surgery_cli.operations.add_scaled import AddScaled
from surgery_cli.operations.average import Average
from surgery_cli.operations.base import LeafOperation, Operation
from surgery_cli.operations.breadcrumbs import Breadcrumbs
from surgery_cli.operations.cast import STORABLE, Cast
from surgery_cli.operations.clip import Clip
from surgery_cli.operations.dare import Dare
from surgery_cli.operations.ema import Ema
from surgery_cli.operations.expand import Expand
from surgery_cli.operations.interpolate import Interpolate
from surgery_cli.operations.interpolate_positions import InterpolatePositions
from surgery_cli.operations.karcher import KarcherMean
from surgery_cli.operations.map import Map
from surgery_cli.operations.mask import Mask
from surgery_cli.operations.merge_lora import MergeLora
from surgery_cli.operations.model_stock import ModelStockMerge
from surgery_cli.operations.noise import Noise
from surgery_cli.operations.normalize import Normalize
from surgery_cli.operations.pad import Pad
from surgery_cli.operations.permute import Permute
from surgery_cli.operations.prune import Prune
from surgery_cli.operations.reinit import Reinit
from surgery_cli.operations.repeat import Repeat
from surgery_cli.operations.replace import Replace
from surgery_cli.operations.rescale import Rescale
from surgery_cli.operations.reset_optimizer import ResetOptimizer
from surgery_cli.operations.reshape import Reshape
from surgery_cli.operations.resize import Resize
from surgery_cli.operations.set import Set
from surgery_cli.operations.shrink_and_perturb import ShrinkAndPerturb
from surgery_cli.operations.slice import Slice
from surgery_cli.operations.squeeze import Squeeze
from surgery_cli.operations.swa import Swa
from surgery_cli.operations.table import operations
from surgery_cli.operations.task_arithmetic import TaskArithmetic
from surgery_cli.operations.ties import Ties
from surgery_cli.operations.transpose import Transpose
from surgery_cli.operations.unmerge_lora import UnmergeLora
from surgery_cli.optimizer.follow.initial_values import refilled
from surgery_cli.optimizer.follow.rearranged import Mapped, moved_slots
from surgery_cli.optimizer.follow.transform import at_mean
from surgery_cli.tree.dtypes import FLOATS as DTYPES
from tests.operations.value_edits import (
    KERNEL,
    ArrayScene,
    ArraySource,
    computed,
    draft_of,
    edited,
    followed,
    merged,
    rewritten,
    scene_of,
    stored,
)

FLOATS = [name for name in DTYPES if name in STORABLE]
FACTORS = [1e-300, 1e-60, 1e-30, 1e-8, 1e-3, 0.1, 0.5, 2.0, 1e4, 1e30, 1e60, 1e300]
LEAVES = {
    "squares": lambda rng: 10.0 ** rng.uniform(-12, 0, (4, 6)),
    "signed": lambda rng: rng.normal(size=(4, 6)),
}


def dtype_of(name: str) -> Any:
    return np.dtype(getattr(ml_dtypes, name, name))


def rescaled(leaf: Any, x: float) -> Any:
    return edited(Rescale(by=x), leaf)


def rescaled_by_an_array(leaf: Any, x: float) -> Any:
    scene = ArrayScene(scale__npy=ArraySource({"": np.full((6,), x)}))
    return edited(Rescale(by="scale.npy"), leaf, scene=scene)


def followed_by_power(leaf: Any, x: float) -> Any:
    scene = ArrayScene(scale__npy=ArraySource({"": np.full((6,), x)}))
    return followed(Rescale(by="scale.npy"), NU, leaf, np.ones((4, 6), np.float32), scene=scene)


def followed_by_measurement(leaf: Any, x: float) -> Any:
    param = np.full((4, 6), np.float32(min(x, 1e30)))
    return followed(Normalize(), NU, leaf, param)


NU = Slot(path=KERNEL, param=KERNEL, name="nu", power=-2, is_even=True, is_second_moment=True)


def reset(leaf: Any, x: float) -> Any:
    draft = draft_of({str(KERNEL): leaf})
    return computed(refilled(draft, KERNEL, x).recipe, {})


def averaged(leaf: Any, x: float) -> Any:
    at = str(KERNEL)
    edit = Average(at=at, with_="a", weights=(x, 1.0))
    return merged(edit, [{at: leaf}, {at: np.zeros((4, 6), leaf.dtype)}])[at]


def unmasked(edit: LeafOperation, leaf: Any, scene: ArrayScene | None = None) -> Any:
    """What an edit by zeros that are meant has made of the leaf, with these filled up from it."""
    new = edited(edit, leaf, scene=scene)
    return np.where(new == 0, leaf, new)


def masked(leaf: Any, x: float) -> Any:
    scene = ArrayScene(mask__npy=ArraySource({"": np.array([True, False] * 3)}))
    return unmasked(Mask(by="mask.npy"), leaf, scene)


def added(leaf: Any, x: float) -> Any:
    scene = ArrayScene(other=ArraySource({str(KERNEL): np.abs(leaf)}))
    edit = AddScaled(at=str(KERNEL), with_="other", scale=x)
    recipe = rewritten(edit, draft_of({str(KERNEL): leaf}), scene).leaves[KERNEL].recipe
    return computed(recipe, {KERNEL: leaf}, scene=scene)


def with_lora(leaf: Any, x: float, kind: type[MergeLora | UnmergeLora] = MergeLora) -> Any:
    """What becomes of a kernel of zeros: A is the leaf, B says each of its columns once."""
    parts = {"a": leaf, "b": np.eye(6, dtype=np.float32)}
    scene = ArrayScene(lora=ArraySource(parts))
    edit = kind(at=str(KERNEL), with_="lora", a="a", b="b", layout="flax", scale=x)
    kernel = np.zeros_like(leaf)
    recipe = rewritten(edit, draft_of({str(KERNEL): kernel}), scene).leaves[KERNEL].recipe
    return computed(recipe, {KERNEL: kernel}, scene=scene)


def mapped(leaf: Any, x: float) -> Any:
    scene = ArrayScene()
    scene.functions["edit.py:same"] = lambda array, path: array
    edit = Map(at=str(KERNEL), with_="edit.py:same")
    recipe = rewritten(edit, draft_of({str(KERNEL): leaf}), scene).leaves[KERNEL].recipe
    return computed(recipe, {KERNEL: leaf})


def merging(edit: Operation, leaf: Any) -> Any:
    """What becomes of a base of zeros, the leaf being what was trained from it."""
    at = str(KERNEL)
    return merged(edit, [{at: np.zeros_like(leaf)}, {at: leaf}])[at]


def over_steps(edit: Operation, leaf: Any) -> Any:
    """What becomes of a leaf, the step before which was 0."""
    at = str(KERNEL)
    scene = scene_of({at: leaf}, {"before": {at: np.zeros_like(leaf)}})
    own: Any = scene.source
    own.step, own.steps = 2, {1: "before", 2: "own"}
    recipe = rewritten(edit, draft_of({at: leaf}), scene).leaves[KERNEL].recipe
    return computed(recipe, {KERNEL: leaf}, scene=scene)


VALUES: dict[type[Operation], list[Callable[[Any, float], Any]]] = {
    Rescale: [rescaled, rescaled_by_an_array, followed_by_power],
    Normalize: [
        followed_by_measurement,
        lambda leaf, x: edited(Normalize(to=x), leaf),
        lambda leaf, x: edited(Normalize(to=x, axis=0, norm="max"), leaf),
    ],
    Replace: [lambda leaf, x: edited(Replace(with_=x), leaf)],
    Set: [lambda leaf, x: edited(Set(to=x), leaf[:1, :1])],
    ResetOptimizer: [
        reset,
        lambda leaf, x: computed(at_mean(NU, stored(leaf))[0].recipe, {KERNEL: leaf}),
    ],
    Reinit: [
        lambda leaf, x: edited(Reinit(init="constant", value=x), leaf),
        lambda leaf, x: edited(Reinit(init="normal", stddev=4 * x), leaf),
        lambda leaf, x: edited(Reinit(init="orthogonal", scale=4 * x), leaf),
    ],
    Average: [averaged],
    Swa: [lambda leaf, x: over_steps(Swa(at="**", steps="1..2"), leaf)],
    Ema: [
        lambda leaf, x: over_steps(
            Ema(at="**", steps="1..2", decay=min(max(1 - x, 1e-16), 1 - 1e-16)), leaf
        )
    ],
    AddScaled: [added],
    Interpolate: [
        lambda leaf, x: merging(Interpolate(at="**", with_="a", t=x), leaf),
        lambda leaf, x: merging(Interpolate(at="**", with_="a", t=x, method="slerp"), leaf),
    ],
    TaskArithmetic: [lambda leaf, x: merging(TaskArithmetic(at="**", with_="a", scale=x), leaf)],
    Ties: [lambda leaf, x: merging(Ties(at="**", with_="a", density=1, scale=x), leaf)],
    Dare: [lambda leaf, x: merging(Dare(at="**", with_="a", density=1, scale=x), leaf)],
    Breadcrumbs: [
        lambda leaf, x: merging(
            Breadcrumbs(at="**", with_="a", density=1, outliers=0, scale=x), leaf
        )
    ],
    ModelStockMerge: [
        lambda leaf, x: merged(
            ModelStockMerge(at="**", with_=("a", "b")),
            [{str(KERNEL): each} for each in (np.zeros_like(leaf), leaf, leaf)],
        )[str(KERNEL)]
    ],
    KarcherMean: [
        lambda leaf, x: merging(KarcherMean(at="**", with_="a", weights=(1, max(x, 1e-300))), leaf)
    ],
    MergeLora: [with_lora],
    UnmergeLora: [lambda leaf, x: with_lora(leaf, -x, UnmergeLora)],
    Clip: [
        lambda leaf, x: edited(Clip(min=x), leaf),
        lambda leaf, x: edited(Clip(max=x), leaf),
        lambda leaf, x: edited(Clip(norm=x), leaf),
        lambda leaf, x: edited(Clip(norm=x, axis=0), leaf),
    ],
    Noise: [
        lambda leaf, x: edited(Noise(std=4 * x), leaf),
        lambda leaf, x: edited(Noise(std=x, relative=True), leaf),
    ],
    ShrinkAndPerturb: [
        lambda leaf, x: edited(ShrinkAndPerturb(shrink=min(x, 1.0), std=4 * x), leaf),
        lambda leaf, x: edited(ShrinkAndPerturb(shrink=0.5, init="uniform", perturb=x), leaf),
    ],
    Transpose: [lambda leaf, x: edited(Transpose(), leaf)],
    Reshape: [lambda leaf, x: edited(Reshape(shape=(-1,)), leaf)],
    Squeeze: [lambda leaf, x: edited(Squeeze(), leaf)],
    Expand: [lambda leaf, x: edited(Expand(axis=0), leaf)],
    Permute: [
        lambda leaf, x: edited(
            Permute(index=(3, 2, 1, 0)), edited(Permute(index=(3, 2, 1, 0)), leaf)
        )
    ],
    Slice: [lambda leaf, x: edited(Slice(slices="1:"), leaf)],
    Pad: [
        lambda leaf, x: edited(Pad(axis=0, before=1, value=x), leaf),
        lambda leaf, x: computed(
            moved_slots(
                [NU],
                {NU.path: (stored(leaf),)},
                Mapped(Grow(0, 0, 4, 2), (stored(leaf).spec,), stored(leaf).spec),
            )[NU.path].recipe,
            {KERNEL: leaf},
        ),
    ],
    Repeat: [
        lambda leaf, x: edited(Repeat(axis=0, times=2), leaf),
        lambda leaf, x: edited(Repeat(axis=0, times=2, new_axis=True), leaf),
    ],
    InterpolatePositions: [
        lambda leaf, x: edited(InterpolatePositions(axis=0, size=7), leaf),
        lambda leaf, x: edited(InterpolatePositions(axis=1, size=4, method="cubic"), leaf),
    ],
    Resize: [
        lambda leaf, x: edited(Resize(axis=0, size=6), leaf),
        lambda leaf, x: edited(Resize(axis=1, size=9, noise=x), leaf),
        lambda leaf, x: edited(Resize(axis=0, size=6, fill="constant", value=x), leaf),
    ],
    Prune: [
        lambda leaf, x: unmasked(Prune(sparsity=0.5), leaf),
        lambda leaf, x: unmasked(Prune(pattern="1:2", axis=0), leaf),
    ],
    Mask: [masked],
    Map: [mapped],
    Cast: [lambda leaf, x: edited(Cast(to=leaf.dtype.name), leaf.astype(np.float64) * x)],
}


def every_edit() -> Iterator[Any]:
    for kind, edits in VALUES.items():
        for number, edit in enumerate(edits):
            for name in FLOATS:
                yield pytest.param(edit, name, id=f"{kind.__name__}-{number}-{name}")


def test_every_operation_on_values_is_swept() -> None:
    listed = {kind for kind in operations().values() if issubclass(kind, LeafOperation)}
    assert listed <= VALUES.keys()


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("edit", "name"), list(every_edit()))
def test_values_that_count_are_never_lost(edit: Callable[[Any, float], Any], name: str) -> None:
    for kind, make in LEAVES.items():
        with np.errstate(all="ignore"):
            leaf = make(np.random.default_rng(0)).astype(dtype_of(name))
        normal = float(ml_dtypes.finfo(dtype_of(name)).smallest_normal)
        counted = abs(leaf.astype(np.float64)) >= (normal if name in HELD_AS_ZERO else 0)
        counted &= leaf != 0
        for x in FACTORS:
            try:
                with np.errstate(all="ignore"):
                    new = edit(leaf, x)
                check_finite(KERNEL, new, lambda leaf=leaf: leaf)
            except (PlanError, ValueRefusal):
                continue
            assert np.isfinite(new.astype(np.float64)).all(), (kind, x)
            assert new.any(), (kind, x)
            if kind == "squares" and new.shape == leaf.shape and edit not in DRAWN:
                assert (new[counted] != 0).all(), (kind, x)


HELD_AS_ZERO = ("float64", "float32", "bfloat16")
"""Devices take what is below the smallest normal number of these for 0."""
DRAWN = [*VALUES[Reinit][1:], *VALUES[Noise], *VALUES[ShrinkAndPerturb]]


@pytest.mark.parametrize("name", FLOATS)
def test_a_number_is_refused_exactly_where_rounding_makes_it_zero(name: str) -> None:
    leaf = np.ones(2, dtype_of(name))
    smallest = float(ml_dtypes.finfo(leaf.dtype).smallest_subnormal)
    assert DTYPES[name].least == smallest
    if name == "float64":
        return
    for edit in (Replace, Set):
        field = {"with_": 0.5 * smallest} if edit is Replace else {"to": 0.5 * smallest}
        with pytest.raises(PlanError, match="would become 0"):
            edited(edit(**field), leaf[:1])
    assert edited(Replace(with_=0.51 * smallest), leaf).all()
    assert not edited(Replace(with_=0), leaf).any()


@pytest.mark.parametrize("name", FLOATS)
def test_an_infinity_stays_one_or_is_refused(name: str) -> None:
    leaf = np.array([np.inf, 1.0, -1.0], np.float32)
    with np.errstate(all="ignore"):
        is_kept = np.isinf(leaf.astype(dtype_of(name)).astype(np.float32)[0])
    if is_kept:
        assert np.isinf(edited(Cast(to=name), leaf).astype(np.float32)[0])
        return
    with pytest.raises(ValueRefusal, match="no infinities"):
        edited(Cast(to=name), leaf)


def test_an_infinity_that_an_edit_turns_into_nan_is_refused() -> None:
    leaf = np.array([np.inf, np.nan, 1.0], np.float32)
    with pytest.raises(ValueRefusal, match="1 new non-finite value"):
        check_finite(KERNEL, np.array([np.nan, np.nan, 1.0], np.float32), lambda: leaf)
    check_finite(KERNEL, leaf, lambda: leaf)


@pytest.mark.parametrize("driver", ["zarr", "zarr3"])
@pytest.mark.parametrize("name", STORABLE)
def test_a_cast_goes_to_dtypes_that_a_store_holds(name: str, driver: str) -> None:
    spec = {"driver": driver, "kvstore": "memory://", "dtype": name}
    assert ts.open(spec, create=True, shape=[2]).result().dtype.name == name


@pytest.mark.parametrize("name", ["float8_e4m3", "uint4", "float8", "bf16"])
def test_a_dtype_that_no_store_holds_is_refused_from_metadata_with_the_nearest(name: str) -> None:
    with pytest.raises(PlanError, match="no dtype that a leaf can be cast to") as caught:
        rewritten(Cast(at="w", to=name), draft_of({"w": np.ones(2, np.float32)}), ArrayScene())
    assert any(known in caught.value.problems[0].fix for known in STORABLE)
