"""Replace: constants, and leaves taken from files and other checkpoints."""

import math

import ml_dtypes
import msgspec
import numpy as np
import pytest

from surgery_cli.draft.expression import LeafRef
from surgery_cli.draft.kernels.convert import Convert
from surgery_cli.errors import PlanError
from surgery_cli.operations.add_scaled import AddScaled
from surgery_cli.operations.average import Average
from surgery_cli.operations.interpolate import Interpolate
from surgery_cli.operations.replace import Replace
from surgery_cli.operations.stacked_shapes import APART, TOGETHER
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.words.tasks import TASKS
from tests.operations.value_edits import (
    ArrayScene,
    ArraySource,
    draft_of,
    edited,
    kernels,
    made,
    path_of,
    rewritten,
    scene_of,
)

F32 = np.float32
TREE = {
    "params/a/kernel": np.zeros((2, 3), F32),
    "params/a/bias": np.zeros(3, F32),
    "params/b/kernel": np.zeros((2, 3), F32),
}


@pytest.mark.parametrize(
    ("dtype", "number"),
    [
        (np.float32, 0.1),
        (np.float16, -3),
        (ml_dtypes.bfloat16, 0.1),
        (ml_dtypes.float8_e4m3fn, 448),
        (np.int32, 7),
        (np.int32, 7.0),
        (np.int64, 2**53 + 1),
        (np.uint64, 2**64 - 1),
        (ml_dtypes.int4, -8),
        (np.complex64, 0.5),
    ],
)
def test_a_number_fills_the_leaf_exactly(dtype: type, number: float) -> None:
    leaf = np.ones((4, 3), dtype)
    result = edited(Replace(with_=number), leaf, block=(3, 2))
    np.testing.assert_array_equal(result, np.full((4, 3), number, dtype))
    if isinstance(number, int):
        assert int(result[0, 0].real) == number


@pytest.mark.parametrize(
    ("dtype", "number"),
    [
        (np.int32, 0.5),
        (np.int8, 128),
        (np.uint8, -1),
        (ml_dtypes.int4, 8),
        (np.int32, 10**400),
        (np.float32, 1e39),
        (np.float16, 65520),
        (np.float32, math.nan),
        (np.float32, math.inf),
    ],
)
def test_a_number_that_the_leaf_does_not_hold_is_refused(dtype: type, number: float) -> None:
    with pytest.raises(PlanError) as caught:
        made(Replace(with_=number), np.ones(3, dtype))
    assert caught.value.problems[0].field == "with"


@pytest.mark.parametrize(
    "spec",
    [
        LeafSpec(kind=LeafKind.KEY, shape=(2,), dtype="uint32", key_impl="fry"),
        LeafSpec(kind=LeafKind.STRING),
        LeafSpec(kind=LeafKind.ARRAY, shape=(2,), dtype="bool"),
    ],
)
def test_a_number_replaces_no_key_string_or_boolean(spec: LeafSpec) -> None:
    with pytest.raises(PlanError, match="a number does not replace"):
        made(Replace(with_=0), spec)


def grafts(edit: Replace, tree: dict, **sources: ArraySource) -> dict[str, LeafRef]:
    """Where the leaves come from, by path, for those that the edit changed."""
    draft = rewritten(edit, draft_of(tree), ArrayScene(**sources))
    return {str(p): draft.leaves[p].home for p in draft.changed}


def test_a_subtree_is_taken_from_the_same_paths_without_a_step() -> None:
    donor = ArraySource({**TREE, "params/c": np.zeros(1)})
    scene = ArrayScene(donor=donor)
    draft = rewritten(Replace(at="params/a", with_="donor"), draft_of(TREE), scene)
    assert [str(p) for p in draft.changed] == ["params/a/kernel", "params/a/bias"]
    assert scene.carried_leaves == draft.changed
    for path in draft.changed:
        recipe = draft.leaves[path]
        assert recipe.home == LeafRef("donor", path)
        assert recipe.is_by_reference


