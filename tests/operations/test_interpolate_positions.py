"""`interpolate-positions` against scipy, jax and NumPy: grids of positions, patch kernels, blocks, slots, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
import scipy.ndimage

from surgery_cli import surgery
from surgery_cli.draft.kernels.interpolation import interpolation
from surgery_cli.errors import PlanError
from surgery_cli.operations.interpolate_positions import InterpolatePositions
from surgery_cli.planning import plan_of
from surgery_cli.surgery import Options
from tests.operations.test_rearranging import restored, saved
from tests.operations.value_edits import edited

SIZES = [(7, 12), (12, 7), (14, 24), (16, 16), (5, 1), (1, 4), (2, 3), (24, 9), (8, 7), (16, 32)]


def matrix(old: int, new: int, method: str, align: str) -> np.ndarray:
    """The weights: [new, old]."""
    found = np.zeros((new, old))
    for row, taps in zip(found, interpolation(old, new, method, align), strict=True):
        row[taps.first : taps.stop] = taps.weights
    return found


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("old", "new"), SIZES)
def test_weights_are_those_of_scipy_jax_and_numpy(old: int, new: int) -> None:
    unit = np.eye(old)
    with jax.enable_x64(True):
        linear, cubic, plain = (
            np.asarray(jax.image.resize(unit, (new, old), method, antialias=smooth))
            for method, smooth in (("linear", True), ("cubic", True), ("linear", False))
        )
    # `nearest`: where rounding puts the last place outside, SciPy's default makes it 0
    zoomed = scipy.ndimage.zoom(unit, (new / old, 1), order=1, mode="nearest")
    for weights, expected in (
        (matrix(old, new, "linear", "corners"), zoomed),
        (matrix(old, new, "linear", "centers"), linear),
        (matrix(old, new, "cubic", "centers"), cubic),
        (matrix(old, new, "pinv", "centers"), np.linalg.pinv(plain.T)),
    ):
        np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("method", ["linear", "cubic"])
@pytest.mark.parametrize("align", ["corners", "centers"])
def test_weights_add_up_to_1_and_linear_ones_are_never_negative(method: str, align: str) -> None:
    for old, new in SIZES:
        weights = matrix(old, new, method, align)
        np.testing.assert_allclose(weights.sum(1), 1, rtol=1e-14)
        assert method == "cubic" or (weights >= 0).all()


@pytest.mark.parametrize("block", [None, (1, 7, 3), (1, 100, 2), (1, 1, 5), (1, 23, 5)])
@pytest.mark.parametrize("kept", [0, 1, 2])
def test_a_grid_of_positions_is_resampled_as_big_vision_does(kept: int, block: Any) -> None:
    old = np.random.default_rng(0).normal(size=(1, kept + 6 * 6, 5)).astype(np.float32)
    grid = scipy.ndimage.zoom(
        old[0, kept:].reshape(6, 6, 5).astype(np.float64), (11 / 6, 9 / 6, 1), order=1
    )
    expected = np.concatenate([old[0, :kept], grid.reshape(99, 5).astype(np.float32)])[None]
    edit = InterpolatePositions(size=(11, 9), keep_first=kept)
    np.testing.assert_allclose(edited(edit, old, block=block), expected, 1e-6, 1e-7)
    wide = edited(InterpolatePositions(size=(9,), grid=(36,), keep_first=kept), old, block=None)
    np.testing.assert_array_equal(wide[:, :kept], old[:, :kept])


@pytest.mark.parametrize("block", [None, (2, 5), (9, 1)])
def test_grids_that_are_not_square_and_positions_in_a_row(block: Any) -> None:
    leaf = np.random.default_rng(0).normal(size=(4 * 6, 5)).astype(np.float32)
    grid = leaf.reshape(4, 6, 5).astype(np.float64)
    expected = np.einsum(
        "ph,qw,hwd->pqd", matrix(4, 3, "cubic", "centers"), matrix(6, 8, "cubic", "centers"), grid
    )
    edit = InterpolatePositions(grid=(4, 6), size=(3, 8), method="cubic")
    new = edited(edit, leaf, block=block)
    np.testing.assert_allclose(new, expected.reshape(24, 5), 1e-6, 1e-6)
    row = edited(InterpolatePositions(axis=0, size=31), leaf, block=block)
    np.testing.assert_allclose(row, matrix(24, 31, "linear", "corners") @ leaf, 1e-5, 1e-6)


@pytest.mark.parametrize(("old", "new"), [(4, 8), (8, 4), (7, 16)])
def test_patch_kernels_give_for_resized_patches_what_they_gave(old: int, new: int) -> None:
    draws = np.random.default_rng(0)
    kernel = draws.normal(size=(old, old, 3, 5)).astype(np.float32)
    resize = matrix(old, new, "linear", "centers") if new > old else None
    edit = InterpolatePositions(axis=(0, 1), size=(new, new), method="pinv")
    found = edited(edit, kernel, block=(3, 2, 3, 5))
    with jax.enable_x64(True):
        whole = np.asarray(
            jax.image.resize(
                np.eye(old * old).reshape(-1, old, old), (old * old, new, new), "linear", antialias=False
            )
        ).reshape(old * old, -1).T  # fmt: skip
    expected = np.linalg.pinv(whole.T) @ kernel.reshape(old * old, -1)
    np.testing.assert_allclose(found, expected.reshape(new, new, 3, 5), 1e-4, 1e-5)
    if resize is not None:
        patch = draws.normal(size=(old, old, 3))
        large = np.einsum("ph,qw,hwc->pqc", resize, resize, patch)
        before, after = (
            np.einsum("hwc,hwcd->d", x, k) for x, k in ((patch, kernel), (large, found))
        )
        np.testing.assert_allclose(after, before, 1e-4, 1e-4)


def test_narrow_dtypes_are_rounded_once() -> None:
    leaf = np.random.default_rng(0).normal(size=(9, 4)).astype(ml_dtypes.bfloat16)
    new = edited(InterpolatePositions(axis=0, size=14), leaf)
    expected = matrix(9, 14, "linear", "corners") @ leaf.astype(np.float64)
    np.testing.assert_array_equal(new, expected.astype(ml_dtypes.bfloat16))


def test_a_leaf_without_elements_has_none_afterwards() -> None:
    new = edited(InterpolatePositions(axis=0, size=(5, 5)), np.zeros((9, 0), np.float32))
    assert new.shape == (25, 0)


def test_a_size_that_is_there_already_changes_nothing() -> None:
    leaf = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    np.testing.assert_array_equal(
        edited(InterpolatePositions(size=(3, 3), method="pinv"), leaf), leaf
    )


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"size": (3, 3)}, "axis 0 has 10 positions, and no number times itself"),
        ({"size": (3, 3), "grid": (2, 4)}, "does not fit"),
        ({"size": (3, 3), "grid": 10}, "does not fit"),
        ({"size": (3, 3), "keep_first": 11}, "is no grid"),
        ({"size": 0}, "is no size"),
        ({"size": 4, "axis": 2}, "does not fit a leaf with 2 axes"),
        ({"size": (4, 4, 4), "axis": (0, 1)}, "as many numbers"),
        ({"size": (4, 4), "axis": (0, 1), "grid": (2, 5)}, "as many numbers"),
        ({"size": (4, 4), "axis": (0, 1), "method": "pinv", "align": "corners"}, "does not go"),
    ],
)
def test_what_does_not_fit_is_said(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        edited(InterpolatePositions(**fields), np.zeros((10, 4), np.float32))
    with pytest.raises(PlanError, match="floating leaves"):
        edited(InterpolatePositions(size=4), np.zeros((10, 4), np.int32))


OPTIMIZERS = {
    "adam": optax.adam(1e-2),
    "adafactor": optax.adafactor(1e-2, momentum=0.9, min_dim_size_to_factor=8),
    "schedule-free": optax.contrib.schedule_free_sgd(1e-2),
    "novograd": optax.novograd(1e-2),
    "lbfgs": optax.scale_by_lbfgs(memory_size=2),
}


@pytest.mark.sampled(3)
@pytest.mark.covers(1)
@pytest.mark.parametrize("policy", [None, "transform", "reset"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_slots_follow_and_squares_by_linear_weights(
    tmp_path: Path, name: str, policy: str | None
) -> None:
    """Positions go over Adafactor's threshold, which another param shows; cubic weights would make squares negative."""
    tx, draws = OPTIMIZERS[name], np.random.default_rng(0)

    def drawn(count: int) -> Any:
        shapes = {"pos": (1, count, 9), "factored": (8, 8), "whole": (7, 8)}
        return {n: jnp.asarray(draws.normal(size=s), jnp.float32) for n, s in shapes.items()}

    params = drawn(4)
    state, update = tx.init(params), jax.jit(tx.update)
    for _ in range(2):
        updates, state = update(drawn(4), state, params)
        params = optax.apply_updates(params, updates)
    before = {"params": params, "opt_state": state}
    grown = drawn(16)
    target = {"params": grown, "opt_state": tx.init(grown)}
    edit = InterpolatePositions(at="params/pos", size=(4, 4), method="cubic", optimizer=policy)
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "a", before)
        checkpointer.wait_until_finished()
        surgery.apply(str(tmp_path / "a"), str(tmp_path / "b"), plan_of([edit]))
        after = checkpointer.restore(tmp_path / "b", target)
    cubic, linear = (
        np.kron(*[matrix(2, 4, method, "centers")] * 2) for method in ("cubic", "linear")
    )

    def by(weights: np.ndarray, leaf: Any) -> np.ndarray:
        return np.einsum("pn,...nd->...pd", weights, np.asarray(leaf, np.float64))

    np.testing.assert_allclose(after["params"]["pos"], by(cubic, params["pos"]), 1e-5, 1e-6)
    old, new, fresh = (slots_of(tree) for tree in (state, after["opt_state"], target["opt_state"]))
    for path, leaf in new.items():
        assert leaf.shape == fresh[path].shape, path
        is_square = any(f".{field}[" in path for field in ("nu", "v", "v_row", "v_col"))
        if ".z[" in path or path.startswith(".params["):
            copied = after["params"]["pos"] if policy == "reset" else by(cubic, old[path])
            np.testing.assert_allclose(leaf, copied, 1e-5, 1e-6, err_msg=path)
        elif policy == "reset" or (not is_square and policy is None):
            np.testing.assert_array_equal(leaf, fresh[path], path)
        elif leaf.shape in ((), (1,)) or ".v_" in path:
            continue
        else:
            weights = linear if is_square else cubic
            np.testing.assert_allclose(leaf, by(weights, old[path]), 1e-5, 1e-7, err_msg=path)
    if name == "adafactor" and policy != "reset":
        moment = by(linear, old[next(path for path in old if ".v[" in path)])  # was not factored
        rows, columns = (
            next(leaf for path, leaf in new.items() if f".{field}[" in path)
            for field in ("v_row", "v_col")
        )
        np.testing.assert_allclose(rows, moment.mean(1), 1e-5)
        np.testing.assert_allclose(columns, moment.mean(2), 1e-5)
    squares = [leaf for path, leaf in new.items() if ".nu[" in path or ".v" in path]
    assert all((leaf >= 0).all() for leaf in squares)
    updates, _ = tx.update(grown, after["opt_state"], after["params"])
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(updates))


