"""A·B of any axes is added to kernels as NumPy says, in float64; layouts are stated, and what is none is refused."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from surgery_cli.draft import source_leaves
from surgery_cli.errors import PlanError
from surgery_cli.operations.merge_lora import MergeLora
from tests.operations.value_edits import (
    ArrayScene,
    ArraySource,
    computed,
    draft_of,
    path_of,
    rewritten,
)

AT = "params/dense/kernel"
RANK = 3
LAYOUTS = {
    "flax": ({}, "ir,ro->io"),
    "flax, attention": ({"layout": "flax"}, "ir,rhd->ihd"),
    "flax, attention's output": ({"layout": "flax"}, "hdr,ro->hdo"),
    "flax, scanned": ({"layout": "flax", "scan_axis": 0}, "lir,lro->lio"),
    "flax, scanned on axis 1": ({"layout": "flax", "scan_axis": 1}, "ilr,rlhd->ilhd"),
    "peft": ({}, "ri,or->oi"),
    "peft, scanned": ({"layout": "peft", "scan_axis": 0}, "lri,lor->loi"),
    "peft-transposed": ({}, "ri,or->io"),
    "peft-transposed, attention": ({"layout": "peft-transposed"}, "ri,[hd]r->ihd"),
    "peft-transposed, attention's output": ({"layout": "peft-transposed"}, "r[hd],or->hdo"),
    "n d r, n r h -> n d h": ({}, "ndr,nrh->ndh"),
    "d r, r n h -> n d h": ({}, "dr,rnh->ndh"),
    "(h d) r, r o -> h d o": ({}, "[hd]r,ro->hdo"),
    "r i, (h d) r -> i h d": ({}, "ri,[hd]r->ihd"),
}
"""Layouts by what is said, and as `numpy.einsum` has them; axes in brackets are one, in C order."""
SIZES = {"i": 6, "o": 4, "h": 2, "d": 5, "l": 3, "n": 7, "r": RANK}


def leaves(word: str, dtype: Any = np.float32) -> tuple[Any, Any, Any, Any]:
    """A kernel, A, B, and A·B in float64."""
    draw = np.random.default_rng(0)
    factors, whole = word.split("->")
    plain = [side.replace("[", "").replace("]", "") for side in factors.split(",")]
    a, b = (draw.normal(size=[SIZES[x] for x in side]).astype(dtype) for side in plain)
    kernel = draw.normal(size=[SIZES[x] for x in whole]).astype(dtype)
    product = np.einsum(f"{','.join(plain)}->{whole}", a.astype("f8"), b.astype("f8"))
    flat = [
        array.reshape([-1 if x == "*" else SIZES[x] for x in side])
        for array, side in zip((a, b), factors.replace("[hd]", "*").split(","), strict=True)
    ]
    return kernel, flat[0], flat[1], product


def merged(edit: MergeLora, kernel: Any, a: Any, b: Any, *, block: Any = None, **more: Any) -> Any:
    scene = ArrayScene(lora=ArraySource({"a": a, "b": b, **more}))
    recipe = rewritten(edit, draft_of({AT: kernel}), scene).leaves[path_of(AT)].recipe
    return computed(recipe, {path_of(AT): kernel}, scene=scene, block=block)


def lora(**fields: Any) -> MergeLora:
    return MergeLora(**{"at": AT, "with_": "lora", "a": "a", "b": "b", "layout": "flax", **fields})


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float64])
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_is_a_sum_over_the_rank(name: str, dtype: Any) -> None:
    fields, word = LAYOUTS[name]
    kernel, a, b, product = leaves(word, dtype)
    wanted = kernel.astype("f8") + 0.5 * product
    for block in (None, tuple(-(-n // 2) for n in kernel.shape), (1,) * kernel.ndim):
        found = merged(lora(scale=0.5, **{"layout": name, **fields}), kernel, a, b, block=block)
        assert found.dtype == kernel.dtype
        half = 0.5 * float(ml_dtypes.finfo(kernel.dtype).eps)  # rounded to nearest, once
        np.testing.assert_allclose(
            found.astype("f8"), wanted, rtol=half * (1 + 1e-6) + 1e-15, atol=1e-15
        )


def test_alpha_is_divided_by_the_rank_or_its_root_wherever_it_stands() -> None:
    kernel, a, b, product = leaves("ir,ro->io", np.float64)
    stored = {"alpha": np.float32(6.0)}
    for alpha in (6.0, "alpha"):
        for rslora, rank in ((False, RANK), (True, RANK**0.5)):
            found = merged(lora(alpha=alpha, rslora=rslora), kernel, a, b, **stored)
            np.testing.assert_allclose(found, kernel + 6.0 / rank * product, rtol=1e-14)


def test_one_of_several_layouts_that_fit_is_never_guessed() -> None:
    square = np.zeros((4, 4), np.float32)
    with pytest.raises(TypeError, match="layout"):
        MergeLora(at=AT, with_="lora", a="a", b="b", scale=1.0)  # type: ignore[call-arg]
    a, b = np.float32(np.arange(16).reshape(4, 4)), np.float32(np.eye(4) * [1, 2, 3, 4])
    found = {name: merged(lora(layout=name, scale=1.0), square, a, b) for name in ("flax", "peft")}
    np.testing.assert_array_equal(found["flax"], a @ b)
    np.testing.assert_array_equal(found["peft"], b @ a)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "nothing says by what A·B is multiplied"),
        ({"scale": 1.0, "alpha": 2.0}, "both say by what A·B is multiplied"),
        ({"scale": 1.0, "rslora": True}, "is about `alpha`"),
        ({"scale": float("nan")}, "`scale` is nan"),
        ({"scale": 1.0, "layout": "torch"}, "`layout: torch` is no layout"),
        ({"scale": 1.0, "layout": "i r, r o -> i p"}, "is no layout"),
        ({"scale": 1.0, "layout": "i r s, r s o -> i o"}, "share one axis"),
        ({"scale": 1.0, "layout": "i i, i o -> i o"}, "two axes of one name"),
        ({"scale": 1.0, "layout": "i r, r o -> (i o)"}, "its axes one by one"),
        ({"scale": 1.0, "layout": "(i r), (r o) -> i o"}, "an axis of its own"),
        ({"scale": 1.0, "layout": "l i r, l r o -> l i o", "scan_axis": 0}, "says all axes"),
    ],
)
def test_what_is_said_wrongly_is_refused_before_shapes_are_looked_at(
    fields: dict[str, Any], said: str
) -> None:
    kernel, a, b, _ = leaves("ir,ro->io")
    with pytest.raises(PlanError, match=said.replace("(", r"\(").replace(")", r"\)")):
        merged(lora(**fields), kernel, a, b)


@pytest.mark.parametrize(
    ("layout", "shapes", "said"),
    [
        ("flax", [(6, 3), (2, 4)], "A has rank 3, B has rank 2"),
        ("flax", [(3, 6), (4, 3)], "with `layout: peft-transposed` they would"),
        ("peft", [(6, 3), (3, 4)], "with `layout: flax` they would"),
        ("flax", [(5, 3), (3, 4)], "'in' is 5 in A, and 6 in the kernel"),
        ("flax", [(6, 3), (3, 4, 1)], "has not the 3 axes"),
    ],
)
def test_shapes_that_do_not_fit_say_which_axes(
    layout: str, shapes: list[tuple[int, ...]], said: str
) -> None:
    a, b = (np.zeros(shape, np.float32) for shape in shapes)
    with pytest.raises(PlanError) as refused:
        merged(lora(layout=layout, scale=1.0), np.zeros((6, 4), np.float32), a, b)
    (problem,) = refused.value.problems
    assert said in f"{problem.why} {problem.fix}", problem


def test_what_is_left_over_on_either_side_is_named_all_at_once() -> None:
    kernel = np.zeros((6, 4), np.float32)
    tree = {f"params/{name}/kernel": kernel for name in ("both", "bare", "half", "spared")}
    a, b = np.zeros((6, 2), np.float32), np.zeros((2, 4), np.float32)
    parts = {"both/a": a, "both/b": b, "half/a": a, "gone/a": a, "gone/b": b, "spared/a": a}
    scene = ArrayScene(lora=ArraySource(parts))

    edit = lora(at="params/*/kernel", a=r"\1/a", b=r"\1/b", scale=1.0, except_="params/spared")
    with pytest.raises(PlanError) as refused:
        rewritten(edit, draft_of(tree), scene)

    said = "\n".join(problem.what for problem in refused.value.problems)
    assert "'lora' has no leaf 'bare/a'" in said
    assert "bare/b" not in said  # a kernel without any LoRA is one problem
    assert "nor has it what `b` says" in {str(one.why) for one in refused.value.problems}
    assert "'lora' has no leaf 'half/b'" in said
    assert "'gone/a' of 'lora' belongs to no kernel" in said
    assert "'gone/b' of 'lora' belongs to no kernel" in said
    assert "both" not in said


def test_no_leaf_is_a_part_of_two_loras() -> None:
    kernel, a, b, _ = leaves("ir,ro->io")
    tree = {"params/x/kernel": kernel, "params/y/kernel": kernel}
    scene = ArrayScene(lora=ArraySource({"a": a, "b": b}))
    with pytest.raises(PlanError, match="'a' is no LoRA of one kernel"):
        rewritten(lora(at="params/*/kernel", scale=1.0), draft_of(tree), scene)
    square = np.eye(4, dtype=np.float32)
    with pytest.raises(PlanError, match="is no LoRA of one kernel"):
        merged(lora(b="a", scale=1.0), square, square, square)


def test_what_stands_beside_a_and_is_no_plain_lora_is_refused() -> None:
    kernel, a, b, _ = leaves("ir,ro->io")
    tree = {"params/x/kernel": kernel, "params/x/bias": kernel[0]}
    parts = {"x/lora_a": a, "x/lora_b": b}
    fields = {"at": "params/*/kernel", "a": r"\1/lora_a", "b": r"\1/lora_b", "scale": 1.0}
    for name in ("lora_magnitude_vector", "dora_scale", "hada_w1_a", "lokr_w1", "ia3_l"):
        scene = ArrayScene(lora=ArraySource({**parts, f"x/{name}": kernel[0]}))
        with pytest.raises(PlanError, match=f"'x/{name}' of 'lora' is no part of a plain LoRA"):
            rewritten(lora(**fields), draft_of(tree), scene)


def test_kernels_without_a_lora_may_be_skipped_but_not_half_of_one() -> None:
    kernel, a, b, product = leaves("ir,ro->io")
    tree = {"params/x/kernel": kernel, "params/y/kernel": kernel}
    fields = {"at": "params/*/kernel", "a": r"\1/a", "b": r"\1/b", "scale": 1.0, "missing": "skip"}
    scene = ArrayScene(lora=ArraySource({"x/a": a, "x/b": b}))
    after = rewritten(lora(**fields), draft_of(tree), scene)
    assert [str(path) for path in after.changed] == ["params/x/kernel"]
    found = computed(
        after.leaves[path_of("params/x/kernel")].recipe,
        {path_of("params/x/kernel"): kernel},
        scene=scene,
    )
    np.testing.assert_allclose(found, kernel + product, rtol=1e-6)
    scene = ArrayScene(lora=ArraySource({"x/a": a, "x/b": b, "y/a": a}))
    with pytest.raises(PlanError, match="no leaf 'y/b'"):
        rewritten(lora(**fields), draft_of(tree), scene)


def test_nothing_near_is_looked_for_where_a_kernel_is_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel, a, b, _ = leaves("ir,ro->io")
    tree = {f"params/{name}/kernel": kernel for name in "xyz"}
    fields = {"at": "params/*/kernel", "a": r"\1/a", "b": r"\1/b", "scale": 1.0}
    scene = ArrayScene(lora=ArraySource({"x/a": a, "x/b": b}))
    looked: list[str] = []
    monkeypatch.setattr(source_leaves, "nearest", lambda text, _: looked.append(text) or [])
    rewritten(lora(**fields, missing="skip"), draft_of(tree), scene)
    assert not looked
    with pytest.raises(PlanError) as error:
        rewritten(lora(**fields), draft_of(tree), scene)
    assert looked == ["y/a", "z/a"]
    assert "no leaf 'y/a'" in str(error.value)
    assert "nor has it what `b` says" in str(error.value)
