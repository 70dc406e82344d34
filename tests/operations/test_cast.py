"""Cast: rounding once, never out of range, never integers by a floating rule."""

import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import PlanError, ValueRefusal, grouped
from surgery_cli.operations.cast import Cast
from surgery_cli.planning import plan_from_document
from surgery_cli.tree.specs import LeafKind, LeafSpec
from tests.operations.value_edits import (
    ArrayScene,
    draft_of,
    edited,
    made,
    path_of,
    rewritten,
    spec_of,
)

NARROW = [
    np.float16,
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e3m4,
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e4m3fnuz,
    ml_dtypes.float8_e4m3b11fnuz,
    ml_dtypes.float8_e5m2,
    ml_dtypes.float8_e5m2fnuz,
]


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("source", [np.float32, np.float64])
def test_values_are_rounded_to_the_nearest(source: type, dtype: type) -> None:
    leaf = np.random.default_rng(0).normal(size=(50, 20)).astype(source)
    result = edited(Cast(to=np.dtype(dtype).name), leaf, block=(7, 20))
    assert result.dtype == dtype
    bits = np.uint8 if np.dtype(dtype).itemsize == 1 else np.uint16
    values = np.arange(np.iinfo(bits).max + 1).astype(bits).view(dtype)
    with np.errstate(invalid="ignore"):  # NaNs of every kind are among them
        values = np.sort(values[np.isfinite(values)].astype(np.float64))
    above = np.searchsorted(values, leaf).clip(1, len(values) - 1)
    nearest = np.minimum(abs(values[above] - leaf), abs(values[above - 1] - leaf))
    np.testing.assert_array_equal(abs(result.astype(np.float64) - leaf), nearest)


def test_float64_is_not_rounded_twice_on_its_way_to_bfloat16() -> None:
    """Just above the tie between 1 and 1 + 2**-7: by way of float32 it would become the tie, and 1."""
    leaf = np.array([1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-8, -1 - 2.0**-8 - 2.0**-40])
    result = edited(Cast(to="bfloat16"), leaf).astype(np.float64)
    np.testing.assert_array_equal(result, [1 + 2.0**-7, 1.0, -1 - 2.0**-7])


@pytest.mark.parametrize("dtype", NARROW)
def test_a_finite_value_beyond_the_range_is_refused_with_its_count(dtype: type) -> None:
    name = np.dtype(dtype).name
    leaf = np.array([1.0, 3.4e38, -3.4e38, np.nan], np.float32)
    with pytest.raises(ValueRefusal, match=f"does not fit {name}") as caught:
        edited(Cast(to=name), leaf)
    assert "2 of its values lie beyond" in str(caught.value)
    assert caught.value.exit_code == 1


def test_infinities_that_were_there_stay() -> None:
    leaf = np.array([np.inf, -np.inf, np.nan, 1.0], np.float32)
    np.testing.assert_array_equal(edited(Cast(to="bfloat16"), leaf).astype(np.float32), leaf)


def test_a_block_that_does_not_fit_says_where_it_stands() -> None:
    leaf = np.ones((4, 4))
    leaf[3, 3] = 1e300
    with pytest.raises(ValueRefusal, match="does not fit") as caught:
        edited(Cast(to="float32"), leaf, block=(2, 2))
    assert "in the block at [2, 2]" in str(caught.value)


def test_complex_values_are_cast_among_complex_dtypes() -> None:
    leaf = np.array([1 + 2j, 1e300 + 0j])
    with pytest.raises(ValueRefusal):
        edited(Cast(to="complex64"), leaf)
    result = edited(Cast(to="complex64"), leaf[:1])
    np.testing.assert_array_equal(result, np.array([1 + 2j], np.complex64))


@pytest.mark.parametrize(
    ("source", "to", "good", "bad"),
    [
        (np.int32, "int8", [-128, 127], [128, -129, 300]),
        (np.int64, "uint8", [0, 255], [-1, 256]),
        (np.uint8, "int8", [0, 127], [128, 200]),
        (np.int8, "uint64", [0, 127], [-1]),
        (np.uint64, "int64", [0, 2**63 - 1], [2**63]),
        (np.int16, "int4", [-8, 7], [8, -9, 16]),
    ],
)
def test_integers_are_cast_where_they_fit(source: type, to: str, good: list, bad: list) -> None:
    edit = Cast(at="x", to=to, where_dtype="int*")
    kept = edited(edit, np.array(good, source))
    assert [int(x) for x in kept] == good
    for value in bad:
        with pytest.raises(ValueRefusal, match="'params/Dense_0/kernel' does not fit") as caught:
            edited(edit, np.array([1, value], source))
        assert "1 of its values" in str(caught.value)


