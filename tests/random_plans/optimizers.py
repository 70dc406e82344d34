"""Optimizer states as optax lays them out, filled with numbers of their own, and what is true of each slot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
import optax

from tests.random_plans.model import Path, Slot

FACTORED_FROM = 3
"""Adafactor factors leaves whose second-largest axis is at least this long."""

_FIELDS: dict[str, dict[str, Any]] = {
    "mu": {"power": -1},
    "nu": {"power": -2, "is_even": True, "is_second": True},
    "trace": {"power": -1},
    "v": {"power": -2, "is_even": True, "is_second": True},
    "v_row": {"power": -2, "is_even": True, "is_second": True},
    "v_col": {"power": -2, "is_even": True, "is_second": True},
}
"""How the slots of each field follow a factor of their param, where nothing stands before them in the chain."""


def _multi(params: Any) -> Any:
    names = sorted(params)
    groups = {
        name: "still" if n == 0 and len(names) > 1 else "trained" for n, name in enumerate(names)
    }
    return optax.multi_transform(
        {"trained": optax.adam(1e-3), "still": optax.set_to_zero()}, groups
    )


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "adam": lambda params: optax.adam(1e-3),
    "momentum": lambda params: optax.sgd(0.1, momentum=0.9),
    "adafactor": lambda params: optax.adafactor(1e-3, min_dim_size_to_factor=FACTORED_FROM),
    "chain": lambda params: optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3)),
    "injected": lambda params: optax.inject_hyperparams(optax.adam)(learning_rate=1e-3),
    "multi": _multi,
}

TOLD = {"adam": "adam", "momentum": "sgd", "adafactor": "adafactor", "nnx": "adam"}
"""What a plan may say of the kind, for the whole state."""


_SETTINGS = {"learning_rate": 1e-3, "b1": 0.9, "b2": 0.999, "eps": 1e-8}


@dataclass
class Facts:
    """What is true of a state: its slots and counters, by typed paths in the tree."""

    slots: dict[Path, Slot] = field(default_factory=dict)
    clocks: dict[Path, Path] = field(default_factory=dict)

    def renamed(self, place: Callable[[Path], Path]) -> Facts:
        """The facts where paths are stored in another way."""
        slots = [
            Slot(
                **{
                    **slot.__dict__,
                    "path": place(slot.path),
                    "param": place(slot.param),
                    "node": place(slot.node),
                    "root": place(slot.root),
                }
            )
            for slot in self.slots.values()
        ]
        clocks = {place(clock): place(owner) for clock, owner in self.clocks.items()}
        return Facts({slot.path: slot for slot in slots}, clocks)


def state_of(name: str, params: Any, seed: int) -> Any:
    """The optimizer's state for params, every slot filled as if it had been trained for a while."""
    abstract = jax.eval_shape(OPTIMIZERS[name](params).init, params)
    numbers = np.random.default_rng(seed)
    shapes = {
        _keys(p): np.shape(leaf) for p, leaf in jax.tree_util.tree_flatten_with_path(params)[0]
    }

    def fill(keys: tuple[Any, ...], leaf: Any) -> Any:
        names = [key.name for key in keys if hasattr(key, "name")]
        dtype = np.dtype(leaf.dtype)
        if dtype.kind == "i":
            return np.full(leaf.shape, 50, dtype)
        if "hyperparams" in names:
            return np.full(leaf.shape, _SETTINGS.get(keys[-1].key, 0), dtype)
        if _is_placeholder(keys, leaf, shapes):
            return np.zeros(leaf.shape, dtype)
        values = np.asarray(numbers.uniform(0.05, 1.0, leaf.shape))
        is_signed = any(name in names for name in ("mu", "trace"))
        signs = numbers.choice([-1, 1], leaf.shape) / 4 if is_signed else 1
        return np.asarray(values * signs).astype(dtype)

    return jax.tree_util.tree_map_with_path(fill, abstract)


def _keys(path: tuple[Any, ...]) -> Path:
    """Typed keys of a JAX path, as a restore without a target has them."""
    found = []
    for key in path:
        name = next(n for n in ("name", "key", "idx") if hasattr(key, n))
        value = getattr(key, name)
        found.append(value if isinstance(value, int) and name == "idx" else str(value))
    return tuple(found)


def facts_of(state: Any, params: Any, at: Path, root: Path) -> Facts:
    """What is true of ``state``, which stands at ``at``; its params stand at ``root``."""
    is_hole = lambda leaf: isinstance(leaf, optax.MaskedNode)  # noqa: E731
    shapes = {
        _keys(p): np.shape(leaf) for p, leaf in jax.tree_util.tree_flatten_with_path(params)[0]
    }
    nodes = {path[:n] for path in shapes for n in range(len(path) + 1)}
    facts = Facts()
    found, _ = jax.tree_util.tree_flatten_with_path(state, is_leaf=is_hole)
    for path, leaf in found:
        keys = _keys(path)
        fields = [n for n, key in enumerate(keys) if key in _FIELDS and keys[n + 1 :] in nodes]
        if not fields:
            continue
        depth = fields[0] + 1
        inside = keys[depth:]
        relation = "hole" if is_hole(leaf) else _relation(keys[depth - 1], shapes[inside])
        slot = Slot(
            (*at, *keys),
            (*root, *inside),
            (*at, *keys[:depth]),
            root,
            relation=relation,
            **_FIELDS[str(keys[depth - 1])],
        )
        facts.slots[slot.path] = slot
    owners = {slot.state for slot in facts.slots.values()}
    for path, _ in found:
        keys = (*at, *_keys(path))
        if keys[-1] == "count" and keys[:-1] in owners:
            facts.clocks[keys] = keys[:-1]
    return facts


def _is_placeholder(keys: tuple[Any, ...], leaf: Any, shapes: dict[Path, tuple[int, ...]]) -> bool:
    """True for the (1,) that stands where Adafactor keeps nothing."""
    typed = _keys(keys)
    depth = next((n for n, key in enumerate(typed) if key in ("v", "v_row", "v_col")), None)
    return depth is not None and _relation(typed[depth], shapes[typed[depth + 1 :]]) == "one"


def _relation(field: str | int, shape: tuple[int, ...]) -> str:
    if field not in ("v", "v_row", "v_col"):
        return "same"
    is_factored = len(shape) > 1 and sorted(shape)[-2] >= FACTORED_FROM
    if field == "v":
        return "one" if is_factored else "same"
    return "factored" if is_factored else "one"