def slots_of(state: Any) -> dict[str, np.ndarray]:
    """The slots of the positions, by path."""
    return {
        jax.tree_util.keystr(path): np.asarray(leaf)
        for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]
        if any(getattr(key, "key", None) == "pos" for key in path)
    }


def test_keep_is_refused_as_the_shape_is_another(tmp_path: Path) -> None:
    params = {"pos": jnp.ones((16, 2))}
    saved(tmp_path / "a", {"params": params, "opt_state": optax.adam(1.0).init(params)})
    edit = InterpolatePositions(at="params/pos", size=(5, 5), optimizer="keep")
    with pytest.raises(PlanError, match="cannot hold"):
        surgery.plan(str(tmp_path / "a"), plan_of([edit]))


def test_positions_larger_than_the_memory_stream(tmp_path: Path) -> None:
    leaf = np.random.default_rng(0).normal(size=(4096, 512)).astype(np.float32)
    saved(tmp_path / "a", {"w": jnp.asarray(leaf)}, chunk=1 << 19)
    edit = InterpolatePositions(at="w", size=5000)
    report = surgery.apply(
        str(tmp_path / "a"),
        str(tmp_path / "b"),
        plan_of([edit]),
        options=Options(memory_bytes=8 << 20),
    )
    assert not any("takes more" in note for note in report.notes), report.notes
    expected = scipy.ndimage.zoom(
        leaf.astype(np.float64), (5000 / 4096, 1), order=1, mode="nearest"
    )
    np.testing.assert_allclose(restored(tmp_path / "b")["w"], expected, 1e-5, 1e-6)