def refusal(edit: Cast, spec: LeafSpec) -> str:
    with pytest.raises(PlanError) as caught:
        made(edit, spec, path_of("a/b"), ArrayScene())
    return str(caught.value)


def test_integers_are_cast_only_where_the_edit_says_integers() -> None:
    count = spec_of(np.zeros((), np.int32))
    assert "where_dtype: int*" in refusal(Cast(at="**", to="int64"), count)
    assert "where_dtype: floating" in refusal(Cast(at="**", to="bfloat16"), count)
    floating = refusal(Cast(at="**", to="int32"), spec_of(np.zeros(3, np.float32)))
    assert "stays among" in floating
    assert "choose a floating dtype" in floating
    assert "where_dtype" not in floating
    assert "stays among" in refusal(Cast(at="**", to="float32"), spec_of(np.zeros(3, np.complex64)))


def test_what_is_no_array_is_refused_when_named() -> None:
    edit = Cast(at="**", to="float32")
    for spec in (
        LeafSpec(kind=LeafKind.SCALAR, dtype="float64"),
        LeafSpec(kind=LeafKind.KEY, shape=(2,), dtype="uint32", key_impl="fry"),
        LeafSpec(kind=LeafKind.STRING),
    ):
        assert "cast does not apply to" in refusal(edit, spec)


def test_an_unknown_dtype_is_refused_with_the_nearest() -> None:
    for dtype, told in (
        ("bfloat61", "perhaps bfloat16"),
        ("fp16", "perhaps float16"),
        ("bool", ""),
    ):
        with pytest.raises(PlanError, match=f"'{dtype}' is no dtype") as refused:
            Cast(at="**", to=dtype).check_values()
        assert told in refused.value.problems[0].fix


def test_without_a_pattern_every_floating_array_is_named_and_nothing_else() -> None:
    edit = Cast(to="bfloat16")
    named = [spec_of(np.zeros(3, t)) for t in (np.float32, np.float64, ml_dtypes.float8_e5m2)]
    others = [
        *(spec_of(np.zeros(3, t)) for t in (np.int32, np.bool_, np.complex64, ml_dtypes.int4)),
        LeafSpec(kind=LeafKind.SCALAR, dtype="float64"),
        LeafSpec(kind=LeafKind.KEY, shape=(2,), dtype="uint32", key_impl="fry"),
        LeafSpec(kind=LeafKind.STRING),
        LeafSpec(kind=LeafKind.EMPTY, empty="None"),
    ]
    assert [edit.selectable(spec) for spec in named] == [True] * 3
    assert not any(map(edit.selectable, others))


def test_a_leaf_of_that_dtype_is_left_alone() -> None:
    assert Cast(to="float32").leaves_alone(spec_of(np.zeros(3, np.float32)))
    assert not Cast(to="float32").leaves_alone(spec_of(np.zeros(3, np.float64)))


def test_chunks_and_sharding_stay() -> None:
    spec = spec_of(
        np.zeros((4, 4), np.float32), chunk_shape=(2, 4), write_shape=(4, 4), sharding="{}"
    )
    after = Cast(to="bfloat16").output(spec)
    assert (after.chunk_shape, after.write_shape, after.sharding) == ((2, 4), (4, 4), "{}")
    assert after.dtype == "bfloat16"


def test_a_second_moment_that_would_become_zero_is_refused_with_count_and_smallest() -> None:
    leaf = np.array([0.0, 1e-3, 2e-9, 5e-10], np.float32)
    with pytest.raises(ValueRefusal, match="does not fit float16") as caught:
        edited(Cast(to="float16"), leaf)
    said = str(caught.value)
    assert "2 of its 4 values are not 0 and would become 0, the smallest 5e-10" in said
    assert "use bfloat16, leave the leaf out with `except` (an optimizer state as a whole)" in said
    assert "`underflow: keep`" in said
    assert caught.value.problems[0].path == "params/Dense_0/kernel"


def test_underflow_keep_makes_zeros_of_them() -> None:
    leaf = np.array([1e-3, 2e-9, -2e-9], np.float32)
    result = edited(Cast(to="float16", underflow="keep"), leaf)
    np.testing.assert_array_equal(result, np.array([1e-3, 0, -0.0], np.float16))


def test_a_weight_far_below_the_rounding_of_the_largest_may_become_zero() -> None:
    """1e-9 beside 0.05: rounding 0.05 to float16 changes it by up to 2.4e-5."""
    leaf = np.array([0.05, -0.03, 1e-9], np.float32)
    np.testing.assert_array_equal(edited(Cast(to="float16"), leaf), leaf.astype(np.float16))


