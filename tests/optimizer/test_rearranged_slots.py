"""Slots of params whose elements moved: optax's own state of the new shapes says what each must be.

Every edit has a param of its own under every policy, so that each optimizer is trained, saved and edited once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.operations.base import LeafOperation
from surgery_cli.operations.expand import Expand
from surgery_cli.operations.pad import Pad
from surgery_cli.operations.permute import Permute
from surgery_cli.operations.repeat import Repeat
from surgery_cli.operations.reshape import Reshape
from surgery_cli.operations.resize import Resize
from surgery_cli.operations.slice import Slice
from surgery_cli.operations.transpose import Transpose
from surgery_cli.planning import plan_of

POLICIES = ("keep", "transform", "reset", "warm")
STEPS = 3
Shape = tuple[int, ...]


class Edit(NamedTuple):
    """An edit, and what NumPy says that it does; ``with_means``: to what gets the mean along the axis in new places.

    ``commutes``: training with moved gradients gives the moved state, of slots whose elements go alone; ``always``: of
    factored ones, too.
    """

    make: Callable[..., LeafOperation]
    moved: Callable[[Any], Any]
    with_means: Callable[[Any], Any] | None = None
    commutes: bool = True
    always: bool = False


def turned(shape: Shape) -> Shape:
    return (*range(1, len(shape)), 0)


def halved(shape: Shape) -> Shape:
    part = 2 if math.prod(shape) % 2 == 0 else 3
    return (part, math.prod(shape) // part)


def padded(x: Any, axis: int, before: int, after: int, fill: Any) -> Any:
    widths = [(0, 0)] * x.ndim
    widths[axis] = (before, after)
    return (
        np.pad(x, widths, mode="mean") if fill is None else np.pad(x, widths, constant_values=fill)
    )


def edits(shape: Shape) -> dict[str, Edit]:
    order = tuple(np.random.default_rng(0).permutation(shape[-1]).tolist())
    merged = (math.prod(shape[:-1]), shape[-1])
    longest, shorter = max(shape), min(max(shape), LEAST) - 1
    return {
        "transpose": Edit(
            lambda **f: Transpose(axes=turned(shape), **f),
            lambda x: np.transpose(x, turned(shape)),
            always=True,
        ),
        "permute": Edit(
            lambda **f: Permute(axis=-1, index=order, **f),
            lambda x: np.take(x, order, -1),
            always=True,
        ),
        "halve": Edit(
            lambda **f: Reshape(shape=halved(shape), **f), lambda x: np.reshape(x, halved(shape))
        ),
        "merge": Edit(lambda **f: Reshape(shape=merged, **f), lambda x: np.reshape(x, merged)),
        "expand": Edit(lambda **f: Expand(axis=1, **f), lambda x: np.expand_dims(x, 1)),
        "layers": Edit(
            lambda **f: Repeat(axis=0, times=2, **f),
            lambda x: np.repeat(x, 2, 0),
            commutes=False,  # a norm of the whole leaf grows
        ),
        "experts": Edit(
            lambda **f: Repeat(axis=0, times=2, new_axis=True, **f),
            lambda x: np.stack([x, x]),
            commutes=False,
        ),
        "slice": Edit(
            lambda **f: Slice(slices="1:", **f), lambda x: x[1:], commutes=False
        ),
        "pad": Edit(
            lambda **f: Pad(axis=0, after=2, **f),
            lambda x: padded(x, 0, 0, 2, 0.0),
            lambda x: padded(x, 0, 0, 2, None),
            commutes=False,
        ),
        "pad in front": Edit(
            lambda **f: Pad(axis=-1, before=3, **f),
            lambda x: padded(x, -1, 3, 0, 0.0),
            lambda x: padded(x, -1, 3, 0, None),
            commutes=False,
        ),
        "grow": Edit(
            lambda **f: Resize(axis=-1, size=longest + 3, fill="zeros", **f),
            lambda x: padded(x, -1, 0, longest + 3 - shape[-1], 0.0),
            lambda x: padded(x, -1, 0, longest + 3 - shape[-1], None),
            commutes=False,
        ),
        "shrink": Edit(
            lambda **f: Resize(axis=shape.index(longest), size=shorter, **f),
            lambda x: np.take(x, range(shorter), shape.index(longest)),
            commutes=False,
        ),
    }  # fmt: skip


LEAST = 6
FACTORED = {"min_dim_size_to_factor": LEAST, "multiply_by_parameter_scale": False}

CASES: dict[str, tuple[Any, Shape]] = {
    "same": (optax.adamw(1e-2), (6, 4)),
    "same, three axes": (optax.adam(1e-2), (3, 4, 2)),
    "same, one axis": (optax.adam(1e-2), (6,)),
    "stacked": (optax.scale_by_lbfgs(memory_size=2), (6, 4)),
    "scalar": (optax.novograd(1e-2), (6, 4)),
    "a copy of the params": (optax.contrib.schedule_free_sgd(1e-2), (6, 4)),
    "factored": (optax.adafactor(1e-2, momentum=0.9, **FACTORED), (9, 6)),
    "factored, square": (optax.adafactor(1e-2, **FACTORED), (6, 6)),
    "factored, three axes": (optax.adafactor(1e-2, **FACTORED), (2, 7, 6)),
    "not factored": (optax.adafactor(1e-2, **FACTORED), (9, 5)),
    "factored once merged": (optax.adafactor(1e-2, **FACTORED), (2, 3, 14)),
    "holes": (
        optax.masked(optax.adam(1e-2), lambda params: {n: n != "merge" for n in params}),
        (6, 4),
    ),
}
OTHERS: dict[str, Any] = {"factored": np.ones((LEAST, LEAST)), "whole": np.ones((LEAST - 1, 9))}
"""Params that show from where on Adafactor takes a moment apart."""


def trained(tx: Any, shape: Shape, moves: dict[str, Callable[[Any], Any]]) -> dict[str, Any]:
    """Params and state after a few steps, all gradients moved."""
    rng = np.random.default_rng(0)

    def drawn() -> Any:
        own = {name: move(rng.normal(size=shape)) for name, move in moves.items()}
        return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), own | OTHERS)

    params = drawn()
    state, update = tx.init(params), jax.jit(tx.update)
    for _ in range(STEPS):
        updates, state = update(drawn(), state, params)
        params = optax.apply_updates(params, updates)
    return {"params": params, "opt_state": state}


def shared_out(tree: Any, names: Sequence[str]) -> Any:
    """The tree with every param, and what a state has of it, once for every policy."""

    def of_params(node: Any) -> bool:
        return isinstance(node, dict) and node.keys() >= set(names)

    def many(node: Any) -> Any:
        if not of_params(node):
            return node
        own = {f"{name}, {policy}": node[name] for name in names for policy in POLICIES}
        return own | {name: node[name] for name in OTHERS}

    return jax.tree.map(many, tree, is_leaf=of_params)


def of_param(state: Any, name: str) -> dict[str, np.ndarray]:
    """The slots of one param, by path."""
    found = jax.tree_util.tree_flatten_with_path(state)[0]
    return {
        jax.tree_util.keystr(path): np.asarray(leaf)
        for path, leaf in found
        if any(getattr(key, "key", None) == name for key in path)
    }


def axes_of(shape: Shape) -> tuple[int, int] | None:
    """The axes over which Adafactor takes means of rows and columns, as its paper and optax say; None if of none."""
    order = np.argsort(shape)
    if len(shape) < 2 or shape[order[-2]] < LEAST:
        return None
    return int(order[-1]), int(order[-2])


def refactored(slots: dict[str, np.ndarray], shape: Shape, edit: Edit) -> dict[str, np.ndarray]:
    """The three parts of Adafactor's second moment: rebuilt, moved, and taken apart again."""
    parts = {path.split("['")[0].split(".")[-1]: path for path in slots if ".v" in path}
    row, column, whole = (slots[parts[part]].astype(float) for part in ("v_row", "v_col", "v"))
    axes = axes_of(shape)
    if axes is not None:
        first, second = axes
        full = np.expand_dims(row, first)
        whole = full / full.mean(second, keepdims=True) * np.expand_dims(column, second)
    moved = (edit.with_means or edit.moved)(whole)
    axes = axes_of(moved.shape)
    none = np.zeros(1)
    if axes is None:
        return {parts["v_row"]: none, parts["v_col"]: none, parts["v"]: moved}
    means = (moved.mean(axis) for axis in axes)
    return dict(zip((parts["v_row"], parts["v_col"], parts["v"]), (*means, none), strict=True))


