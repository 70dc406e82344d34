"""Merges of fine-tunes, held against their papers in NumPy, float64."""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
import pytest

from surgery_cli.errors import PlanError, ValueRefusal
from surgery_cli.operations.average import Average
from surgery_cli.operations.averaging import Averaging
from surgery_cli.operations.base import Operation
from surgery_cli.operations.breadcrumbs import Breadcrumbs
from surgery_cli.operations.dare import Dare
from surgery_cli.operations.ema import Ema, exponent, powers
from surgery_cli.operations.interpolate import Interpolate
from surgery_cli.operations.karcher import KarcherMean
from surgery_cli.operations.merging import Merging
from surgery_cli.operations.model_stock import ModelStockMerge
from surgery_cli.operations.prune import Prune
from surgery_cli.operations.swa import Swa
from surgery_cli.operations.table import operations
from surgery_cli.operations.task_arithmetic import TaskArithmetic
from surgery_cli.operations.ties import Ties
from tests.operations.value_edits import (
    computed,
    draft_of,
    path_of,
    rewritten,
    scene_of,
)
from tests.operations.value_edits import merged as merged_all

NAMES = [name for name, kind in operations().items() if issubclass(kind, Merging | Averaging)]
AT = "params/layers_0/kernel"
SHAPE = (12, 10)
DTYPES = [np.float32, ml_dtypes.bfloat16, np.float64]
BLOCKS = [None, (5, 10), (3, 4)]


def models(count: int, dtype: Any = np.float32, spread: float = 0.3) -> list[Any]:
    """A base and its fine-tunes."""
    rng = np.random.default_rng(count)
    base = rng.normal(size=SHAPE)
    tunes = [base + spread * rng.normal(size=SHAPE) for _ in range(count)]
    return [leaf.astype(dtype) for leaf in (base, *tunes)]


def merged(edit: Operation, leaves: list[Any], *, block: Any = None, at: str = AT) -> Any:
    return merged_all(edit, [{at: leaf} for leaf in leaves], block=block)[at]


def check(edit: Operation, leaves: list[Any], wanted: Any, rtol: float = 1e-13) -> None:
    """Whatever the blocks, the edit gives what the reference says, rounded once."""
    own = leaves[0].dtype
    for block in BLOCKS:
        found = merged(edit, leaves, block=block)
        assert found.dtype == own
        if own.name == "bfloat16":
            half = 2**-8 * (1 + 1e-12)  # of the last place: rounded to nearest, once
            np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=half)
        else:
            least = np.finfo(own).eps
            np.testing.assert_allclose(found, wanted, rtol=max(least, rtol), atol=1e-12)


def wide(leaves: list[Any]) -> list[Any]:
    return [leaf.astype(np.float64) for leaf in leaves]


@pytest.mark.parametrize("dtype", DTYPES)
def test_lerp_is_a_weighted_mean(dtype: Any) -> None:
    leaves = models(1, dtype)
    a, b = wide(leaves)
    check(Interpolate(at="params", with_="a", t=0.3), leaves, 0.7 * a + 0.3 * b)
    check(Interpolate(at="params", with_="a", t=1.5), leaves, -0.5 * a + 1.5 * b)
    for t, end in ((0.0, leaves[0]), (1.0, leaves[1])):
        found = merged(Interpolate(at="params", with_="a", t=t), leaves)
        assert found.tobytes() == end.tobytes()


def arc(a: Any, b: Any, t: float, axis: Any = None) -> Any:
    """Shoemake's formula."""
    norms = np.linalg.norm(a, axis=axis, keepdims=True) * np.linalg.norm(
        b, axis=axis, keepdims=True
    )
    angle = np.arccos(np.sum(a * b, axis=axis, keepdims=True) / norms)
    return (np.sin((1 - t) * angle) * a + np.sin(t * angle) * b) / np.sin(angle)


