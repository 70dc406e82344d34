"""`resize` against NumPy in float64: what stays, what stands in new places, what is refused; vocabularies on disk."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.draft.expression import Stored
from surgery_cli.errors import PlanError, ValueRefusal
from surgery_cli.operations.pad import Pad
from surgery_cli.operations.reinit import Reinit
from surgery_cli.operations.resize import Resize
from surgery_cli.operations.slice import Slice
from surgery_cli.planning import plan_of
from surgery_cli.surgery import Options
from surgery_cli.tree.paths import LeafPath
from tests.operations.test_rearranging import restored, saved
from tests.operations.value_edits import (
    ArrayScene,
    ArraySource,
    draft_of,
    edited,
    rewritten,
)


def new_places(leaf: Any, axis: int, size: int, how: dict[str, Any]) -> np.ndarray:
    """What stands in new places, float64."""
    wide = leaf.astype(np.float64)
    count = size - leaf.shape[axis]
    shape = [*leaf.shape]
    shape[axis] = count
    mean = wide.mean(axis, keepdims=True)
    base = {
        "mean": np.broadcast_to(mean, shape),
        "repeat": wide.take(np.arange(count) % leaf.shape[axis], axis),
        "zeros": np.zeros(shape),
        "constant": np.full(shape, 2.0),
    }[how.get("fill", "mean")]
    if not how.get("noise"):
        return base
    whole = [*leaf.shape]
    whole[axis] = size
    normal = edited(Reinit(init="normal", stddev=1.0), np.zeros(whole))
    drawn = normal.take(range(leaf.shape[axis], size), axis)
    return base + how["noise"] * drawn * wide.std(axis, keepdims=True)


HOW = [
    {},
    {"noise": 0.5},
    {"fill": "repeat"},
    {"fill": "repeat", "noise": 1.0},
    {"fill": "zeros"},
    {"fill": "constant", "value": 2.0},
    {"fill": "zeros", "noise": 0.25},
]


@pytest.mark.parametrize("how", HOW, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float64])
def test_new_places_are_what_numpy_says(how: dict[str, Any], dtype: Any) -> None:
    rng = random.Random(str(how))
    for _ in range(6):
        shape = tuple(rng.randint(2, 5) for _ in range(rng.randint(1, 3)))
        leaf = np.random.default_rng(0).normal(size=shape).astype(dtype)
        axis = rng.randrange(len(shape))
        size = shape[axis] + rng.randint(1, 2 * shape[axis])
        whole = [*shape]
        whole[axis] = size
        block = tuple(rng.randint(1, n) for n in whole)
        new = edited(Resize(axis=axis, size=size, **how), leaf, block=block)
        assert new.shape == tuple(whole)
        old, end = np.split(new, [shape[axis]], axis)
        np.testing.assert_array_equal(old, leaf)
        expected = new_places(leaf, axis, size, how).astype(dtype)  # rounded once
        ulp = np.spacing(np.abs(expected).max()).astype(np.float64)
        np.testing.assert_allclose(
            end.astype(np.float64), expected.astype(np.float64), rtol=0, atol=2 * ulp
        )


@pytest.mark.parametrize("init", ["normal", "uniform", "lecun_normal", "truncated_normal"])
def test_an_initializer_draws_what_it_would_in_the_whole_leaf(init: str) -> None:
    leaf = np.ones((5, 4), np.float32)
    new = edited(Resize(axis=0, size=8, fill=init, seed=3), leaf, block=(3, 2))
    whole = edited(Reinit(init=init, seed=3), np.zeros((8, 4), np.float32))
    np.testing.assert_array_equal(new, np.concatenate([leaf, whole[5:]]))


@pytest.mark.parametrize("shape", [(3, 4), (1, 4), (3, 1), (4,)])
def test_new_places_come_from_a_file(shape: tuple[int, ...]) -> None:
    rows = np.random.default_rng(1).normal(size=shape)
    leaf = np.ones((5, 4), np.float32)
    scene = ArrayScene(rows__npy=ArraySource({"": rows}))
    new = edited(Resize(axis=0, size=8, with_="rows.npy"), leaf, scene=scene, block=(2, 3))
    expected = np.broadcast_to(rows, (3, 4)).astype(np.float32)
    np.testing.assert_array_equal(new, np.concatenate([leaf, expected]))


def test_places_at_the_end_are_dropped_and_named() -> None:
    arrays = {f"layers_{n}/w": np.zeros((12, 3), np.float32) for n in range(3)}
    arrays["head"] = np.zeros((3, 12), np.float32)
    draft = rewritten(Resize(at="**", old_size=12, size=10), draft_of(arrays), ArrayScene())
    assert [str(note) for note in draft.notes] == [
        "places 10..11 along axis 0 of 'layers_{0..2}/w' are dropped",
        "places 10..11 along axis 1 of 'head' are dropped",
    ]
    leaf = np.arange(36, dtype=np.float32).reshape(12, 3)
    np.testing.assert_array_equal(edited(Resize(axis=0, size=10), leaf), leaf[:10])


@pytest.mark.parametrize("last", [Slice(at="w", slices=":, :3"), Resize(at="w", axis=1, size=3)])
def test_what_grows_and_shrinks_again_is_the_stored_leaf_by_reference(last: Any) -> None:
    draft = draft_of({"w": np.zeros((2, 3, 4), np.float32)})
    for edit in (Resize(at="w", axis=1, size=7), last):
        draft = rewritten(edit, draft, ArrayScene())
    assert isinstance(draft.leaves[LeafPath(("w",))].recipe, Stored)
    assert draft.changed == []


def test_a_size_that_is_there_already_changes_nothing() -> None:
    draft = rewritten(
        Resize(at="w", axis=0, size=2), draft_of({"w": np.zeros((2, 3), np.float32)}), ArrayScene()
    )
    assert draft.changed == []


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (Resize(size=5), "needs `axis` or `old_size`"),
        (Resize(size=5, axis=0, old_size=4), "has both"),
        (Resize(size=5, axis=2), "does not fit a leaf with 2 axes"),
        (Resize(size=5, old_size=7), "it has no such axis"),
        (Resize(size=5, axis=0, fill="meen"), "perhaps mean"),
        (Resize(size=5, axis=0, fill="orthogonal"), "whole matrices"),
        (Resize(size=5, axis=0, fill="constant"), "constant needs value"),
        (Resize(size=5, axis=0, stddev=1.0), "has no parameter"),
        (Resize(size=5, axis=0, fill="normal", value=1.0), "normal has no parameter value"),
        (Resize(size=5, axis=0, fill="normal", noise=1.0), "random already"),
        (Resize(size=5, axis=0, noise=-1.0), "is no share"),
        (Resize(size=5, axis=0, noise=float("nan")), "must be a finite number"),
        (Resize(size=5, axis=0, with_="x.npy", fill="mean"), "has both"),
        (Resize(size=9, axis=0, with_="rows.npy"), "does not broadcast"),
    ],
)
def test_what_does_not_fit_is_said(edit: Resize, said: str) -> None:
    scene = ArrayScene(rows__npy=ArraySource({"": np.zeros((3, 3))}))
    named = type(edit)(**{f: getattr(edit, f) for f in edit.__struct_fields__ if f != "at"}, at="w")
    with pytest.raises(PlanError, match=said):
        rewritten(named, draft_of({"w": np.zeros((4, 3), np.float32)}), scene)


def test_two_axes_of_the_old_size_are_named() -> None:
    with pytest.raises(PlanError, match="axes 0 and 2 have it"):
        edited(Resize(size=5, old_size=4), np.zeros((4, 3, 4)))


def test_integers_have_no_mean_and_may_get_zeros_or_repeats() -> None:
    leaf = np.arange(4, dtype=np.int32)
    with pytest.raises(PlanError, match="has no mean"):
        edited(Resize(axis=0, size=6), leaf)
    assert edited(Resize(axis=0, size=6, fill="zeros"), leaf).tolist() == [0, 1, 2, 3, 0, 0]
    assert edited(Resize(axis=0, size=6, fill="repeat"), leaf).tolist() == [0, 1, 2, 3, 0, 1]


def test_noise_needs_something_that_varies() -> None:
    with pytest.raises(ValueRefusal, match="no standard deviation"):
        edited(Resize(axis=0, size=6, noise=1.0), np.ones((4, 3), np.float32))


@pytest.mark.parametrize(
    "edit", [Pad(axis=0, after=1, value=-1.0), Resize(axis=0, size=9, noise=1.0)]
)
def test_squares_get_no_new_places_that_are_negative(tmp_path: Path, edit: Any) -> None:
    tx = optax.adam(1e-2)
    params = {"w": jnp.ones((8, 2))}
    saved(tmp_path / "a", {"params": params, "opt_state": tx.init(params)})
    fields = {f: getattr(edit, f) for f in edit.__struct_fields__ if f not in ("at", "twins")}
    named = type(edit)(**fields, at=("params/w", "opt_state/0/nu/w"), twins="named")
    with pytest.raises(PlanError, match="would become negative"):
        surgery.plan(str(tmp_path / "a"), plan_of([named]))


def vocabulary(tokens: int, draws: np.random.Generator) -> Any:
    """Embeddings [tokens, d], untied output rows [d, tokens], and their bias."""
    shapes = {"embed": (tokens, 4), "head": {"kernel": (4, tokens), "bias": (tokens,)}}
    return jax.tree.map(
        lambda shape: jnp.asarray(draws.normal(size=shape), jnp.float32),
        shapes,
        is_leaf=lambda x: isinstance(x, tuple),
    )


def test_a_vocabulary_grows_with_its_slots_and_training_goes_on(tmp_path: Path) -> None:
    draws = np.random.default_rng(0)
    tx = optax.adam(1e-2)
    params = vocabulary(10, draws)
    _, slots = tx.update(vocabulary(10, draws), tx.init(params), params)
    state = {"params": params, "opt_state": slots}
    grown = vocabulary(13, draws)
    target = {"params": grown, "opt_state": tx.init(grown)}
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "a", state)
        checkpointer.wait_until_finished()
        edit = Resize(at=("params/embed", "params/head"), old_size=10, size=13, expect=3)
        surgery.apply(str(tmp_path / "a"), str(tmp_path / "b"), plan_of([edit]))
        back = Resize(at="params", old_size=13, size=10)
        surgery.apply(str(tmp_path / "b"), str(tmp_path / "c"), plan_of([back]))
        target = jax.tree.map(ocp.utils.to_shape_dtype_struct, target)
        new = checkpointer.restore(tmp_path / "b", target)
        again = checkpointer.restore(tmp_path / "c", state)
    for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(one, other)
    axes = {"embed": 0, "head": {"kernel": 1, "bias": 0}}

    def check(axis: int, old: Any, param: Any, mu: Any, nu: Any) -> None:
        for before, after in ((old, param), (np.take(np.asarray(nu), range(10), axis), nu)):
            mean = np.asarray(before).mean(axis, dtype=np.float64, keepdims=True)
            places = np.take(np.asarray(after), range(10, 13), axis)
            np.testing.assert_allclose(places, np.broadcast_to(mean, places.shape), 1e-5, 1e-7)
        assert not np.take(np.asarray(mu), range(10, 13), axis).any()

    adam = new["opt_state"][0]
    jax.tree.map(check, axes, params, new["params"], adam.mu, adam.nu)
    updates, _ = tx.update(vocabulary(13, draws), new["opt_state"], new["params"])
    assert all(np.isfinite(x).all() and (abs(x) < 0.1).all() for x in jax.tree.leaves(updates))


def test_slots_of_which_nothing_is_known_may_hold_squares(tmp_path: Path) -> None:
    """At 0, a square would make the next steps there as large as steps can be."""
    params = {"w": jnp.ones((4, 3)), "b": jnp.ones(3)}
    slots = dict.fromkeys(("this", "that"), params)
    saved(tmp_path / "a", {"params": params, "opt_state": slots})
    for n, edit in enumerate(
        [Resize(at="params/w", axis=0, size=6), Pad(at="params/w", axis=0, after=2)]
    ):
        surgery.apply(str(tmp_path / "a"), str(tmp_path / f"b{n}"), plan_of([edit]))
        found = restored(tmp_path / f"b{n}")["opt_state"]
        assert all((slot["w"] == np.ones((6, 3))).all() for slot in found.values())


@pytest.mark.parametrize(
    "how", [{}, {"noise": 0.1}, {"fill": "normal"}, {"fill": "repeat"}], ids=str
)
def test_a_vocabulary_larger_than_the_memory_streams(tmp_path: Path, how: dict[str, Any]) -> None:
    leaf = np.random.default_rng(0).normal(size=(4096, 512)).astype(np.float32)
    saved(tmp_path / "a", {"w": jnp.asarray(leaf)}, chunk=1 << 19)
    options = Options(memory_bytes=6 << 20)
    edit = Resize(at="w", axis=0, size=4096 + 128, **how)
    report = surgery.apply(
        str(tmp_path / "a"), str(tmp_path / "b"), plan_of([edit]), options=options
    )
    assert not any("takes more" in note for note in report.notes), report.notes
    new = np.asarray(restored(tmp_path / "b")["w"])
    np.testing.assert_array_equal(new[:4096], leaf)
    if not how:
        mean = np.broadcast_to(leaf.mean(0, dtype=np.float64), (128, 512))
        np.testing.assert_allclose(new[4096:], mean, 1e-6, 1e-9)