@pytest.mark.sampled(9)
@pytest.mark.parametrize("case", CASES)
def test_every_slot_is_as_optax_would_have_it(case: str, tmp_path: Path) -> None:
    tx, shape = CASES[case]
    some = edits(shape)
    every = {f"{n}, {policy}": (edit, policy) for n, edit in some.items() for policy in POLICIES}
    before = shared_out(trained(tx, shape, dict.fromkeys(some, lambda x: x)), [*some])
    moves = {name: edit.moved for name, (edit, _) in every.items()}
    same = {n: edit.moved if edit.commutes else lambda x: x for n, edit in some.items()}
    expected = trained(tx, shape, same)["opt_state"]
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "before", before)
        checkpointer.wait_until_finished()
        plan = [
            edit.make(at=f"params/{n}", optimizer=policy) for n, (edit, policy) in every.items()
        ]
        surgery.apply(str(tmp_path / "before"), str(tmp_path / "after"), plan_of(plan))
        params = {
            name: jnp.asarray(moves.get(name, np.asarray)(np.asarray(leaf)))
            for name, leaf in before["params"].items()
        }
        one = {n: params.get(n, params.get(f"{n}, keep")) for n in (*some, *OTHERS)}
        fresh = shared_out(tx.init(one), [*some])
        target = {"params": params, "opt_state": fresh}
        target = jax.tree.map(ocp.utils.to_shape_dtype_struct, target)
        found = checkpointer.restore(tmp_path / "after", target)
    for name, (edit, policy) in every.items():
        np.testing.assert_array_equal(found["params"][name], params[name])
        old, new = (of_param(tree["opt_state"], name) for tree in (before, found))
        start = of_param(fresh, name)
        follows = of_param(expected, name.split(", ")[0])
        is_factored = any(".v_row" in path for path in old)
        model = refactored(old, shape, edit) if is_factored else {}
        for path, slot in new.items():
            assert slot.shape == start[path].shape, (name, path)
            is_square = any(f".{field}[" in path for field in ("nu", "v", "v_row", "v_col"))
            is_copy = ".z[" in path or path.startswith(".params[")
            said = f"{name}: {path}"
            if is_copy:
                np.testing.assert_array_equal(
                    slot, edit.moved(old[path]) if policy != "reset" else params[name], said
                )
            elif policy == "reset" or (policy == "warm" and not is_square):
                np.testing.assert_array_equal(slot, start[path], said)
            elif edit.commutes and (edit.always or not is_factored):
                np.testing.assert_allclose(
                    slot, follows[path.replace(f", {policy}", "")], 2e-5, 1e-7, err_msg=said
                )
            elif path in model:
                np.testing.assert_allclose(slot, model[path], 1e-5, 1e-7, err_msg=said)
            elif old[path].shape in ((), (1,)):
                np.testing.assert_array_equal(slot, old[path], said)
            elif old[path].ndim > len(shape):
                np.testing.assert_array_equal(slot, [edit.moved(x) for x in old[path]], said)
            else:
                move = edit.with_means if is_square and edit.with_means else edit.moved
                np.testing.assert_allclose(slot, move(old[path]), 1e-6, err_msg=said)