def test_what_follows_the_named_node_is_appended_to_from() -> None:
    donor = ArraySource(
        {"other/head/kernel": TREE["params/a/kernel"], "other/head/bias": np.zeros(3, F32)}
    )
    found = grafts(Replace(at="params/a", with_="donor", from_="other/head"), TREE, donor=donor)
    assert found == {
        "params/a/kernel": LeafRef("donor", path_of("other/head/kernel")),
        "params/a/bias": LeafRef("donor", path_of("other/head/bias")),
    }


@pytest.mark.parametrize(
    ("at", "from_"),
    [
        ("params/*/kernel", r"other/\1/w"),
        (r"re:params/([ab])/kernel", r"other/\1/w"),
        (r"re:(params)/(?:)([ab])/kernel", r"other/\g<2>/w"),
    ],
)
def test_captured_parts_of_the_pattern_stand_in_from(at: str, from_: str) -> None:
    donor = ArraySource({f"other/{n}/w": TREE["params/a/kernel"] for n in "ab"})
    found = grafts(Replace(at=at, with_="donor", from_=from_), TREE, donor=donor)
    assert {p: str(ref.path) for p, ref in found.items()} == {
        "params/a/kernel": "other/a/w",
        "params/b/kernel": "other/b/w",
    }


def test_an_array_file_and_an_entry_of_one_replace_a_leaf() -> None:
    single = ArraySource({"": np.ones((2, 3), F32)})
    several = ArraySource({"w": np.ones((2, 3), F32), "v": np.ones(1, F32)})
    kernels = "params/*/kernel"
    assert grafts(Replace(at=kernels, with_="w.npy"), TREE, w__npy=single) == {
        "params/a/kernel": LeafRef("w.npy", LeafPath()),
        "params/b/kernel": LeafRef("w.npy", LeafPath()),
    }
    found = grafts(Replace(at="params/a/kernel", with_="f.npz:w"), TREE, f__npz=several)
    assert found == {"params/a/kernel": LeafRef("f.npz", path_of("w"))}


def test_a_file_of_one_array_serves_every_leaf_that_is_named() -> None:
    """As Orbax-free files come: `w.npy` calls its array `w`, an `.npz` by its entry."""
    only = ArraySource({"anything": np.ones((2, 3), F32)})
    assert grafts(Replace(at="params/*/kernel", with_="w.npz"), TREE, w__npz=only) == {
        "params/a/kernel": LeafRef("w.npz", path_of("anything")),
        "params/b/kernel": LeafRef("w.npz", path_of("anything")),
    }
    with pytest.raises(PlanError, match=r"'anything' of 'w\.npz' does not fit 'params/a/bias'"):
        grafts(Replace(at="params/a/bias", with_="w.npz"), TREE, w__npz=only)
    ints = ArraySource({"": np.ones((2, 3), np.int32)})
    with pytest.raises(
        PlanError, match=r"'w\.npy' (does not fit|has another dtype than) 'params/a/"
    ):
        grafts(Replace(at="params/a/kernel", with_="w.npy"), TREE, w__npy=ints)


def test_a_checkpoint_of_one_leaf_elsewhere_does_not_stand_in() -> None:
    donor = ArraySource({"params/x/kernel": np.ones((2, 3), F32)})
    with pytest.raises(PlanError, match="'donor' has no leaf 'params/a/kernel'"):
        grafts(Replace(at="params/a/kernel", with_="donor"), TREE, donor=donor)


def test_a_file_of_several_arrays_asks_for_the_entry() -> None:
    several = ArraySource({"w": np.ones((2, 3), F32), "v": np.ones(1, F32)})
    with pytest.raises(PlanError, match=r"'f\.npz' has no leaf 'params/a/kernel'") as caught:
        grafts(Replace(at="params/a/kernel", with_="f.npz"), TREE, f__npz=several)
    assert caught.value.problems[0].fix == "name an entry, as `f.npz:w`; it has 'w', 'v'"