@pytest.mark.parametrize("dtype", DTYPES)
def test_slerp_keeps_to_the_arc_and_goes_straight_between_neighbours(dtype: Any) -> None:
    leaves = models(1, dtype)
    a, b = wide(leaves)
    flat = arc(a.reshape(-1), b.reshape(-1), 0.3).reshape(SHAPE)
    check(Interpolate(at="params", with_="a", t=0.3, method="slerp"), leaves, flat)
    near = models(1, dtype, spread=0.01)
    a, b = wide(near)
    check(Interpolate(at="params", with_="a", t=0.3, method="slerp"), near, 0.7 * a + 0.3 * b)
    zero = [np.zeros(SHAPE, dtype), near[1]]
    check(Interpolate(at="params", with_="a", t=0.5, method="slerp"), zero, 0.5 * b)


def test_nuslerp_takes_angles_over_axes_and_beside_a_base() -> None:
    base, *leaves = models(2)
    root, a, b = wide([base, *leaves])
    edit = Interpolate(at="params", with_="a", t=0.25, method="nuslerp", axis=0)
    check(edit, leaves, arc(a, b, 0.25, axis=0))
    learnt = [(leaf - root).reshape(-1) for leaf in (a, b)]
    wanted = root + arc(*learnt, 0.25).reshape(SHAPE)
    own, other = leaves
    scene = scene_of({AT: own}, {"a": {AT: other}, "root": {AT: base}})
    edit = Interpolate(at="params", with_="a", t=0.25, method="nuslerp", base="root")
    after = rewritten(edit, draft_of({AT: own}), scene)
    found = computed(after.leaves[path_of(AT)].recipe, {path_of(AT): own}, scene=scene)
    np.testing.assert_allclose(found, wanted, rtol=2e-7)


def test_numbers_lie_over_the_layers_that_the_pattern_counts() -> None:
    leaves = [
        {f"params/layers_{n}/w": np.full(3, value, "f4") for n in range(12)} for value in (0, 1)
    ]
    edit = Interpolate(at="params/layers_{0..11}", with_="a", t=(0.0, 1.0, 0.0))
    found = merged_all(edit, leaves)
    wanted = np.interp(np.arange(12), [0, 5.5, 11], [0, 1, 0])
    np.testing.assert_allclose([found[f"params/layers_{n}/w"][0] for n in range(12)], wanted)
    with pytest.raises(PlanError, match="'params' counts none"):
        merged_all(Interpolate(at="params", with_="a", t=(0.0, 1.0)), leaves)


def _numbers_of(operation: type[Operation]) -> dict[str, Any]:
    """The fields of an edit that are numbers, or lists of them: of JSON's schema of it, not of its code."""
    schema = msgspec.json.schema(operation)["$defs"][operation.__name__]["properties"]
    return {
        name: field
        for name, field in schema.items()
        if '"number"' in json.dumps(field) and name not in Operation.__struct_fields__
    }


@pytest.mark.parametrize("name", NAMES)
def test_every_number_of_every_merge_may_be_a_list_over_the_layers(name: str) -> None:
    for field, schema in _numbers_of(operations()[name]).items():
        ways = [way.get("type") for way in schema.get("anyOf", [schema])]
        one = schema["items"] if ways == ["array"] else schema
        ways = [way.get("type") for way in one.get("anyOf", [one])]
        assert {"number", "array"} <= {*ways}, f"{name}: {field} is {schema}"


LISTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "karcher weights": (KarcherMean, {"weights": [(1.0, 3.0), 2.0]}),
    "breadcrumbs outliers": (Breadcrumbs, {"density": 0.5, "outliers": (0.0, 0.5)}),
    "breadcrumbs all": (
        Breadcrumbs,
        {"density": (0.25, 0.75), "outliers": (0.0, 0.5), "scale": (0.5, 1.0), "weights": [(1, 2)]},
    ),
    "average weights": (Average, {"weights": [(1.0, 3.0), (2.0, 0.0)]}),
    "ties": (Ties, {"density": (0.25, 1.0), "scale": (0.5, 1.0), "weights": [(1.0, 2.0)]}),
    "dare": (Dare, {"density": (0.25, 1.0), "scale": (0.5, 1.0), "weights": [(1.0, 2.0)]}),
    "task-arithmetic": (TaskArithmetic, {"scale": (0.5, 1.0), "weights": [(1.0, -2.0)]}),
    "slerp": (Interpolate, {"method": "slerp", "t": (0.0, 1.0)}),
}


