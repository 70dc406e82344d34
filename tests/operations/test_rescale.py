"""Rescale: factors that are numbers or arrays, and what they mean for twins."""

from typing import Any

import ml_dtypes
import msgspec
import numpy as np
import pytest

from surgery_cli.draft.expression import Made, Stored
from surgery_cli.draft.slots import Slot
from surgery_cli.errors import MissingError, PlanError, ValueRefusal
from surgery_cli.operations.rescale import Rescale
from surgery_cli.tree.paths import LeafPath
from tests.operations.value_edits import (
    ArrayScene,
    ArraySource,
    edited,
    followed,
    made,
    rule,
    spec_of,
)

PARAM = LeafPath(("params", "Dense_0", "kernel"))
KERNEL = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)


def slot(power: int | None, *, even: bool = False, relation: str = "same") -> Slot:
    return Slot(
        path=LeafPath(("opt_state", "mu")),
        param=PARAM,
        name="mu",
        power=power,
        is_even=even,
        relation=relation,
    )


def test_a_number_multiplies_in_float32() -> None:
    np.testing.assert_array_equal(edited(Rescale(by=0.1), KERNEL), KERNEL * np.float32(0.1))


def test_a_factor_of_one_leaves_the_stored_leaf_as_it_is() -> None:
    assert isinstance(made(Rescale(by=1.0), KERNEL), Stored)
    assert isinstance(made(Rescale(by=-1.0), KERNEL), Made)


@pytest.mark.parametrize(
    ("by", "fields", "is_written"),
    [
        (-1.0, {"power": -2, "even": True}, False),
        (-1.0, {"power": -1}, True),
        (0.5, {"power": 0, "even": True}, False),
        (-0.5, {"power": 0}, True),
    ],
)
def test_a_slot_that_a_power_leaves_as_it_is_is_not_written(
    by: float, fields: dict[str, Any], is_written: bool
) -> None:
    (change,) = rule(Rescale(by=by), slot(**fields)) or ()
    assert isinstance(change.recipe, Made) is is_written
    arrays = ArrayScene(by=ArraySource({"": np.full((4,), by)}))
    (change,) = rule(Rescale(by="by"), slot(**fields), scene=arrays) or ()
    is_same = fields["power"] == 0 and "even" in fields
    second = msgspec.structs.replace(slot(**fields), is_second_moment=True)
    (change,) = rule(Rescale(by="by"), second, scene=arrays) or ()
    assert isinstance(change.recipe, Stored) is is_same


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
def test_narrow_floats_are_multiplied_in_float32_and_rounded_once(dtype: type) -> None:
    leaf = KERNEL.astype(dtype)
    expected = (leaf.astype(np.float32) * np.float32(0.3)).astype(dtype)
    np.testing.assert_array_equal(edited(Rescale(by=0.3), leaf), expected)


@pytest.mark.parametrize("dtype", [np.float64, np.complex64, np.complex128])
def test_wide_and_complex_leaves_keep_their_precision(dtype: type) -> None:
    leaf = KERNEL.astype(dtype) * dtype(1 + 1e-3)
    np.testing.assert_array_equal(edited(Rescale(by=0.3), leaf), leaf * dtype(0.3))


def test_a_factor_beyond_float32_still_gives_the_right_product() -> None:
    leaf = np.array([1e-20, 3e-10], np.float32)
    np.testing.assert_allclose(edited(Rescale(by=1e40), leaf), [1e20, 3e30], rtol=1e-6)


@pytest.mark.parametrize("shape", [(7,), (5, 1), (1, 7), (5, 7), (), (1, 1)])
@pytest.mark.parametrize("block", [None, (2, 3), (5, 4)])
def test_an_array_broadcasts_whatever_the_blocks(shape: tuple, block: tuple | None) -> None:
    scale = np.random.default_rng(1).normal(size=shape)
    scene = ArrayScene(scale__npy=ArraySource({"": scale}))
    result = edited(Rescale(by="scale.npy"), KERNEL, block=block, scene=scene)
    np.testing.assert_array_equal(result, (KERNEL.astype(np.float64) * scale).astype(np.float32))


@pytest.mark.parametrize("by", [0.5, 1e40])
def test_a_leaf_without_axes_is_rescaled(by: float) -> None:
    leaf = np.array(2e-20, np.float32)
    assert float(edited(Rescale(by=by), leaf)) == pytest.approx(2e-20 * by, rel=1e-6)


def test_an_entry_of_a_file_and_a_leaf_of_a_checkpoint_are_found() -> None:
    entry = ArraySource({"a/b": np.float32(2) * np.ones(7, np.float32), "c": np.zeros(7)})
    whole = ArraySource({"params/Dense_0/kernel": np.full((5, 7), 4.0), "params/x": np.zeros(3)})
    scene = ArrayScene(f__npz=entry, donor=whole)
    np.testing.assert_array_equal(edited(Rescale(by="f.npz:a/b"), KERNEL, scene=scene), KERNEL * 2)
    np.testing.assert_array_equal(edited(Rescale(by="donor"), KERNEL, scene=scene), KERNEL * 4)


