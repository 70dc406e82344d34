"""How far two leaves are apart, compared part by part, is what NumPy says of the whole leaves."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from surgery_cli.engine import grid
from surgery_cli.engine.bounded_reads import pair_reading
from surgery_cli.proof.values import ValueDifference, value_difference
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec, TreeSpec

RANDOM = np.random.default_rng(3)
LEAF = LeafPath(("w",))


class InMemory:
    def __init__(self, values: np.ndarray) -> None:
        self.values = values
        spec = LeafSpec(kind=LeafKind.ARRAY, shape=values.shape, dtype=values.dtype.name)
        self.tree = TreeSpec({LEAF: spec})

    def read(self, path: LeafPath, window: Any = None) -> np.ndarray:
        return self.values if window is None else self.values[window]


def _between(a: np.ndarray, b: np.ndarray, **tolerances: float) -> ValueDifference | None:
    left, right = InMemory(a), InMemory(b)
    given = {"rtol": 0.0, "atol": 0.0} | tolerances
    reading = pair_reading(left.tree[LEAF], right.tree[LEAF], 1 << 30)
    return value_difference(LEAF, left, right, reading, **given)


@pytest.mark.parametrize("block_bytes", [1 << 24, 1 << 18])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "complex64"])
def test_the_distance_is_that_of_the_whole_leaves(
    dtype: str, block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grid.block_shape, "__defaults__", (block_bytes,))
    a = (100 * RANDOM.standard_normal((300, 700))).astype(np.dtype(dtype))
    b = a.copy()
    changed = RANDOM.random(a.shape) < 0.01
    b[changed] = (3 * b[changed]).astype(a.dtype)
    found = _between(a, b)

    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    distance = np.abs(a.astype(wide) - b.astype(wide))
    assert found is not None
    assert found.differing == np.count_nonzero(distance)
    assert found.max_abs == distance.max()
    assert found.where is not None
    assert found.where == np.unravel_index(np.argmax(distance), a.shape)
    assert (found.a, found.b) == (str(a[found.where]), str(b[found.where]))


def test_one_element_that_differs_is_found_wherever_it_stands() -> None:
    a = np.zeros((3, 50_000), np.float32)
    for place in ((0, 0), (1, 20_000), (2, 49_999)):
        b = a.copy()
        b[place] = 1.0
        found = _between(a, b)
        assert found is not None
        assert (found.where, found.differing, found.max_abs) == (place, 1, 1.0)


def test_nan_equals_nan_and_is_as_far_as_can_be_from_a_number() -> None:
    a = np.full(200_000, np.nan, ml_dtypes.bfloat16)
    assert _between(a, a.copy()) is None
    b = a.copy()
    b[150_000] = 1.0
    found = _between(a, b)
    assert found is not None
    assert (found.where, found.max_abs, found.max_rel) == ((150_000,), np.inf, np.inf)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16, np.complex64])
def test_relative_and_absolute_differences_are_never_0_beside_a_difference(dtype: type) -> None:
    odd = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 1e-40, -3.0], dtype)
    a, b = (side.ravel().copy() for side in np.meshgrid(odd, odd))
    for x, y in zip(a, b, strict=True):
        found = _between(np.array([x]), np.array([y]))
        is_same = x == y or (np.isnan(x) and np.isnan(y))
        assert (found is None) == is_same, (x, y)
        if found is not None:
            assert found.max_abs > 0, (x, y)
            assert found.max_rel > 0, (x, y)
            if np.isnan(x) or np.isnan(y):
                assert found.max_rel == np.inf


def test_values_within_the_tolerances_agree() -> None:
    a = np.full(100_000, 2.0, np.float32)
    b = a.copy()
    b[70_000] = 2.5
    assert _between(a, b, atol=0.5) is None
    assert _between(a, b, rtol=0.2) is None
    assert _between(a, b, atol=0.4) is not None


def test_a_number_without_axes_is_compared() -> None:
    found = _between(np.array(1, np.int32), np.array(3, np.int32))
    assert found is not None
    assert (found.where, found.max_abs) == ((), 2.0)


def test_an_infinity_is_infinitely_far_from_a_number() -> None:
    found = _between(np.float32([1, np.inf, 3]), np.float32([1, 2, 3]))
    assert found is not None
    assert (found.max_abs, found.max_rel, found.where) == (np.inf, np.inf, (1,))


@pytest.mark.filterwarnings("error")
def test_a_signaling_nan_is_a_difference_without_a_warning() -> None:
    damaged = np.array([0x7FA00000, 0x3F800000], np.uint32).view(np.float32)
    found = _between(damaged, np.ones(2, np.float32))
    assert found is not None
    assert (found.a, found.differing) == ("nan", 1)