@pytest.mark.parametrize("case", LISTS)
def test_a_list_of_numbers_is_an_edit_of_its_own_for_each_layer(case: str) -> None:
    """Five layers by one edit, and each alone by the number that stands in the middle of a straight line."""
    operation, fields = LISTS[case]
    own, other = (
        {f"params/layers_{n}/w": leaf for n, leaf in enumerate(models(5)[k : k + 5])}
        for k in (0, 1)
    )
    found = merged_all(operation(at="params/layers_*", with_="a", **fields), [own, other])

    def at_layer(value: Any, n: int) -> Any:
        if isinstance(value, tuple):
            return float(np.interp(n, [0, 4], value))
        return tuple(at_layer(each, n) for each in value) if isinstance(value, list) else value

    for n, path in enumerate(own):
        alone = {field: at_layer(value, n) for field, value in fields.items()}
        edit = operation(at=path, with_="a", **alone)
        assert found[path].tobytes() == merged_all(edit, [own, other])[path].tobytes(), (case, n)


@pytest.mark.parametrize("dtype", DTYPES)
def test_task_arithmetic_adds_what_was_learnt(dtype: Any) -> None:
    leaves = models(3, dtype)
    base, *tunes = wide(leaves)
    weights = (1.0, 0.5, -0.25)
    learnt = sum(w * (tune - base) for w, tune in zip(weights, tunes, strict=True))
    edit = TaskArithmetic(at="params", with_=("a", "b", "c"), scale=0.4, weights=weights)
    check(edit, leaves, base + 0.4 * learnt)
    same = merged(TaskArithmetic(at="params", with_="a", scale=0.7), [leaves[0], leaves[0].copy()])
    assert same.tobytes() == leaves[0].tobytes()


def trimmed(delta: Any, density: float) -> Any:
    """The largest of a difference, the first in C order of equal ones."""
    flat = delta.reshape(-1)
    count = flat.size - round((1 - density) * flat.size)
    kept = np.argsort(-abs(flat), kind="stable")[:count]
    left = np.zeros_like(flat)
    left[kept] = flat[kept]
    return left.reshape(delta.shape)


def elected(deltas: list[Any], weights: tuple[float, ...], *, is_mean: bool = True) -> Any:
    """Yadav et al.: the sign of the sum, and the mean of those that have it."""
    terms = np.stack([w * delta for w, delta in zip(weights, deltas, strict=True)])
    sign = np.where(terms.sum(0) >= 0, 1, -1)
    agrees = np.sign(terms) == sign
    total = (terms * agrees).sum(0)
    each = np.broadcast_to(np.reshape(weights, (-1,) + (1,) * deltas[0].ndim), terms.shape)
    count = (each * agrees).sum(0)
    return total / np.where(count == 0, 1, count) if is_mean else total


def narrow_differences(leaves: list[Any]) -> list[Any]:
    base, *tunes = wide(leaves)
    to = np.float64 if leaves[0].dtype == np.float64 else np.float32
    return [(tune - base).astype(to).astype(np.float64) for tune in tunes]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("density", [0.2, 1.0])
@pytest.mark.parametrize("normalize", [True, False])
def test_ties_trims_elects_and_takes_the_mean(dtype: Any, density: float, normalize: bool) -> None:
    leaves = models(4, dtype)
    leaves[2][0] = leaves[1][0]  # ties among elements
    weights = (1.0, 2.0, 1.0, 0.5)
    deltas = [trimmed(delta, density) for delta in narrow_differences(leaves)]
    mixed = elected(deltas, weights, is_mean=normalize)
    edit = Ties(
        at="params",
        with_=("a", "b", "c", "d"),
        density=density,
        scale=0.8,
        weights=weights,
        normalize=normalize,
    )
    check(edit, leaves, leaves[0].astype(np.float64) + 0.8 * mixed)


