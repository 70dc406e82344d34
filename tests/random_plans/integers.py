"""Integers that an edit computes with: as float64, rounded once to the nearest, refused where they do not fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from tests.random_plans.model import Fields, Leaf, Refused, State, Words, printed
from tests.random_plans.patterns import select

if TYPE_CHECKING:
    from tests.random_plans.world import World

Reference = Callable[[State, Fields, "World", Words], None]
EXACT = 2**53


def with_integers(reference: Reference) -> Reference:
    """The reference of an edit that may say `integers: true`."""

    def edited(state: State, edit: Fields, world: World, words: Words) -> None:
        if not edit.get("integers") or not edit.get("at"):  # all leaves are all floating ones
            reference(state, edit, world, words)
            return
        named = [path for path in select(state, edit) if state.leaves[path].is_integer]
        if edit["op"] != "average" and any(path in state.clocks for path in named):
            raise Refused(2, "a counter of the optimizer's steps")
        old = {path: state.leaves[path] for path in named}
        for path, leaf in old.items():
            if (np.abs(np.float64(leaf.value)) > EXACT).any():
                state.refuse_value(f"'{printed(path)}' is beyond what float64 holds")
            wide = float(leaf.value) if leaf.is_python else np.float64(leaf.value)
            state.leaves[path] = replace(leaf, value=wide)
        wide_leaves = {path: state.leaves[path] for path in old}
        reference(state, edit, world, words)
        for path, leaf in old.items():
            new = state.leaves[path]
            state.leaves[path] = leaf if new is wide_leaves[path] else _rounded(new, leaf, state)

    return edited


def _rounded(new: Leaf, old: Leaf, state: State) -> Leaf:
    value = np.float64(new.value)
    whole = np.rint(value)
    limits: Any = ml_dtypes.iinfo(old.dtype)
    if (
        new.known
        and not (
            (whole >= max(int(limits.min), -EXACT)) & (whole <= min(int(limits.max), EXACT))
        ).all()
    ):
        state.refuse_value("an integer is beyond its dtype")
        whole = np.zeros_like(whole)
    is_doubtful = np.abs(np.abs(value - np.floor(value)) - 0.5) < 1e-9 * np.maximum(
        1, np.abs(value)
    )
    fitting = int(whole) if old.is_python else whole.astype(old.dtype)
    return replace(old, value=fitting, known=new.known and not is_doubtful.any())
