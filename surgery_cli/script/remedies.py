"""The edits that mend one breach, and advice where none does; never one that loses what may only have been renamed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from surgery_cli.script.contract import Breach, Subtree, leaf_breach, specs_below
from surgery_cli.script.findings import Edit, Slots
from surgery_cli.tree.dtypes import family
from surgery_cli.tree.nested import Branch
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec, TreeSpec
from surgery_cli.tree.targets import target_text
from surgery_cli.words.lists import listed

OR: Final = "or "
"""What advice begins with that is another way than edits."""

_PARTIAL: Final = f"{OR}let the function return it too"


def remedy(
    breach: Breach,
    others: Sequence[Breach],
    stored: TreeSpec,
    slots: Slots,
    states: Collection[LeafPath],
) -> tuple[tuple[Edit, ...], str]:
    """The edits that mend a breach, and advice; ``others`` are all that are left, ``states`` optimizer states."""
    wanted, here = breach.wanted, breach.stored
    if breach.what == "extra":
        names = _explaining(breach, others, states)
        return ((), _maybe(names)) if names else ((_deletion(breach, slots),), _PARTIAL)
    if breach.what == "missing":
        return _fillings(breach, others, stored, slots, states)
    if breach.what == "dtype":
        return _cast(breach, stored)
    if breach.what == "shape" and isinstance(here, LeafSpec) and isinstance(wanted, LeafSpec):
        if sorted(here.shape) == sorted(wanted.shape):
            return (), "the axes stand in another order: transpose the values, or the model's"
        return (), (
            f"build the model with {list(here.shape)}, or let the restore skip this leaf and start it fresh"
        )
    if is_begun(breach):
        return _counted(breach, stored, slots, states)
    if is_emptied(breach):
        return ({"op": "delete", "at": f"{breach.path.exact_pattern}/*"},), ""
    return (), advice(breach, states)


def _explaining(
    breach: Breach, others: Sequence[Breach], states: Collection[LeafPath]
) -> list[LeafPath]:
    """What is missing on the other side and has leaves like those of ``breach``: a rename may explain both."""
    side, opposite = (
        (breach.stored, "missing") if breach.what == "extra" else (breach.wanted, "extra")
    )
    own, in_optimizer = _shapes(side), _has_state(breach.path, states)
    found = []
    for other in others:
        there = other.wanted if opposite == "missing" else other.stored
        is_same = in_optimizer == _has_state(other.path, states)
        if other.what == opposite and is_same and own & _shapes(there):
            found.append(other.path)
    return found


def _has_state(path: LeafPath, states: Collection[LeafPath]) -> bool:
    """True for a part of the optimizer state, and for what holds one."""
    return any(path.is_below(state) or state.is_below(path) for state in states)


def _shapes(side: Subtree | None) -> set[tuple[tuple[int, ...], str]]:
    """The shapes and sorts of the arrays of a subtree; a single number is like any other, so it tells nothing."""
    if side is None:
        return set()
    specs = specs_below(side).values()
    return {(spec.shape, family(spec.dtype)) for spec in specs if spec.has_array and spec.shape}


def _maybe(names: Sequence[LeafPath]) -> str:
    are = "is" if len(names) == 1 else "are"
    return (
        f"it may be what the script calls {listed(names, 4)}, which {are} missing here: `rename` keeps its values,"
        " where `delete` loses them"
    )


def _fillings(
    breach: Breach,
    others: Sequence[Breach],
    stored: TreeSpec,
    slots: Slots,
    states: Collection[LeafPath],
) -> tuple[tuple[Edit, ...], str]:
    """Copies of a place without values where the script has nothing else; advice where it has values."""
    assert breach.wanted is not None
    leaves = specs_below(breach.wanted)
    said = advice(breach, states)
    if any(spec.kind is not LeafKind.EMPTY for spec in leaves.values()):
        names = _explaining(breach, others, states)
        may_be = (
            f"it may be what is {listed(names, 4)} here: `rename` it; if not, " if names else ""
        )
        return (), may_be + said
    empties = [p for p, spec in stored.items() if spec.kind is LeafKind.EMPTY and p not in slots]
    empties.sort(key=lambda path: path.parent != breach.path.parent)
    empties += [other.path for other in others if is_emptied(other)]
    if not empties:
        return (), said
    places = (breach.path / path for path in leaves)
    copies = (
        {"op": "copy", "at": empties[0].exact_pattern, "to": target_text(to)} for to in places
    )
    return tuple(copies), ""


def is_emptied(breach: Breach) -> bool:
    """True for numbers, such as the count of a schedule, of which the script has none: a constant needs no count."""
    return breach.what == "container" and _are_numbers(breach.stored) and _is_empty(breach.wanted)


def is_begun(breach: Breach) -> bool:
    """True for a count of which the checkpoint has none: a constant that became a schedule."""
    return breach.what == "container" and _is_empty(breach.stored) and _are_numbers(breach.wanted)


def _are_numbers(node: Subtree | None) -> bool:
    leaves = specs_below(node) if isinstance(node, Branch) else {}
    return bool(leaves) and all(len(p) == 1 and spec.shape == () for p, spec in leaves.items())


def _is_empty(node: Subtree | None) -> bool:
    return isinstance(node, LeafSpec) and node.kind is LeafKind.EMPTY


def _counted(
    breach: Breach, stored: TreeSpec, slots: Slots, states: Collection[LeafPath]
) -> tuple[tuple[Edit, ...], str]:
    """The count of the moments in the place of a schedule's that was not there: both count the same steps."""
    assert isinstance(breach.wanted, Branch)
    state = next((node for node in states if breach.path.is_below(node)), None)
    clocks = {
        clock for slot in slots.values() for clock in slot.clocks if state and clock.is_below(state)
    }
    (key, spec), *others = breach.wanted.items()
    fitting = [
        p for p in clocks if isinstance(spec, LeafSpec) and leaf_breach(p, stored[p], spec) is None
    ]
    if others or len(fitting) != 1:
        return (), advice(breach, states)
    count, empty = target_text(LeafPath(("count_0",))), target_text(LeafPath(("empty_0",)))
    place = breach.path / (key,)
    moves = {breach.path.exact_pattern: empty, count: target_text(place)}
    edits: tuple[Edit, ...] = (
        {"op": "copy", "at": fitting[0].exact_pattern, "to": count},
        {"op": "rename", "moves": moves},
        {"op": "delete", "at": empty},
    )
    return (
        edits,
        f"where '{place}' goes on at '{fitting[0]}'; `set` it to 0 for a schedule that begins anew",
    )