def test_every_leaf_that_is_missing_or_of_another_shape_is_reported_at_once() -> None:
    donor = ArraySource({"params/a/kernel": np.zeros((3, 2), F32), "params/a/biases": np.zeros(3)})
    with pytest.raises(PlanError) as caught:
        grafts(Replace(at="params/a", with_="donor"), TREE, donor=donor)
    shape, missing = caught.value.problems
    assert (shape.path, missing.path) == ("params/a/kernel", "params/a/bias")
    assert "float32[3,2]" in shape.why
    assert "float32[2,3]" in shape.why
    assert "'params/a/biases'" in missing.fix


def test_a_node_for_leaves_that_are_named_one_by_one_says_to_name_the_node() -> None:
    donor = ArraySource({"other/head/kernel": TREE["params/a/kernel"]})
    with pytest.raises(PlanError) as caught:
        grafts(Replace(at="params/a/**", with_="donor", from_="other/head"), TREE, donor=donor)
    problem = caught.value.problems[0]
    assert "'other/head' is a node of 'donor'" in problem.what
    assert problem.fix == "write `at: params/a`, without `/**`"


def test_another_dtype_needs_cast_and_then_becomes_a_step() -> None:
    donor = ArraySource({"params/a/bias": np.zeros(3, np.float64)})
    edit = Replace(at="params/a/bias", with_="donor")
    with pytest.raises(PlanError, match="another dtype") as caught:
        grafts(edit, TREE, donor=donor)
    assert "cast: true" in caught.value.problems[0].fix
    draft = rewritten(
        msgspec.structs.replace(edit, cast=True), draft_of(TREE), ArrayScene(donor=donor)
    )
    recipe = draft.leaves[path_of("params/a/bias")]
    assert kernels(recipe.recipe) == [Convert()]
    assert [edit.name for edit in recipe.edits] == ["cast"]
    assert (recipe.recipe.inputs[0].spec.dtype, recipe.spec.dtype) == ("float64", "float32")


def test_floats_never_become_integers() -> None:
    donor = ArraySource({"step": np.zeros((), F32)})
    with pytest.raises(PlanError, match="does not become"):
        grafts(
            Replace(at="step", with_="donor", cast=True),
            {"step": np.zeros((), np.int32)},
            donor=donor,
        )


def test_a_numpy_array_stands_in_for_a_jax_array_but_a_key_for_keys_only() -> None:
    array = ArraySource({"params/a/bias": TREE["params/a/bias"]}, kind=LeafKind.NUMPY)
    draft = rewritten(Replace(at="params/a/bias", with_="d"), draft_of(TREE), ArrayScene(d=array))
    assert draft.leaves[path_of("params/a/bias")].spec.kind is LeafKind.ARRAY
    key = ArraySource({"rng": np.zeros(2, np.uint32)}, kind=LeafKind.KEY, key_impl="fry")
    with pytest.raises(PlanError, match="does not fit"):
        grafts(Replace(at="rng", with_="d"), {"rng": np.zeros(2, np.uint32)}, d=key)


def test_sharding_stays_the_targets_and_chunks_become_the_donors() -> None:
    donor = ArraySource({"w": np.zeros(8, F32)}, chunk_shape=(4,), write_shape=(8,), sharding="{}")
    tree = draft_of({"w": np.zeros(8, F32)})
    path = path_of("w")
    stored = msgspec.structs.replace(
        tree.leaves[path].spec, sharding='{"own": 1}', chunk_shape=(2,)
    )
    recipe = tree.leaves[path].with_spec(stored)
    draft = rewritten(
        Replace(at="w", with_="d"), tree.with_leaves({path: recipe}), ArrayScene(d=donor)
    )
    spec = draft.leaves[path].spec
    assert (spec.sharding, spec.chunk_shape, spec.write_shape) == ('{"own": 1}', (4,), (8,))


