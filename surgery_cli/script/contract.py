"""The contract with the training script: would its restore take this tree, and take it unchanged?"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from surgery_cli.tree.dtypes import family
from surgery_cli.tree.nested import Branch, leaves, nested
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec, TreeSpec
from surgery_cli.words.lists import listed
from surgery_cli.words.quantities import leaves_text

RAISES: Final = "the restore raises"
CASTS: Final = "the restore casts without a word"
DROPS: Final = "the restore drops the values without a word"
EMPTIES: Final = "the restore gives None without a word"
MISTAKES: Final = "the restore gives what is stored, not what was asked for, without a word"


Subtree: TypeAlias = Branch[LeafSpec] | LeafSpec


class Breach(msgspec.Struct, frozen=True, kw_only=True):
    """A place at which the tree and the script disagree.

    ``what`` is ``missing``, ``extra``, ``container``, ``shape``, ``dtype``, ``kind`` or ``empty``; ``here`` and
    ``there`` are the tree and the script as text; ``effect`` is what Orbax's restore makes of it. ``leaves`` are those
    of the tree that are concerned (of the script, where they are missing).
    """

    path: LeafPath
    what: str
    here: str
    there: str
    effect: str
    leaves: tuple[LeafPath, ...]
    stored: Subtree | None = None
    wanted: Subtree | None = None


def breaches(stored: TreeSpec, wanted: TreeSpec) -> list[Breach]:
    """Everything that a restore of ``stored`` with the target ``wanted`` would refuse or silently change.

    A subtree that only one side has is one breach; so are leaves of one subtree that all differ in the same way.
    Containers without values (None, ``{}``, ``()``) stand for each other, jax and NumPy arrays and Python numbers of
    one sort too: Orbax restores them exactly.
    Source: ``orbax.checkpoint._src.tree.structure_utils.tree_difference``, and restores that were tried out.
    """
    found: list[Breach] = []
    _compare(LeafPath(), nested(stored), nested(wanted), found)
    return _gathered(found, stored)


def _compare(path: LeafPath, here: Subtree, there: Subtree, found: list[Breach]) -> None:
    if isinstance(here, LeafSpec) and isinstance(there, LeafSpec):
        breach = leaf_breach(path, here, there)
        if breach is not None:
            found.append(breach)
    elif isinstance(here, Branch) and isinstance(there, Branch) and _kind(here) == _kind(there):
        for key in dict.fromkeys([*here, *there]):
            below = path / (key,)
            if key not in there:
                found.append(_one_sided(below, "extra", here[key]))
            elif key not in here:
                found.append(_one_sided(below, "missing", there[key]))
            else:
                _compare(below, here[key], there[key], found)
    else:
        found.append(
            Breach(
                path=path,
                what="container",
                here=subtree_text(here),
                there=subtree_text(there),
                effect=RAISES,
                leaves=paths_below(path, here),
                stored=here,
                wanted=there,
            )
        )


def _one_sided(path: LeafPath, what: str, subtree: Subtree) -> Breach:
    text = subtree_text(subtree)
    is_extra = what == "extra"
    return Breach(
        path=path,
        what=what,
        here=text if is_extra else "",
        there="" if is_extra else text,
        effect=RAISES,
        leaves=paths_below(path, subtree),
        stored=subtree if is_extra else None,
        wanted=None if is_extra else subtree,
    )


def leaf_breach(path: LeafPath, here: LeafSpec, there: LeafSpec) -> Breach | None:
    """What a restore makes of one stored leaf under one target leaf; None if it comes out exactly."""
    what, effect = _fault(here, there)
    if not what:
        return None
    return Breach(
        path=path,
        what=what,
        here=here.type_text,
        there=there.type_text,
        effect=effect,
        leaves=(path,),
        stored=here,
        wanted=there,
    )


def _fault(here: LeafSpec, there: LeafSpec) -> tuple[str, str]:
    if there.kind is LeafKind.NO_TARGET:
        return "kind", RAISES
    if there.kind is LeafKind.EMPTY:
        return ("", "") if here.kind is LeafKind.EMPTY else ("empty", DROPS)
    if here.kind is LeafKind.EMPTY:
        return "empty", EMPTIES
    if LeafKind.STRING in (here.kind, there.kind):
        return ("", "") if here.kind == there.kind else ("kind", RAISES)
    if LeafKind.KEY in (here.kind, there.kind):
        is_same = here.kind == there.kind and here.key_impl == there.key_impl
        return ("", "") if is_same and here.shape == there.shape else ("kind", MISTAKES)
    if here.shape != there.shape:
        return "shape", RAISES
    if LeafKind.SCALAR in (here.kind, there.kind):  # a Python number has a sort, but no width
        return ("", "") if family(here.dtype) == family(there.dtype) else ("dtype", CASTS)
    return ("", "") if here.dtype == there.dtype else ("dtype", CASTS)


def _kind(node: Branch[LeafSpec]) -> str:
    return "list" if any(isinstance(key, int) for key in node) else "dict"


def subtree_text(subtree: Subtree) -> str:
    """A subtree in a few words: ``float32[64,10]``, ``dict of 8 leaves``."""
    if isinstance(subtree, LeafSpec):
        return subtree.type_text
    count = len(specs_below(subtree))
    keys = listed(list(subtree), 4)
    return f"{_kind(subtree)} of {leaves_text(count)} ({keys})"


def specs_below(subtree: Subtree) -> dict[LeafPath, LeafSpec]:
    """The leaves of a subtree by their path in it."""
    return dict(leaves(subtree))


def paths_below(path: LeafPath, subtree: Subtree) -> tuple[LeafPath, ...]:
    """The paths of all leaves of a subtree that stands at ``path``, empties included."""
    return tuple(at for at, _ in leaves(subtree, path))


# --- leaves that differ alike --------------------------------------------------------------------------------


def _gathered(found: list[Breach], stored: TreeSpec) -> list[Breach]:
    """One breach instead of many where all values below a node differ in the same way."""
    alike: dict[tuple[str, str, str], list[Breach]] = {}
    for breach in found:
        if breach.what in ("dtype", "empty", "kind"):
            alike.setdefault(_likeness(breach), []).append(breach)
    instead: dict[LeafPath, Breach | None] = {}
    for group in alike.values():
        _gather(group, stored, instead)
    kept = [instead.get(breach.path, breach) for breach in found]
    return [breach for breach in kept if breach is not None]


def _likeness(breach: Breach) -> tuple[str, str, str]:
    """What makes leaves differ in the same way: shapes do not matter."""
    return breach.what, _sort_text(breach.stored), _sort_text(breach.wanted)


def _sort_text(spec: Subtree | None) -> str:
    assert isinstance(spec, LeafSpec)
    if spec.kind is LeafKind.EMPTY:
        return "None"
    return spec.type_text.split("[")[0] if spec.has_array else spec.dtype


def _gather(group: list[Breach], stored: TreeSpec, instead: dict[LeafPath, Breach | None]) -> None:
    """Replace breaches that fill a node by one at the topmost such node; the root is never one."""
    here, is_dtype = _sort_text(group[0].stored), group[0].what == "dtype"
    members = {breach.path for breach in group}
    wholes: dict[LeafPath, int] = {}
    for path, spec in stored.items():
        if path in members or not is_dtype or (_sort_text(spec) == here and spec.has_array):
            for depth in range(1, len(path)):
                node = LeafPath(path[:depth])
                wholes[node] = wholes.get(node, 0) + 1
    filled: dict[LeafPath, list[LeafPath]] = {}
    for path in members:
        for depth in range(1, len(path)):
            filled.setdefault(LeafPath(path[:depth]), []).append(path)
    taken: set[LeafPath] = set()
    for node in sorted(filled, key=len):
        leaves = [path for path in filled[node] if path not in taken]
        if len(leaves) < 2 or len(leaves) != wholes[node]:
            continue
        taken.update(leaves)
        ordered = [breach for breach in group if breach.path in set(leaves)]
        first = ordered[0]
        instead.update(dict.fromkeys(leaves, None))
        instead[first.path] = msgspec.structs.replace(
            first,
            path=node,
            here=f"{here}, {len(leaves)} leaves",
            there=_sort_text(first.wanted),
            leaves=tuple(breach.path for breach in ordered),
        )