def test_breadcrumbs_drops_the_smallest_and_the_largest() -> None:
    leaves = models(2)
    count, top = 120, 6
    left = []
    for delta in narrow_differences(leaves):
        flat = delta.reshape(-1).copy()
        order = np.argsort(-abs(flat), kind="stable")
        flat[order[:top]] = 0
        flat[order[top + 60 :]] = 0
        left.append(flat.reshape(SHAPE))
    assert count == left[0].size
    base = leaves[0].astype(np.float64)
    edit = Breadcrumbs(at="params", with_=("a", "b"), density=0.5, outliers=0.05)
    check(edit, leaves, base + sum(left) / 2)
    edit = Breadcrumbs(at="params", with_=("a", "b"), density=0.5, outliers=0.05, consensus="ties")
    check(edit, leaves, base + elected(left, (1.0, 1.0)))


def test_dare_drops_at_random_what_the_seed_says_and_keeps_the_mean() -> None:
    rng = np.random.default_rng(0)
    base = np.zeros((400, 300), np.float32)
    tunes = [rng.normal(size=base.shape).astype(np.float32) for _ in range(2)]
    leaves = [base, *tunes]
    edit = Dare(at="params", with_=("a", "b"), density=0.25, normalize=False)
    found = merged(edit, leaves)
    for block in ((123, 300), (100, 77)):
        assert merged(edit, leaves, block=block).tobytes() == found.tobytes()
    alone = [merged(Dare(at="params", with_="a", density=0.25), [base, tune]) for tune in tunes]
    for left, tune in zip(alone, tunes, strict=True):
        is_left = left != 0
        assert abs(is_left.mean() - 0.25) < 0.01
        np.testing.assert_allclose(left[is_left], tune[is_left] * 4, rtol=1e-6)
    both = (alone[0] != 0) & (found - alone[0] != 0)
    assert abs(both.mean() - 0.25**2) < 0.01, "each member loses others"
    other = merged(Dare(at="params", with_="a", density=0.25, seed=1), leaves[:2])
    assert (other != alone[0]).any()


@pytest.mark.parametrize("axis", [None, 0])
@pytest.mark.parametrize("count", [2, 4])
def test_model_stock_goes_by_the_angle_between_what_was_learnt(axis: Any, count: int) -> None:
    leaves = models(count)
    leaves = [
        leaves[0],
        *(tune + np.float32(0.2) for tune in leaves[1:]),
    ]  # they agree on something
    base, *tunes = wide(leaves)
    cosines = []
    for one, other in combinations([tune - base for tune in tunes], 2):
        norms = [np.linalg.norm(x, axis=axis, keepdims=True) for x in (one, other)]
        cosines.append(np.sum(one * other, axis=axis, keepdims=True) / norms[0] / norms[1])
    cosine = np.mean(cosines, axis=0)
    cosine = np.maximum(cosine, 0)
    ratio = count * cosine / (1 + (count - 1) * cosine)
    wanted = ratio * np.mean(tunes, axis=0) + (1 - ratio) * base
    check(ModelStockMerge(at="params", with_=tuple("abcd"[:count]), axis=axis), leaves, wanted)


@pytest.mark.parametrize("spread", [0.01, 0.3, 1.5])
def test_the_karcher_mean_is_where_all_arcs_add_up_to_nothing(spread: float) -> None:
    leaves = models(3, np.float64, spread)
    weights = (1.0, 2.0, 1.0, 0.5)
    shares = np.array(weights) / sum(weights)
    found = merged(KarcherMean(at="params", with_=("a", "b", "c"), weights=weights), leaves)
    norms = [np.linalg.norm(leaf) for leaf in leaves]
    np.testing.assert_allclose(np.linalg.norm(found), shares @ norms, rtol=1e-9)
    mean = found / np.linalg.norm(found)
    total = np.zeros_like(mean)
    for share, leaf, norm in zip(shares, leaves, norms, strict=True):
        unit = leaf / norm
        rest = unit - np.sum(unit * mean) * mean
        total += (
            share
            * rest
            * (np.arctan2(np.linalg.norm(rest), np.sum(unit * mean)) / np.linalg.norm(rest))
        )
    assert np.linalg.norm(total) < 1e-7
    a, b = leaves[:2]
    half = merged(KarcherMean(at="params", with_="a"), [a, b])
    middle = arc(a.reshape(-1), b.reshape(-1) * np.linalg.norm(a) / np.linalg.norm(b), 0.5)
    wanted = middle * (norms[0] + norms[1]) / 2 / norms[0]
    np.testing.assert_allclose(half.reshape(-1), wanted, rtol=1e-6, atol=1e-9)


