"""Values are copied into C order bit for bit, however their elements stand."""

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from surgery_cli.compute.c_order import in_c_order, put

DTYPES = [np.int8, ml_dtypes.bfloat16, np.float32, np.float64, np.complex128]


def leaf(shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """Any bits there are, NaN of every kind among them."""
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.random.default_rng(count).integers(0, 256, count, np.uint8).view(dtype).reshape(shape)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_any_order_of_axes(dtype: Any) -> None:
    for shape in ((300, 70), (7, 40, 90), (1, 130, 2, 80), (5, 1, 2, 3, 900)):
        values = leaf(shape, dtype)
        for axes in itertools.permutations(range(len(shape))):
            found = in_c_order(values.transpose(axes))
            assert found.flags.c_contiguous
            assert found.tobytes() == values.transpose(axes).tobytes()


@pytest.mark.parametrize(
    "values",
    [
        np.arange(50_000.0).reshape(200, 250)[::-1, ::-3].T,
        np.broadcast_to(np.arange(300.0)[:, None], (300, 400)).T,
        np.asfortranarray(np.ones((0, 5))),
        np.float32(3).reshape(()),
    ],
    ids=["backwards", "repeated", "nothing", "one"],
)
def test_other_views(values: np.ndarray[Any, Any]) -> None:
    np.testing.assert_array_equal(in_c_order(values), values, strict=True)


def test_what_is_in_c_order_is_not_copied() -> None:
    values = np.ones((3, 4))
    assert in_c_order(values) is values


@pytest.mark.parametrize(
    "place",
    [(slice(10, 150), slice(3, 393)), (slice(0, 200), [7, 3, 399])],
    ids=["a window", "numbers"],
)
def test_a_part_is_put_where_it_belongs(place: tuple[Any, ...]) -> None:
    values, expected = np.zeros((200, 400)), np.zeros((200, 400))
    part = np.random.default_rng(0).normal(size=expected[place].shape[::-1]).T
    put(values, place, part)
    expected[place] = part
    np.testing.assert_array_equal(values, expected)
