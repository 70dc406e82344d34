"""Normalize: every norm against NumPy's own, whatever the blocks, and what zeros and NaN do."""

import math

import ml_dtypes
import numpy as np
import pytest

from surgery_cli.draft.slots import Slot
from surgery_cli.engine.composition import Composition
from surgery_cli.errors import PlanError, Problem, ValueRefusal
from surgery_cli.operations.base import LeafOperation
from surgery_cli.operations.normalize import Normalize, NormFactor
from surgery_cli.operations.replace import Replace
from surgery_cli.operations.rescale import Rescale
from surgery_cli.tree.paths import LeafPath
from tests.operations.value_edits import ArrayScene, edited, followed, made, rule, spec_of

PARAM = LeafPath(("params", "Dense_0", "kernel"))
KERNEL = np.random.default_rng(0).normal(size=(3, 4, 6)).astype(np.float32)

NORMS = {
    "l1": lambda x, axis: np.abs(x).sum(axis, keepdims=True),
    "l2": lambda x, axis: np.sqrt((x**2).sum(axis, keepdims=True)),
    "max": lambda x, axis: np.abs(x).max(axis, keepdims=True),
    "rms": lambda x, axis: np.sqrt((x**2).mean(axis, keepdims=True)),
}


@pytest.mark.parametrize("block", [None, (1, 4, 6), (2, 3, 4), (1, 1, 1)])
@pytest.mark.parametrize("axis", [None, 0, (0, 1), (-1,), (0, 2)])
@pytest.mark.parametrize("norm", ["l1", "l2", "max", "rms"])
def test_the_leaf_is_divided_by_its_norm(norm: str, axis: object, block: tuple | None) -> None:
    wide = KERNEL.astype(np.float64)
    axes = tuple(range(3)) if axis is None else axis
    expected = wide / NORMS[norm](wide, axes)
    result = edited(Normalize(norm=norm, axis=axis), KERNEL, block=block)
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_the_default_is_division_by_the_norm_of_the_flattened_kernel() -> None:
    kernel = KERNEL.reshape(12, 6)
    np.testing.assert_allclose(
        edited(Normalize(), kernel), kernel / np.linalg.norm(kernel), rtol=1e-6
    )


@pytest.mark.parametrize("norm", ["l1", "l2", "max", "rms"])
def test_a_leaf_without_axes_becomes_its_sign(norm: str) -> None:
    assert float(edited(Normalize(norm=norm), np.array(-3.0, np.float32))) == -1.0


def test_another_norm_can_be_reached() -> None:
    assert np.linalg.norm(edited(Normalize(to=2.5), KERNEL)) == pytest.approx(2.5, rel=1e-6)


def test_the_spectral_norm_is_the_largest_singular_value_over_the_last_axis() -> None:
    result = edited(Normalize(norm="spectral", to=3.0), KERNEL)
    singular = np.linalg.svd(result.reshape(12, 6), compute_uv=False)
    assert singular[0] == pytest.approx(3.0, rel=1e-6)


@pytest.mark.parametrize("axis", [(0, 1), (2, 0), (-2, -1)])
def test_the_spectral_norm_over_two_axes_is_taken_for_each_matrix(axis: tuple[int, int]) -> None:
    result = edited(Normalize(norm="spectral", axis=axis), KERNEL)
    matrices = np.moveaxis(result, axis, (-2, -1))
    np.testing.assert_allclose(np.linalg.norm(matrices, 2, axis=(-2, -1)), 1.0, rtol=1e-6)


def test_only_the_spectral_norm_needs_the_whole_leaf() -> None:
    assert Composition(made(Normalize(norm="spectral"), KERNEL)).is_whole
    assert not Composition(made(Normalize(norm="rms"), KERNEL)).is_whole


