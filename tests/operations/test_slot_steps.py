"""What reset and warm put into a slot, whatever the blocks and the dtype."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from surgery_cli.compute.kits import open_kit
from surgery_cli.draft.kernel import Kit
from surgery_cli.draft.slots import Slot
from surgery_cli.errors import ValueRefusal
from surgery_cli.optimizer.follow.initial_values import refilled
from surgery_cli.optimizer.follow.transform import at_mean
from tests.operations.value_edits import KERNEL, computed, draft_of, stored

SQUARES = (np.random.default_rng(0).normal(size=(6, 4)) ** 2).astype(np.float32)
NU = Slot(path=KERNEL, param=KERNEL, name="nu", power=-2, is_even=True)


def at_its_mean(array: Any, *, block: tuple[int, ...] | None = None, kit: Kit | None = None) -> Any:
    (change,) = at_mean(NU, stored(array))
    return computed(change.recipe, {KERNEL: array}, block=block, kit=kit)


def filled(array: Any, value: float, kit: Kit | None = None) -> Any:
    return computed(refilled(draft_of({str(KERNEL): array}), KERNEL, value).recipe, {}, kit=kit)


@pytest.mark.parametrize("block", [None, (2, 4), (1, 3)])
def test_a_second_moment_becomes_its_mean_everywhere(block: tuple[int, ...] | None) -> None:
    expected = np.full((6, 4), SQUARES.astype(np.float64).mean(), np.float32)
    np.testing.assert_array_max_ulp(at_its_mean(SQUARES, block=block), expected, 1)


def test_the_mean_of_narrow_squares_is_taken_wide() -> None:
    tiny = np.full(4096, 3e-5, ml_dtypes.bfloat16)
    result = at_its_mean(tiny)
    assert result.dtype == ml_dtypes.bfloat16
    assert (result == tiny[0]).all()


@pytest.mark.parametrize("value", [0.0, 0.1, 1e-8])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float64])
def test_a_fresh_value_fills_the_slot(value: float, dtype: type) -> None:
    result = filled(SQUARES.astype(dtype), value)
    np.testing.assert_array_equal(result, np.full((6, 4), value, dtype))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_mean_that_is_not_finite_is_refused_in_favour_of_a_reset(bad: float) -> None:
    with pytest.raises(ValueRefusal, match="no mean") as caught:
        at_its_mean(np.array([1.0, bad], np.float32))
    assert "reset" in str(caught.value)


def test_devices_give_the_same_mean() -> None:
    kit = open_kit("cpu")
    np.testing.assert_array_max_ulp(
        at_its_mean(SQUARES, kit=kit, block=(2, 4)), at_its_mean(SQUARES), 1
    )
    np.testing.assert_array_equal(filled(SQUARES, 0.1, kit), np.full((6, 4), 0.1, np.float32))


def test_a_slot_without_axes_keeps_its_number_as_its_mean() -> None:
    assert at_mean(NU, stored(np.array(0.25, np.float32))) == ()
