"""What rules say of the tree as it stands, in NumPy: nothing changes, or the plan is refused."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.random_plans.model import Fields, Leaf, Path, Refused, State, Words, printed
from tests.random_plans.patterns import select
from tests.random_plans.world import World


def assertion(state: State, edit: Fields, world: World, words: Words) -> None:
    everything = not edit.get("at")
    meant = {**edit, "optional": edit.get("count") == 0}
    named = select(state, meant, skips_empties=False, names_twins=True, everything=everything)
    selected = [path for path in named if not state.leaves[path].is_empty]
    if "count" in edit and len(selected) != edit["count"]:
        raise Refused(2, f"{len(selected)} leaves, not {edit['count']}")
    leaves = [(path, state.leaves[path]) for path in selected]
    for path, leaf in leaves:
        if "dtype" in edit and leaf.dtype != edit["dtype"]:
            raise Refused(2, f"'{printed(path)}' is {leaf.dtype}")
        if "shape" in edit and (not leaf.dtype or list(leaf.shape) != edit["shape"]):
            raise Refused(2, f"'{printed(path)}' has another shape")
        if "norm" in edit and not everything and not _is_number(leaf):
            raise Refused(2, f"'{printed(path)}' has no norm")
    for path, leaf in leaves:
        if "norm" in edit and _is_measured(leaf, everything):
            _judge_norm(state, path, leaf, edit["norm"])
        if "finite" in edit and _is_measured(leaf, True) and not np.isfinite(_wide(leaf)).all():
            state.refuse_value(f"'{printed(path)}' is not finite")


def _is_number(leaf: Leaf) -> bool:
    return leaf.is_floating or leaf.is_complex or leaf.is_integer


def _is_measured(leaf: Leaf, floats_alone: bool) -> bool:
    return leaf.is_floating or leaf.is_complex or (leaf.is_integer and not floats_alone)


def _wide(leaf: Leaf) -> Any:
    return np.abs(np.asarray(leaf.value)).astype(np.float64)


def _judge_norm(state: State, path: Path, leaf: Leaf, bounds: str) -> None:
    """The norm is at most a number; how it comes out close to that is left open."""
    most = float(bounds.removeprefix(".."))
    norm = float(np.linalg.norm(_wide(leaf)))
    if not leaf.known or abs(norm - most) <= 0.05 * most:
        state.may[1] = f"the norm of '{printed(path)}' is about {norm}"
    elif not norm <= most:
        state.refuse_value(f"the norm of '{printed(path)}' is {norm}")


OPERATIONS = {"assert": assertion}
