"""Set: one number becomes another, exactly."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from surgery_cli.errors import PlanError
from surgery_cli.operations.set import Set
from surgery_cli.tree.specs import LeafKind
from tests.operations.value_edits import edited, spec_of


@pytest.mark.parametrize(
    ("before", "to"),
    [
        (np.int32(7), 0),
        (np.int32(7), 2**31 - 1),
        (np.int64(7), 2**63 - 1),
        (np.int64(7), -(2**53) - 1),
        (np.uint32(7), 2**32 - 1),
        (np.uint64(7), 2**64 - 1),
        (np.zeros((1, 1), np.int8), -128),
        (np.int32(7), 3.0),
    ],
)
def test_integers_are_held_exactly(before: Any, to: float) -> None:
    array = np.asarray(before)
    after = edited(Set(to=to), array)
    assert after.dtype == array.dtype
    assert after.shape == array.shape
    assert int(after.reshape(())) == int(to)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_floating_numbers_are_rounded_once(dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    after = edited(Set(to=0.1), np.zeros((), kind))
    assert after == np.asarray(0.1, np.float64).astype(kind)


def test_flags_take_truth_values() -> None:
    assert bool(edited(Set(to=True), np.zeros((), bool)))
    assert not bool(edited(Set(to=False), np.ones((1,), bool))[0])


@pytest.mark.parametrize(
    ("array", "to", "message"),
    [
        (np.zeros(2, np.float32), 0, "set does not apply to float32.2."),
        (np.zeros((), np.int32), 0.5, "to: 0.5` does not fit int32"),
        (np.zeros((), np.int32), 2**31, "does not fit int32"),
        (np.zeros((), np.uint8), -1, "does not fit uint8"),
        (np.zeros((), np.float16), 1e5, "does not fit float16"),
        (np.zeros((), np.float32), float("nan"), "`to` is nan"),
        (np.zeros((), bool), 1, "`to: 1` does not fit bool"),
        (np.zeros((), np.int32), True, "`to: true` does not fit int32"),
        (np.zeros((), np.complex64), 1, "neither an integer nor a floating"),
    ],
)
def test_what_a_leaf_cannot_hold_is_refused(array: Any, to: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        Set(to=to).output(spec_of(array))


@pytest.mark.parametrize("kind", [LeafKind.KEY, LeafKind.STRING, LeafKind.EMPTY])
def test_only_numbers_are_set(kind: LeafKind) -> None:
    with pytest.raises(PlanError, match="set does not apply"):
        Set(to=0).output(spec_of(np.zeros((1,), np.uint32), kind=kind))