def _deletion(breach: Breach, slots: Slots) -> Edit:
    """The edit that takes a subtree out: of a field of the optimizer state, a part goes only if it is named so."""
    edit: Edit = {"op": "delete", "at": breach.path.exact_pattern}
    nodes = {slots[leaf].node for leaf in breach.leaves if leaf in slots}
    if any(breach.path != node and breach.path.is_below(node) for node in nodes):
        edit["twins"] = "named"
    return edit


def _cast(breach: Breach, stored: TreeSpec) -> tuple[tuple[Edit, ...], str]:
    here, there = breach.stored, breach.wanted
    assert isinstance(here, LeafSpec)
    assert isinstance(there, LeafSpec)
    otherwise = f"let the script's function give {here.dtype}, or restore and convert knowingly"
    arrays = (LeafKind.ARRAY, LeafKind.NUMPY)
    if (
        here.kind not in arrays
        or there.kind not in arrays
        or family(here.dtype) != family(there.dtype)
    ):
        return (), otherwise
    edit: Edit = {"op": "cast", "at": breach.path.exact_pattern, "to": there.dtype}
    others = (p for p in stored if p.is_below(breach.path) and p not in breach.leaves)
    is_integer = family(here.dtype) == "integer"
    if is_integer or any(stored[path].has_array for path in others):
        edit["where_dtype"] = here.dtype
    return (edit,), ""


ANOTHER_OPTIMIZER: Final = (
    "the script's optimizer is another: take its state from a checkpoint that the script saves fresh, and "
    "what both have from this one; docs/changing-the-optimizer.md has the plans"
)
OF_ANOTHER: Final = "another optimizer's: no edit alone makes its state; docs/changing-the-optimizer.md has the plans"
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
_NO_TARGET: Final = "let the function give an array (`np.asarray`) or a Python number: restores refuse other targets"


def advice(breach: Breach, states: Iterable[LeafPath]) -> str:
    """What a person can do about a breach; ``states`` are the nodes of optimizer states."""
    is_optimizer = any(breach.path.is_below(node) for node in states)
    if breach.what == "missing":
        return _FRESH_STATE if is_optimizer else FRESH
    if breach.what == "kind":
        is_none = isinstance(breach.wanted, LeafSpec) and breach.wanted.kind is LeafKind.NO_TARGET
        return _NO_TARGET if is_none else _KIND
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