def test_what_has_no_mean_on_the_sphere_is_refused() -> None:
    base, _ = models(1)
    with pytest.raises(ValueRefusal, match="no mean on the sphere"):
        merged(KarcherMean(at="params", with_="a"), [base, -base])


@pytest.mark.parametrize("apart", [-1.0, -0.9, -0.1])
def test_model_stock_stays_where_fine_tunes_point_away_from_each_other(apart: float) -> None:
    base, tune = models(1)
    away = [base, base + tune, base + np.float32(apart) * tune]
    found = merged(ModelStockMerge(at="params", with_=("a", "b")), away)
    np.testing.assert_allclose(found, base, rtol=1e-6)


MERGES: list[Any] = [
    Average(at="params", with_="a"),
    Average(at="params", with_="a", weights=(1.0, 0.0)),
    Interpolate(at="params", with_="a", t=0.4),
    Interpolate(at="params", with_="a", t=0.0),
    Interpolate(at="params", with_="a", t=0.4, method="slerp"),
    Interpolate(at="params", with_="a", t=0.4, method="nuslerp"),
    TaskArithmetic(at="params", with_="a"),
    Ties(at="params", with_="a", density=0.5),
    Ties(at="params", with_="a", density=0.01),
    Ties(at="params", with_="a", density=1.0),
    Dare(at="params", with_="a", density=0.5),
    Dare(at="params", with_="a", density=0.001),
    Dare(at="params", with_="a", density=0.5, consensus="ties"),
    Breadcrumbs(at="params", with_="a", density=0.5),
    Breadcrumbs(at="params", with_="a", density=1.0),
    Breadcrumbs(at="params", with_="a", density=0.001, consensus="ties"),
    KarcherMean(at="params", with_="a"),
    ModelStockMerge(at="params", with_=("a", "b")),
]


def test_every_merge_is_tried_with_what_is_no_number() -> None:
    of_runs = ("ema", "swa")
    assert {edit.name for edit in MERGES} == {*NAMES} - {*of_runs}
    for edit in (Ema(at="params", steps="100..300", decay=0.8), Swa(at="params", steps="100..300")):
        leaves, scene, draft = run_of([100, 200, 300], 300)
        leaves[0][3, 4] = np.nan
        assert np.isnan(over_steps(edit, scene, draft, leaves[2])[3, 4])


@pytest.mark.parametrize("edit", MERGES, ids=lambda edit: edit.name)
@pytest.mark.parametrize("hole", [np.nan, np.inf])
@pytest.mark.parametrize("is_own", [False, True])
def test_what_is_no_number_is_not_lost(edit: Any, hole: float, is_own: bool) -> None:
    """In whichever member it stands, it comes out, or the merge is refused; it never becomes a number.

    But for an infinite difference that `breadcrumbs` leaves out as one of the largest, which is what it is for.
    """
    leaves = models(len((edit.with_,) if isinstance(edit.with_, str) else edit.with_))
    leaves[0 if is_own else 1][3, 4] = hole
    try:
        found = merged(edit, leaves)
    except ValueRefusal:
        return
    is_left_out = edit.name == "breadcrumbs" and hole == np.inf and not is_own
    assert is_left_out or not np.isfinite(found[3, 4])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("edit", MERGES, ids=lambda edit: edit.name)
@pytest.mark.parametrize("exponent", [-1000, -660, -532, -510, -300, 300, 510, 532, 660, 1000])
def test_members_of_any_size_merge_as_usual_ones_do_or_are_refused(
    edit: Any, exponent: int
) -> None:
    """Squares of float64 below 2⁻⁵¹¹ vanish, and those above 2⁵¹¹ are infinite; times a power of two all else stays."""
    leaves = models(len((edit.with_,) if isinstance(edit.with_, str) else edit.with_), np.float64)
    wanted = np.ldexp(merged(edit, leaves), exponent)
    for block in (None, (5, 10)):
        try:
            found = merged(edit, [np.ldexp(leaf, exponent) for leaf in leaves], block=block)
        except ValueRefusal:
            if abs(exponent) < 400:
                raise
            continue
        np.testing.assert_allclose(found, wanted, rtol=1e-9)