def test_signed_values_that_are_all_small_are_refused() -> None:
    """A first moment of 1e-7 and less: float16 rounds by 5e-11 there, and loses 2e-8."""
    leaf = np.array([1e-7, -2e-8, 1e-8], np.float32)
    with pytest.raises(ValueRefusal, match="does not fit float16") as caught:
        edited(Cast(to="float16"), leaf)
    assert "2 of its 3 values" in str(caught.value)


@pytest.mark.parametrize("smallest", [2.0**-126, 1e-44])
def test_float32_becomes_bfloat16_down_to_its_subnormals(smallest: float) -> None:
    """What is below 2**-126 devices take for 0 as float32 already."""
    leaf = np.array([1.0, smallest], np.float32)
    result = edited(Cast(to="bfloat16"), leaf)
    np.testing.assert_array_equal(result, leaf.astype(ml_dtypes.bfloat16))


def test_float64_below_float32_is_refused() -> None:
    with pytest.raises(ValueRefusal, match="1e-50"):
        edited(Cast(to="float32"), np.array([1.0, 1e-50]))
    with pytest.raises(ValueRefusal, match="1e-50"):
        edited(Cast(to="complex64"), np.array([1e-50j]))


def test_an_infinity_does_not_excuse_zeros() -> None:
    leaf = np.array([np.inf, -1e-7, 1e-8], np.float32)
    with pytest.raises(ValueRefusal, match="does not fit float16"):
        edited(Cast(to="float16"), leaf)


def test_many_leaves_with_one_cause_are_one_problem_with_a_count() -> None:
    leaves = {f"params/{n}/w": np.zeros((n + 1, 2), np.float32) for n in range(57)}
    leaves["params/count"] = np.zeros((), np.int32)
    with pytest.raises(PlanError) as caught:
        rewritten(Cast(at="**", to="int8"), draft_of(leaves), ArrayScene())
    assert len(caught.value.problems) == 58
    many, one = grouped(caught.value.problems)
    assert (many.path, one.path) == ("params/0/w", "params/count")
    assert many.what == "float32[1,2] is not cast to int8"
    assert many.why.endswith("; and so it is with 56 more: 'params/{1..56}/w'")
    assert "integer leaf" in one.what


def test_three_leaves_with_one_cause_are_three_problems() -> None:
    leaves = {f"params/{n}/w": np.zeros(2, np.float32) for n in range(3)}
    with pytest.raises(PlanError) as caught:
        rewritten(Cast(at="**", to="int8"), draft_of(leaves), ArrayScene())
    assert [p.path for p in caught.value.problems] == ["params/0/w", "params/1/w", "params/2/w"]


def restored(path: Path) -> Any:
    with ocp.StandardCheckpointer() as checkpointer:
        return jax.tree.map(np.asarray, checkpointer.restore(path))


INTEGERS = ["int4", "int8", "int16", "int32", "uint8", "uint16", "uint32"]  # uint4 is not stored


@pytest.mark.parametrize("to", INTEGERS)
def test_what_is_advised_casts_any_integers_and_its_inverse_takes_them_back(
    to: str, tmp_path: Path
) -> None:
    tree = {x: jnp.array([[0, 1, 7], [2, 3, 5]], x) for x in INTEGERS if x != to}
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "a", {"params": {"w": jnp.ones((2, 2))}, "counts": tree})
    edits: list[dict[str, object]] = []
    for name in tree:
        edit: dict[str, object] = {"op": "cast", "at": f"counts/{name}", "to": to}
        with pytest.raises(PlanError) as caught:
            surgery.plan(str(tmp_path / "a"), plan_from_document({"edits": [edit]}))
        said = re.search(r"`where_dtype: (\S+)`", str(caught.value))
        assert said is not None
        edits.append({**edit, "where_dtype": said[1]})
    plan = plan_from_document({"edits": edits})
    surgery.apply(str(tmp_path / "a"), str(tmp_path / "b"), plan)
    for name, values in restored(tmp_path / "b")["counts"].items():
        assert values.dtype == jnp.dtype(to), name
        np.testing.assert_array_equal(values.astype(int), [[0, 1, 7], [2, 3, 5]])
    undo = surgery.inverse(str(tmp_path / "b")).plan
    surgery.apply(str(tmp_path / "b"), str(tmp_path / "c"), plan_from_document(undo))
    for name, values in restored(tmp_path / "c")["counts"].items():
        assert values.dtype == tree[name].dtype, name
        np.testing.assert_array_equal(values.astype(int), [[0, 1, 7], [2, 3, 5]])