def test_a_mask_of_booleans_is_a_factor() -> None:
    mask = KERNEL > 0
    scene = ArrayScene(mask__npy=ArraySource({"": mask}))
    result = edited(Rescale(by="mask.npy"), KERNEL, scene=scene)
    np.testing.assert_array_equal(result, np.where(mask, KERNEL, 0))


@pytest.mark.parametrize("shape", [(5,), (7, 1), (1, 5, 7), (2, 7)])
def test_an_array_that_does_not_broadcast_to_the_leaf_is_refused(shape: tuple) -> None:
    scene = ArrayScene(scale__npy=ArraySource({"": np.ones(shape)}))
    with pytest.raises(PlanError, match="does not broadcast") as caught:
        made(Rescale(by="scale.npy"), spec_of(KERNEL), PARAM, scene)
    assert str(list(shape)) in str(caught.value)
    assert "[5, 7]" in str(caught.value)


def test_an_entry_that_is_not_there_is_refused_with_the_nearest() -> None:
    scene = ArrayScene(f__npz=ArraySource({"scales": np.ones(7), "other": np.ones(7)}))
    with pytest.raises(PlanError, match="has no leaf 'scale'") as caught:
        made(Rescale(by="f.npz:scale"), spec_of(KERNEL), PARAM, scene)
    assert "'scales'" in str(caught.value)


def test_a_complex_factor_does_not_touch_a_real_leaf() -> None:
    scene = ArrayScene(scale__npy=ArraySource({"": np.ones(7, np.complex64)}))
    with pytest.raises(PlanError, match="no factor for float32"):
        made(Rescale(by="scale.npy"), spec_of(KERNEL), PARAM, scene)


@pytest.mark.parametrize("by", [float("nan"), float("inf"), -float("inf")])
def test_a_factor_that_is_not_finite_is_refused(by: float) -> None:
    with pytest.raises(PlanError, match="finite") as caught:
        made(Rescale(by=by), spec_of(KERNEL), PARAM, ArrayScene())
    assert caught.value.problems[0].field == "by"


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.bool_])
def test_integers_and_booleans_are_refused(dtype: type) -> None:
    with pytest.raises(PlanError, match="rescale does not apply"):
        made(Rescale(by=2.0), spec_of(np.ones(3, dtype)), PARAM, ArrayScene())


@pytest.mark.parametrize(
    ("by", "power", "even", "expected"),
    [
        (0.5, -1, False, 2.0),
        (-0.5, -1, False, -2.0),
        (-0.5, -2, True, 4.0),
        (0.5, 1, False, 0.5),
        (-3.0, 0, False, -1.0),
    ],
)
def test_a_twin_takes_the_power_of_the_factor_that_its_slot_has(
    by: float, power: int, even: bool, expected: float
) -> None:
    twin = KERNEL * 3
    np.testing.assert_array_equal(
        followed(Rescale(by=by), slot(power, even=even), twin, KERNEL), twin * np.float32(expected)
    )


@pytest.mark.parametrize(
    ("by", "power"), [(0.0, -1), (0.0, 1), (2.0, None), (1e-200, -2), (1e200, -2)]
)
def test_a_factor_without_a_power_has_no_rule(by: float, power: int | None) -> None:
    assert rule(Rescale(by=by), slot(power)) is None


def test_a_placeholder_and_a_hole_stay_as_they_are() -> None:
    assert rule(Rescale(by=0.5), slot(-2, relation="one")) == ()
    assert rule(Rescale(by=0.5), slot(-2, relation="hole")) == ()


@pytest.mark.parametrize(("power", "even"), [(-1, False), (-2, True), (1, False), (0, False)])
def test_a_twin_follows_an_array_element_by_element_and_restarts_where_it_is_zero(
    power: int, even: bool
) -> None:
    scale = np.array([0.5, -2.0, 0.0, 4.0, -1.0, 3.0, 1.0], np.float32)
    factor = np.array(
        [abs(s) ** power * (1 if even or s >= 0 else -1) if s else 0.0 for s in scale.tolist()]
    )
    scene = ArrayScene(scale__npy=ArraySource({"": scale}))
    result = followed(Rescale(by="scale.npy"), slot(power, even=even), KERNEL, KERNEL, scene=scene)
    np.testing.assert_allclose(result, KERNEL * factor, rtol=1e-6)


