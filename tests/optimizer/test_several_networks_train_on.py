"""Hidden units of one of two networks in another order: Orbax restores it, and both take the steps they would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.planning import plan_from_document

TX = optax.adam(1e-2)
ORDER = [3, 1, 0, 2]
X = np.random.default_rng(0).normal(size=(16, 4)).astype(np.float32)
LAYOUTS = {
    "states in one dict": (
        "policy/params",
        "opt_state/policy",
        "critic/params",
        "opt_state/critic",
    ),
    "prefixed": ("params", "opt_state", "critic_params", "critic_opt_state"),
    "nested": ("params", "opt_state", "critic/params", "critic/opt_state"),
    "players": ("g", "opt_g", "d", "opt_d"),
    "players, and an average": ("g", "opt_g", "d", "opt_d", "ema_g"),
    "variables, and an average": ("variables/params", "opt_state", "d", "opt_d", "ema_params"),
    "models": ("actor/model", "actor/optimizer", "critic/model", "critic/optimizer"),
}


def _net(seed: int) -> Any:
    draw = np.random.default_rng(seed)
    shapes = {"d0": {"kernel": (4, 4), "bias": (4,)}, "d1": {"kernel": (4, 2), "bias": (2,)}}
    is_shape = lambda x: isinstance(x, tuple)  # noqa: E731
    return jax.tree.map(
        lambda s: jnp.asarray(draw.normal(size=s), jnp.float32), shapes, is_leaf=is_shape
    )


def _out(params: Any) -> Any:
    hidden = jnp.tanh(X @ params["d0"]["kernel"] + params["d0"]["bias"])
    return hidden @ params["d1"]["kernel"] + params["d1"]["bias"]


def _step(params: Any, state: Any) -> tuple[Any, Any]:
    updates, state = TX.update(jax.grad(lambda p: (_out(p) ** 2).mean())(params), state, params)
    return optax.apply_updates(params, updates), state


def _trained(seed: int) -> tuple[Any, Any]:
    params = _net(seed)
    state = TX.init(params)
    for _ in range(5):
        params, state = _step(params, state)
    return params, state


def _put(tree: dict[str, Any], place: str, value: Any) -> None:
    *above, last = place.split("/")
    for key in above:
        tree = tree.setdefault(key, {})
    tree[last] = value


def _at(tree: Any, place: str) -> Any:
    for key in place.split("/"):
        tree = tree[key]
    return tree


@pytest.mark.sampled(2)
@pytest.mark.parametrize("edited", [0, 1], ids=["first", "second"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_both_take_the_steps_that_they_would(layout: str, edited: int, tmp_path: Path) -> None:
    places, copies = LAYOUTS[layout][:4], LAYOUTS[layout][4:]
    before = [_trained(1), _trained(2)]  # just alike, but for their values
    tree: dict[str, Any] = {}
    for (params, state), at in zip(before, (places[:2], places[2:]), strict=True):
        _put(tree, at[0], params)
        _put(tree, at[1], state)
    for copy in copies:
        _put(tree, copy, before[0][0])
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "run", tree)
    node = places[2 * edited]
    edits = [
        {"op": "permute", "at": f"{node}/d0", "index": ORDER, "axis": -1},
        {"op": "permute", "at": f"{node}/d1/kernel", "index": ORDER, "axis": 0},
    ]
    document = {"edits": edits}

    surgery.apply(str(tmp_path / "run"), str(tmp_path / "new"), plan_from_document(document))

    target = jax.tree.map(ocp.utils.to_shape_dtype_struct, tree)
    with ocp.StandardCheckpointer() as checkpointer:
        found = checkpointer.restore(tmp_path / "new", target)
    after = [(_at(found, at), _at(found, of)) for at, of in (places[:2], places[2:])]
    for number in (0, 1):
        (was, state), (now, new_state) = before[number], after[number]
        assert (number == edited) != np.array_equal(was["d0"]["kernel"], now["d0"]["kernel"])
        for _ in range(3):
            (was, state), (now, new_state) = _step(was, state), _step(now, new_state)
            np.testing.assert_allclose(_out(now), _out(was), rtol=0, atol=2e-6)
