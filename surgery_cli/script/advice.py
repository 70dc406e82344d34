"""What to say of a breach that no edit mends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from surgery_cli.draft.slots import Slot
from surgery_cli.script.contract import Breach, Subtree
from surgery_cli.tree.nested import Branch
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec

ANOTHER_OPTIMIZER: Final = (
    "the script's optimizer is another: take its state from a checkpoint that the script saves fresh, and "
    "what both have from this one; docs/changing-the-optimizer.md has the plans"
)
FRESH: Final = (
    "the checkpoint has no values for it: leave it out of the function, or restore with "
    "`partial_restore=True`, which keeps the values of a concrete target"
)
_FRESH_STATE: Final = (
    "the checkpoint has no values for it: take it from a checkpoint that the script saves fresh "
    "(docs/changing-the-optimizer.md), or restore with `partial_restore=True`"
)
_DIGITS: Final = (
    "build it as the other side has it: lists and dicts with keys '0', '1' are two things to Orbax"
)
_NOTHING: Final = (
    "None on one side, values on the other: is a part frozen or masked on one side only?"
)
_LEAF: Final = "a leaf on one side, a subtree on the other: let the function build what is stored"
_NAMES: Final = (
    "elements of a list on one side, names on the other: let the function build what is stored, or `rename` "
    "with `moves`"
)
_KIND: Final = (
    "let the function give what is stored: PRNG keys of the same implementation, strings as strings"
)


def optimizer_states(*slots: Mapping[LeafPath, Slot]) -> set[LeafPath]:
    """The nodes that hold optimizer states: what is above the slots, up to where their params stand apart.

    >>> mu = Slot(path=LeafPath(("s", "opt", 0, "mu", "w")), param=LeafPath(("s", "params", "w")), name="mu",
    ...           power=-1, node=LeafPath(("s", "opt", 0, "mu")), root=LeafPath(("s", "params")))
    >>> [str(node) for node in optimizer_states({mu.path: mu})]
    ['s/opt']
    """
    pairs = {
        (slot.node, slot.root) for side in slots for slot in side.values() if slot.in_optimizer
    }
    return {LeafPath(node[: _shared(node, root) + 1]) for node, root in pairs}


def _shared(one: LeafPath, other: LeafPath) -> int:
    """How many first keys two paths share."""
    return next(
        (depth for depth, keys in enumerate(zip(one, other, strict=False)) if keys[0] != keys[1]),
        min(len(one), len(other)),
    )


def advice(breach: Breach, states: Iterable[LeafPath]) -> str:
    """What a person can do about a breach; ``states`` are the nodes of optimizer states."""
    is_optimizer = any(breach.path.is_below(node) for node in states)
    if breach.what == "missing":
        return _FRESH_STATE if is_optimizer else FRESH
    if breach.what == "kind":
        return _KIND
    if breach.what not in ("container", "empty"):
        return ""
    if is_list_for_digits(breach.stored, breach.wanted):
        return _DIGITS
    if is_optimizer:
        return ANOTHER_OPTIMIZER
    sides = (breach.stored, breach.wanted)
    if any(isinstance(side, LeafSpec) and side.kind is LeafKind.EMPTY for side in sides):
        return _NOTHING
    return _LEAF if any(isinstance(side, LeafSpec) for side in sides) else _NAMES


def is_list_for_digits(one: Subtree | None, other: Subtree | None) -> bool:
    """True of a list and a dict whose keys are the digits of indices, either way round."""
    if not isinstance(one, Branch) or not isinstance(other, Branch):
        return False
    lists = [all(isinstance(key, int) for key in side) for side in (one, other)]
    digits = [all(str(key).isdigit() for key in side) for side in (one, other)]
    return lists[0] != lists[1] and all(digits)