def test_squares_stay_where_an_array_is_zero() -> None:
    scale = np.array([0.5, 1, 0, 1, 1, 1, 1], np.float32)
    scene = ArrayScene(scale__npy=ArraySource({"": scale}))
    squares = msgspec.structs.replace(slot(-2, even=True), is_second_moment=True)
    result = followed(Rescale(by="scale.npy"), squares, abs(KERNEL), KERNEL, scene=scene)
    np.testing.assert_allclose(result, abs(KERNEL) * np.array([4, 1, 1, 1, 1, 1, 1]), rtol=1e-6)


def test_what_is_left_of_a_start_does_not_follow_and_bounds_what_it_may_be() -> None:
    grown = np.float32(0.1) + abs(KERNEL)
    sums = msgspec.structs.replace(slot(-2, even=True), start=0.1)
    np.testing.assert_allclose(
        followed(Rescale(by=0.5), sums, grown, KERNEL), 0.1 + 4 * abs(KERNEL), rtol=1e-5
    )
    with pytest.raises(ValueRefusal, match=r"cannot have 0\.1 of its start"):
        followed(Rescale(by=0.5), sums, grown - np.float32(0.09), KERNEL)


def test_an_array_has_no_rule_for_a_factored_slot() -> None:
    scene = ArrayScene(scale__npy=ArraySource({"": np.ones(4)}))
    factored = slot(-2, even=True, relation="factored")
    assert rule(Rescale(by="scale.npy"), factored, scene=scene) is None


class EmptyDisk(ArrayScene):
    """A scene in which nothing stands at any path."""

    def open(self, text: str) -> tuple[str, ArraySource]:
        raise MissingError(f"'{text}' does not exist")


@pytest.mark.parametrize(
    ("by", "why", "fix"),
    [
        ("abc", "'/plans/abc' does not exist", "give a number, or a `.npy`"),
        ("yes", "'/plans/yes' does not exist", "give a number, or a `.npy`"),
        ("scales/3", "'/plans/scales/3' does not exist", "give a number, or a `.npy`"),
    ],
)
def test_text_that_is_no_factor_says_what_a_factor_is(by: str, why: str, fix: str) -> None:
    with pytest.raises(PlanError) as caught:
        edited(Rescale(by=f"/plans/{by}"), KERNEL, scene=EmptyDisk())
    (problem,) = caught.value.problems
    assert problem.what == f"`by` takes a number or an array file; '/plans/{by}' is neither"
    assert problem.why.startswith(why)
    assert problem.fix.startswith(fix)
    assert problem.field == "by"


def test_an_array_file_that_is_not_there_is_simply_missing() -> None:
    with pytest.raises(MissingError, match=r"'/plans/s\.npy' does not exist"):
        edited(Rescale(by="/plans/s.npy"), KERNEL, scene=EmptyDisk())


SQUARES = np.random.default_rng(2).uniform(1e-6, 1e-2, (5, 7)).astype(np.float32)


@pytest.mark.parametrize("block", [None, (2, 3)])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float16])
def test_a_factor_that_makes_values_zero_is_refused(dtype: type, block: tuple | None) -> None:
    with pytest.raises(ValueRefusal, match="lost to zeros") as caught:
        edited(Rescale(by=1e-60), SQUARES.astype(dtype), block=block)
    assert "would become 0" in caught.value.problems[0].why
    assert "optimizer: warm" in caught.value.problems[0].fix


def test_an_array_of_factors_that_makes_values_zero_is_refused_for_the_leaf_and_its_twin() -> None:
    tiny = np.full((7,), 1e-50)
    scene = ArrayScene(scale__npy=ArraySource({"": tiny}))
    with pytest.raises(ValueRefusal, match="lost to zeros"):
        edited(Rescale(by="scale.npy"), SQUARES, scene=scene)
    huge = ArrayScene(scale__npy=ArraySource({"": np.full((7,), 1e25)}))
    with pytest.raises(ValueRefusal, match="lost to zeros"):
        followed(Rescale(by="scale.npy"), slot(-2, even=True), SQUARES, KERNEL, scene=huge)


def test_zeros_that_are_meant_and_values_that_rounding_would_lose_may_go() -> None:
    assert not edited(Rescale(by=0), SQUARES).any()
    mask = np.array([0, 1e-9, 1, 1, 1, 1, 1])
    scene = ArrayScene(scale__npy=ArraySource({"": mask}))
    masked = edited(Rescale(by="scale.npy"), SQUARES, scene=scene)
    np.testing.assert_array_equal(masked[:, 0], 0)
    assert (masked[:, 1] > 0).all()
    wide = np.array([-1.0, 1e-37, 0.0], np.float32)
    np.testing.assert_array_equal(edited(Rescale(by=1e-10), wide), np.float32([-1e-10, 0, 0]))
    with pytest.raises(ValueRefusal, match="lost to zeros"):  # squares: training divides by each
        edited(Rescale(by=1e-10), abs(wide))
    subnormal = np.full(3, 1e-45, np.float32)
    assert not edited(Rescale(by=0.25), subnormal).any()
