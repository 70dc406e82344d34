"""What reset and warm put into a slot, whatever the blocks and the dtype."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from surgery_cli.compute.kits import open_kit
from surgery_cli.errors import ValueRefusal
from surgery_cli.operations.slot_steps import FillFresh, FillMean
from tests.operations.value_edits import edited

SQUARES = (np.random.default_rng(0).normal(size=(6, 4)) ** 2).astype(np.float32)


@pytest.mark.parametrize("block", [None, (2, 4), (1, 3)])
def test_a_second_moment_becomes_its_mean_everywhere(block: tuple[int, ...] | None) -> None:
    result = edited(FillMean(), SQUARES, block=block)
    expected = np.full((6, 4), SQUARES.astype(np.float64).mean(), np.float32)
    np.testing.assert_array_max_ulp(result, expected, 1)


def test_the_mean_of_narrow_squares_is_taken_wide() -> None:
    tiny = np.full(4096, 3e-5, ml_dtypes.bfloat16)
    result = edited(FillMean(), tiny)
    assert result.dtype == ml_dtypes.bfloat16
    assert (result == tiny[0]).all()


@pytest.mark.parametrize("value", [0.0, 0.1, 1e-8])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float64])
def test_a_fresh_value_fills_the_slot(value: float, dtype: type) -> None:
    result = edited(FillFresh(value=value), SQUARES.astype(dtype))
    np.testing.assert_array_equal(result, np.full((6, 4), value, dtype))


def test_a_fresh_value_overwrites_what_is_not_finite() -> None:
    broken = np.array([np.nan, np.inf, 1.0], np.float32)
    np.testing.assert_array_equal(edited(FillFresh(value=0.0), broken), np.zeros(3, np.float32))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_mean_that_is_not_finite_is_refused_in_favour_of_a_reset(bad: float) -> None:
    with pytest.raises(ValueRefusal, match="no mean") as caught:
        edited(FillMean(), np.array([1.0, bad], np.float32))
    assert "reset" in str(caught.value)


def test_devices_give_the_same_mean() -> None:
    kit = open_kit("cpu")
    np.testing.assert_array_max_ulp(
        edited(FillMean(), SQUARES, kit=kit, block=(2, 4)), edited(FillMean(), SQUARES), 1
    )
    np.testing.assert_array_equal(
        edited(FillFresh(value=0.1), SQUARES, kit=kit), np.full((6, 4), 0.1, np.float32)
    )


def test_a_slot_without_axes_keeps_its_number_as_its_mean() -> None:
    assert float(edited(FillMean(), np.array(0.25, np.float32))) == 0.25