@pytest.mark.parametrize("norm", ["l1", "l2", "rms", "spectral"])
@pytest.mark.parametrize(
    ("dtype", "size"),
    [(np.float32, 3e38), (np.float32, 1e-40), (np.float64, 1e200), (np.float64, 1e-200)],
)
def test_squares_of_very_large_and_very_small_values_do_not_leave_the_range(
    norm: str, dtype: type, size: float
) -> None:
    leaf = np.full((4, 4), size, dtype)
    expected = {"l1": 1 / 16, "l2": 1 / 4, "rms": 1.0, "spectral": 1 / 4}[norm]
    result = edited(Normalize(norm=norm), leaf, block=None if norm == "spectral" else (3, 2))
    np.testing.assert_allclose(result, expected, rtol=1e-5)


def test_a_long_float16_leaf_is_measured_in_float64() -> None:
    leaf = np.full((70_000,), 30.0, np.float16)
    result = edited(Normalize(norm="l1", to=70_000.0), leaf, block=(10_000,))
    np.testing.assert_array_equal(result, np.ones(70_000, np.float16))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64, np.complex64])
def test_the_dtype_stays(dtype: type) -> None:
    leaf = KERNEL.astype(dtype)
    wide = leaf.astype(np.complex128 if dtype is np.complex64 else np.float64)
    expected = (wide / np.sqrt((abs(wide) ** 2).sum())).astype(dtype)
    result = edited(Normalize(), leaf)
    tolerance = {2: 8e-3, 8: 1e-6}[np.dtype(dtype).itemsize]
    np.testing.assert_allclose(
        result.astype(wide.dtype), expected.astype(wide.dtype), rtol=tolerance
    )


@pytest.mark.parametrize("norm", ["l1", "l2", "max", "rms", "spectral"])
def test_a_zero_norm_is_refused_by_name(norm: str) -> None:
    with pytest.raises(
        ValueRefusal, match="'params/Dense_0/kernel' cannot be normalized"
    ) as caught:
        edited(Normalize(norm=norm), np.zeros((3, 3), np.float32))
    assert "is 0" in str(caught.value)
    assert caught.value.exit_code == 1