def test_what_contradicts_itself_is_refused() -> None:
    donor = ArraySource({"w": np.zeros((2, 3), F32)})
    both = Replace(at="params/a/kernel", with_="f.npz:w", from_="v")
    with pytest.raises(PlanError, match="both name a leaf"):
        grafts(both, TREE, f__npz=donor)
    with pytest.raises(PlanError, match="`from` needs something"):
        grafts(Replace(at="params/a/kernel", with_=0, from_="v"), TREE)
    with pytest.raises(PlanError, match="refers to part 2"):
        grafts(Replace(at="params/*/kernel", with_="d", from_=r"\2"), TREE, d=donor)
    tree = ArraySource({"other/w": np.zeros((2, 3), F32)})
    with pytest.raises(PlanError, match="has no leaf 'other'") as caught:
        grafts(Replace(at="params/a/kernel", with_="d", from_="other"), TREE, d=tree)
    assert "a node there" in caught.value.problems[0].why


def test_an_array_of_another_shape_is_taken_where_the_edit_says_it() -> None:
    new = np.arange(10, dtype=F32).reshape(2, 5)
    scene = ArrayScene(donor=ArraySource({"params/a/kernel": new, "params/a/bias": new[0]}))
    with pytest.raises(PlanError) as caught:
        rewritten(Replace(at="params/a", with_="donor"), draft_of(TREE), scene)
    assert all("add `shape: '..., 5'`" in str(problem.fix) for problem in caught.value.problems)
    edit = Replace(at="params/a", with_="donor", shape=("...", 5))
    draft = rewritten(edit, draft_of(TREE), scene)
    assert {str(p): s.shape for p, s in draft.tree.items() if "/a/" in str(p)} == {
        "params/a/kernel": (2, 5),
        "params/a/bias": (5,),
    }
    with pytest.raises(PlanError, match="does not fit"):
        rewritten(Replace(at="params/a", with_="donor", shape=("...", 4)), draft_of(TREE), scene)


def test_a_number_fills_another_shape() -> None:
    result = edited(Replace(with_=2, shape=("*", 7)), np.ones((4, 3), F32), block=(3, 2))
    np.testing.assert_array_equal(result, np.full((4, 7), 2, F32))


@pytest.mark.parametrize(
    ("leaf", "other", "said"),
    [
        (
            (16,),
            (3, 16),
            "it holds 3 of the leaf's shape along axis 0: if these are layers, `unstack` it first and",
        ),
        (
            (4, 8),
            (4, 6, 8),
            "6 of the leaf's shape along axis 1: if these are layers, `unstack` it first along axis 1",
        ),
        (
            (3, 16),
            (16,),
            "the leaf holds 3 of that shape along axis 0: if these are layers, `unstack` the leaf first",
        ),
        ((5, 16), (16, 7), None),
        ((16,), (2, 3, 16), None),
    ],
)
def test_what_is_one_axis_larger_or_smaller_is_first_taken_apart(leaf, other, said) -> None:
    tree = {"w": np.zeros(leaf, F32)}
    donor = {"w": np.ones(other, F32)}
    for edit, told in (
        (Replace(at="w", with_="donor"), "would give the leaf itself that shape"),
        (Average(at="w", with_="donor"), "else leave the leaf out"),
        (AddScaled(at="w", with_="donor"), "else leave others out"),
        (Interpolate(at="w", with_="donor", t=0.5), "else leave the leaf out"),
    ):
        with pytest.raises(PlanError) as caught:
            rewritten(edit, draft_of(tree), scene_of(tree, {"donor": donor}))
        fix = str(caught.value.problems[0].fix)
        assert (said in fix and told in fix) if said else "layers" not in fix
    titles = {task.title for task in TASKS}
    assert {APART, TOGETHER} <= titles