KEPT_BY_MERGEKIT = [
    (1, 0.01, 0, 1),
    (2, 0.2, 0, 1),
    (2, 0.75, 2, 1),
    (5, 0.5, 3, 2),
    (10, 0.25, 2, 2),
    (100, 0.29, 29, 28),
    (120, 0.2, 24, 24),
    (199, 0.995, 198, 198),
]
"""Elements, density, what is left here, and of it by `mergekit.sparsify.magnitude` (mergekit 0.1, see `ties`)."""


@pytest.mark.parametrize(("size", "density", "left", "by_mergekit"), KEPT_BY_MERGEKIT)
def test_ties_leaves_the_nearest_number_of_elements(
    size: int, density: float, left: int, by_mergekit: int
) -> None:
    tune = np.arange(1, size + 1, dtype=np.float32)
    found = merged(Ties(at="params", with_="a", density=density), [np.zeros_like(tune), tune])
    assert (found != 0).sum() == left
    assert abs(left - density * size) <= 0.5 + 1e-9
    assert abs(left - by_mergekit) <= 1


@pytest.mark.parametrize("density", [0.25, 0.5, 0.75])
def test_an_even_number_is_dropped_where_the_share_ends_in_a_half(density: float) -> None:
    """Judged by NumPy's `rint`, which rounds halves so."""
    edits = (
        Ties(at="params", with_="a", density=density),
        Breadcrumbs(at="params", with_="a", density=density, outliers=0.0),
    )
    for size in range(1, 17):
        tune = np.arange(1, size + 1, dtype=np.float32)
        left = size - np.rint((1 - density) * size)
        for edit in edits:
            found = merged(edit, [np.zeros_like(tune), tune])
            assert (found != 0).sum() == left, (edit.name, size)
        pruned = merged(Prune(at="params", sparsity=1 - density), [tune])
        assert (pruned != 0).sum() == left, size


@pytest.mark.parametrize("kind", [Ties, Dare, Breadcrumbs])
def test_a_density_that_leaves_nothing_of_a_leaf_says_so_grouped(kind: Any) -> None:
    leaves = {f"params/l_{n}/b": np.ones(2, np.float32) for n in range(9)}
    leaves |= {"params/w": np.ones((8, 8), np.float32), "params/z": np.ones((0, 2), np.float32)}
    other = {path: 2 * leaf for path, leaf in leaves.items()}
    scene, draft = scene_of(leaves, {"a": other}), draft_of(leaves)

    def notes(**fields: Any) -> list[str]:
        after = rewritten(kind(at="params", with_="a", **fields), draft, scene)
        return [str(note) for note in after.notes if "rounds to none" in str(note)]

    (note,) = notes(density=0.2)
    assert note.startswith("of 'params/l_{0..8}/b', ")
    assert "`density: 0.2` rounds to none of their elements" in note
    assert not notes(density=0.5, except_="params/l_*")
    assert not notes(density=1.0)


def run_of(steps: list[int], last: int) -> tuple[list[Any], Any, Any]:
    """The leaves of a run's steps, the scene in which one of them is edited, and its draft."""
    rng = np.random.default_rng(len(steps))
    leaves = [rng.normal(size=SHAPE).astype(np.float32) for _ in steps]
    others = {f"at{step}": {AT: leaf} for step, leaf in zip(steps, leaves, strict=True)}
    own = others[f"at{last}"]
    scene = scene_of(own, others)
    source: Any = scene.source
    source.address, source.places = f"at{last}", frozenset({f"at{last}"})
    source.step, source.steps = last, {step: f"at{step}" for step in steps}
    return leaves, scene, draft_of(own)