@pytest.mark.parametrize("policy", ["transform", "reset", "warm"])
def test_vectors_for_axes_move_with_them(tmp_path: Path, policy: str) -> None:
    tx, shape = optax.sm3(1e-2), (6, 4)
    some = {n: edit for n, edit in edits(shape).items() if n in VECTORS}
    same = {
        n: edit.moved if n in ("transpose", "permute") else lambda x: x for n, edit in some.items()
    }
    before = trained(tx, shape, dict.fromkeys(some, lambda x: x))
    expected = trained(tx, shape, same)["opt_state"]
    plan = [edit.make(at=f"params/{n}", optimizer=policy) for n, edit in some.items()]
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "before", before)
        checkpointer.wait_until_finished()
        surgery.apply(str(tmp_path / "before"), str(tmp_path / "after"), plan_of(plan))
        params = {n: jnp.asarray(edit.moved(before["params"][n])) for n, edit in some.items()}
        fresh = tx.init({**before["params"], **params})
        target = {"params": {**before["params"], **params}, "opt_state": fresh}
        found = checkpointer.restore(tmp_path / "after", target)
    for name, (axis, move) in VECTORS.items():
        old, new, follows, start = (
            of_param(state, name)
            for state in (before["opt_state"], found["opt_state"], expected, fresh)
        )
        for path, slot in new.items():
            assert slot.shape == start[path].shape, (name, path)
            if policy == "reset" or (policy == "warm" and ".nu[" in path):
                np.testing.assert_array_equal(slot, start[path], path)
            elif name in ("transpose", "permute"):
                np.testing.assert_allclose(slot, follows[path], 1e-5, err_msg=f"{name}: {path}")
            elif ".mu[" in path:
                moved = move(old[path]) if path.endswith(f"[{axis}]") else old[path]
                np.testing.assert_allclose(slot, moved, 1e-6, err_msg=f"{name}: {path}")


VECTORS: dict[str, tuple[int, Callable[[Any], Any]]] = {
    "transpose": (0, lambda x: x),
    "permute": (0, lambda x: x),
    "layers": (0, lambda x: np.repeat(x, 2)),
    "slice": (0, lambda x: x[1:]),
    "grow": (1, lambda x: padded(x, 0, 0, 5, None)),
    "shrink": (0, lambda x: x[:5]),
}
"""Of the edits that keep axes apart: which axis changes, and how a vector for it does."""


def test_a_param_with_an_axis_of_1_shows_whether_it_is_factored(tmp_path: Path) -> None:
    params = {"pos": jnp.ones((1, 4, 6)), "token": jnp.ones((1, 6))}
    tx = optax.adafactor(1e-2, min_dim_size_to_factor=4)
    with ocp.StandardCheckpointer() as checkpointer:
        state = {"params": params, "opt_state": tx.init(params)}
        checkpointer.save(tmp_path / "a", state)
        checkpointer.wait_until_finished()
        plan = plan_of([Transpose(at="params/pos")])
        report = surgery.apply(str(tmp_path / "a"), str(tmp_path / "b"), plan)
        found = checkpointer.restore(tmp_path / "b")
    turned = {**params, "pos": jnp.ones((6, 4, 1))}
    expected = jax.tree.map(np.shape, tx.init(turned)[0]._asdict())
    assert jax.tree.map(np.shape, found["opt_state"][0]) == expected
    assert not any("is taken to factor" in note for note in report.notes)