def test_zero_slices_are_counted_or_kept() -> None:
    leaf = KERNEL.copy()
    leaf[:, :, 2:4] = 0
    with pytest.raises(ValueRefusal, match="cannot be normalized") as caught:
        edited(Normalize(axis=(0, 1)), leaf)
    assert "2 of its 6 l2 norms are 0" in str(caught.value)
    kept = edited(Normalize(axis=(0, 1), on_zero="keep"), leaf)
    np.testing.assert_array_equal(kept[:, :, 2:4], 0)
    np.testing.assert_allclose(np.linalg.norm(kept[:, :, 0]), 1.0, rtol=1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("norm", ["l1", "l2", "max", "rms", "spectral"])
def test_a_norm_that_is_not_finite_is_refused(norm: str, bad: float) -> None:
    leaf = KERNEL.reshape(12, 6).copy()
    leaf[1, 1] = bad
    with pytest.raises(ValueRefusal, match="cannot be normalized") as caught:
        edited(Normalize(norm=norm, on_zero="keep"), leaf)
    assert "not finite" in str(caught.value)


@pytest.mark.parametrize(
    ("edit", "field"),
    [
        (Normalize(to=0.0), "to"),
        (Normalize(to=math.nan), "to"),
        (Normalize(axis=3), "axis"),
        (Normalize(axis=(0, 0)), "axis"),
        (Normalize(axis=(0, -3)), "axis"),
        (Normalize(axis=()), "axis"),
        (Normalize(norm="spectral", axis=0), "norm"),
        (Normalize(norm="spectral", axis=(0, 1, 2)), "norm"),
    ],
)
def test_settings_that_do_not_fit_are_refused_before_values_are_read(
    edit: Normalize, field: str
) -> None:
    with pytest.raises(PlanError) as caught:
        made(edit, spec_of(KERNEL), PARAM, ArrayScene())
    assert caught.value.problems[0].field == field


def test_a_vector_has_no_spectral_norm_and_an_empty_leaf_none_at_all() -> None:
    with pytest.raises(PlanError, match="no matrix"):
        made(Normalize(norm="spectral"), spec_of(np.ones(3, np.float32)), PARAM, ArrayScene())
    empty = spec_of(np.ones((0, 3), np.float32))
    with pytest.raises(PlanError, match="no norm"):
        made(Normalize(), empty, PARAM, ArrayScene())
    assert Normalize(on_zero="keep").leaves_alone(empty)


def slot(power: int | None, relation: str = "same") -> Slot:
    path = LeafPath(("opt_state", "nu"))
    return Slot(path=path, param=PARAM, name="nu", power=power, is_even=True, relation=relation)


@pytest.mark.parametrize("norm", ["l1", "l2", "max", "rms", "spectral"])
@pytest.mark.parametrize("power", [-2, -1, 1])
def test_a_twin_takes_the_power_of_the_factor_measured_on_its_param(norm: str, power: int) -> None:
    param = KERNEL.reshape(12, 6)
    twin = np.abs(param) + 1
    wide = param.astype(np.float64)
    size = np.linalg.norm(wide, 2) if norm == "spectral" else NORMS[norm](wide, (0, 1)).item()
    np.testing.assert_allclose(
        followed(Normalize(norm=norm, to=2.0), slot(power), twin, param),
        twin * (2.0 / size) ** power,
        rtol=1e-6,
    )


def test_a_twin_follows_a_norm_over_axes_slice_by_slice_and_stacked_too() -> None:
    twin = np.stack([KERNEL, KERNEL * 2])
    factor = 1 / np.sqrt((KERNEL.astype(np.float64) ** 2).sum((0, 1), keepdims=True))
    np.testing.assert_allclose(
        followed(Normalize(axis=(0, 1)), slot(-1, "stacked"), twin, KERNEL),
        twin / factor,
        rtol=1e-6,
    )


def test_a_twin_of_another_shape_follows_one_number_only() -> None:
    rows = np.arange(1, 4, dtype=np.float32)
    size = np.linalg.norm(KERNEL.astype(np.float64).ravel())
    np.testing.assert_allclose(
        followed(Normalize(), slot(-2, "factored"), rows, KERNEL), rows * size**2, rtol=1e-6
    )
    assert rule(Normalize(axis=0), slot(-2, "factored")) is None
    assert rule(Normalize(), slot(None)) is None
    assert rule(Normalize(), slot(0)) == ()


def refusal(edit: LeafOperation, shape: tuple[int, ...] = (2, 3)) -> Problem:
    with pytest.raises(PlanError) as caught:
        made(edit, spec_of(np.zeros(shape, np.float32)), PARAM, ArrayScene())
    return caught.value.problems[0]


@pytest.mark.parametrize(
    ("edit", "fix"),
    [
        (Normalize(axis=5), "leave leaves without them out with `except`"),
        (Normalize(axis=(0, 0)), "name every axis once"),
        (Normalize(to=float("inf")), "write a number, such as `to: 1.0`"),
        (Normalize(to=0.0), "write a number above 0"),
        (Rescale(by=float("inf")), "write a number, such as `by: 1.0`"),
        (Replace(with_=float("nan")), "write a number, such as `with: 1.0`"),
        (Replace(with_=1e39), "cast the leaf first to a wider dtype"),
    ],
)
def test_settings_that_no_leaf_can_take_come_with_a_remedy(edit: LeafOperation, fix: str) -> None:
    assert fix in refusal(edit).fix


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (2, 0, 3)])
def test_the_spectral_norm_of_a_leaf_without_elements_takes_no_memory(
    shape: tuple[int, ...],
) -> None:
    empty = spec_of(np.ones(shape, np.float32))
    assert NormFactor("spectral", 1.0).temporary_bytes(empty) == 0