def over_steps(edit: Operation, scene: Any, draft: Any, leaf: Any) -> Any:
    recipe = rewritten(edit, draft, scene).leaves[path_of(AT)].recipe
    return computed(recipe, {path_of(AT): leaf}, scene=scene)


@pytest.mark.parametrize("last", [100, 400, 500])
def test_a_moving_average_is_what_training_would_have_kept(last: int) -> None:
    leaves, scene, draft = run_of([100, 200, 300, 400, 500], last)
    own = leaves[last // 100 - 1]
    average = leaves[0].astype(np.float64)
    for leaf in leaves[1:]:
        average = 0.8 * average + 0.2 * leaf.astype(np.float64)
    found = over_steps(Ema(at="params", steps="100..500", decay=0.8), scene, draft, own)
    np.testing.assert_allclose(found, average, rtol=1e-7, atol=1e-8)
    found = over_steps(Swa(at="params", steps="100..500"), scene, draft, own)
    mean = np.mean(leaves, axis=0, dtype=np.float64)
    np.testing.assert_allclose(found, mean, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("sigma", [0.02, 0.1, 0.25])
def test_a_power_function_average_has_the_width_that_is_asked_for(sigma: float) -> None:
    """Of 2000 steps of training the one of every tenth; held against all of them, as Karras et al. define it."""
    gamma = max(np.roots([1, 7, 16 - sigma**-2, 12 - sigma**-2]).real)
    time = np.arange(1, 2001)
    profile = time**gamma / np.sum(time**gamma)
    values = np.sin(time / 150) + time / 500
    weights = powers(list(range(10, 2001, 10)), exponent(sigma))
    np.testing.assert_allclose(exponent(sigma), gamma, rtol=1e-9)
    np.testing.assert_allclose(np.dot(weights, values[9::10]), profile @ values, rtol=3e-3)


@pytest.mark.parametrize("edit", [Ties, Dare, Breadcrumbs])
def test_weights_below_0_are_not_divided_by_their_sum(edit: Any) -> None:
    """That sum would turn the differences round: one fine-tune that is to be unlearnt would be learnt."""
    rng = np.random.default_rng(0)
    base, tune = ({"params/w": rng.normal(size=8)} for _ in range(2))
    at = {"at": "params", "with_": "a", "density": 1.0, "weights": (-1.0,)}
    with pytest.raises(PlanError, match="a weight is below 0") as caught:
        merged_all(edit(**at), [base, tune])
    assert "normalize: false" in str(caught.value.problems[0].fix)
    made = merged_all(edit(**at, normalize=False), [base, tune])["params/w"]
    np.testing.assert_allclose(made, 2 * base["params/w"] - tune["params/w"], rtol=1e-12)


def test_a_mean_over_steps_goes_on_from_one_of_them() -> None:
    leaves, scene, draft = run_of([100, 200, 300], 100)
    with pytest.raises(PlanError, match=r"step 100, the source, is none of 200\.\.300") as caught:
        over_steps(Swa(at="params", steps="200..300"), scene, draft, leaves[0])
    assert "@300" in caught.value.problems[0].fix


@pytest.mark.parametrize(
    ("edit", "is_refused"),
    [
        (TaskArithmetic(at="params", with_="a", weights=(-1.0,)), True),
        (Ties(at="params", with_="a", density=0.5), True),
        (Dare(at="params", with_="a", density=0.5), True),
        (Interpolate(at="params", with_="a", t=1.5), True),
        (Interpolate(at="params", with_="a", t=0.5, method="slerp"), False),
        (KarcherMean(at="params", with_="a"), False),
    ],
    ids=lambda edit: getattr(edit, "name", ""),
)
def test_no_merge_makes_a_variance_negative(edit: Any, is_refused: bool) -> None:
    rng = np.random.default_rng(0)
    names = ("params/bn/mean", "params/bn/var")
    members = [{name: rng.uniform(0.1, 4, 6) for name in names} for _ in range(2)]
    if is_refused:
        with pytest.raises(PlanError, match="could make 'params/bn/var' negative") as caught:
            merged_all(edit, members)
        assert "leave them out with" in str(caught.value.problems[0].fix)
    else:
        assert (merged_all(edit, members)["params/bn/var"] >= 0).all()
