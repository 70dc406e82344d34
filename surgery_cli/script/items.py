"""Which part of a checkpoint it is that a training script's function returns."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from surgery_cli.errors import PlanError
from surgery_cli.script.abstract_tree import AbstractTree
from surgery_cli.script.pytrees import plain_path
from surgery_cli.tree.paths import Key, LeafPath
from surgery_cli.tree.specs import TreeSpec
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.quantities import counted

_DICTS = ("dict", "FrozenDict", "State", "OrderedDict")
"""Classes whose keys are the names that a script gives to items, no fields of its own."""

_SEQUENCES = ("builtins.tuple", "builtins.list")

_WITH_OPTIMIZER: Final = (
    "with its optimizer: a TrainState, or a dict of the state's fields with `tx` beside them"
)

Leaves = frozenset[tuple[LeafPath, tuple[int, ...] | None]]
_K = TypeVar("_K", bound=Key)


class Aligned(msgspec.Struct, frozen=True):
    """The script's tree by the checkpoint's paths, the part of the checkpoint that it is about, and what to say."""

    abstract: AbstractTree
    stored: TreeSpec
    notes: list[Consequence] = []
    """What the comparison takes for granted, and what it leaves out."""
    advice: str = ""
    """What to return instead, where that may be meant."""

    @property
    def wanted(self) -> TreeSpec:
        """The script's leaves, spelled as the checkpoint spells them."""
        return self.abstract.saved_as(self.stored)


def aligned(name: str, abstract: AbstractTree, tree: TreeSpec, items: Sequence[str]) -> Aligned:
    """Find what a function's tree is in a checkpoint.

    ``name`` is the function as the user named it. ``items`` are those whose names the paths of ``tree`` begin with, or
    the only one, '' if it has no name.

    Raises:
        PlanError: the step has several items, and nothing says which of them the function is about.
    """
    if len(items) > 1:
        return _of_items(name, abstract, tree, items)
    (only,) = items
    parts = _parts(abstract)
    roots = {path[0] for path in tree if path}
    if only in parts and not roots & set(parts):
        return Aligned(abstract.below(only), tree, _left_out(name, [p for p in parts if p != only]))
    if abstract.classes.get(LeafPath()) in _SEQUENCES and not roots & set(parts):
        # several values are returned, as a tuple; their names are the script's own affair
        alike = _by_structure(abstract, tree, parts, [str(root) for root in roots])
        if len(alike) == len(parts):
            return _renamed(abstract, tree, alike, _likened(name, alike), whole=True)
        return _one_of_several(name, abstract, tree, parts, only)
    advice = _one_level_apart(name, abstract, parts, roots)
    notes = [Consequence(DocsPage.LIKE_INIT, advice)] if advice else []
    return Aligned(abstract, tree, notes, advice)


def _one_level_apart(
    name: str, abstract: AbstractTree, parts: Sequence[Key], roots: Collection[Key]
) -> str:
    """What to return, where the state stands one level below what the function returns: beside its optimizer, say."""
    inside = {str(path[1]) for path in abstract.tree if len(path) > 1}
    is_apart = len(parts) == 1 and parts[0] not in roots and _is_dict(abstract)
    if not is_apart or not inside & {str(root) for root in roots}:
        return ""
    return (
        f"'{name}' returns a dict in which the checkpoint's keys stand below '{parts[0]}': if that is there for the"
        f" optimizer alone, return the state {_WITH_OPTIMIZER}"
    )


def _one_of_several(
    name: str, abstract: AbstractTree, tree: TreeSpec, parts: Sequence[Key], item: str
) -> Aligned:
    """The one of several returned values that is the whole tree: it has most of its leaves."""
    inside = TreeSpec({LeafPath((item, *path)): spec for path, spec in tree.items()})
    common = {part: len(_leaves(abstract.tree, part) & _leaves(inside, item)) for part in parts}
    half = sum(spec.has_array for spec in tree.values()) / 2
    most = [
        part for part, count in common.items() if count > half and count == max(common.values())
    ]
    of_item = f"the item '{item}'" if item else "the tree"
    if len(most) != 1:
        raise PlanError(
            f"'{name}' returns a tuple or list with {counted(len(parts), 'value')} that a checkpoint could hold, and"
            f" {'none of them' if len(parts) > 1 else 'that'} is {'' if len(parts) > 1 else 'not '}{of_item}",
            why=f"{of_item} has the keys {', '.join(dict.fromkeys(str(p[0]) for p in tree if p))}",
            fix=f"name a function that returns what was saved there, alone, or {_WITH_OPTIMIZER}",
        )
    note = Consequence(
        DocsPage.LIKE_INIT,
        f"'{most[0]}' of what '{name}' returns is taken for {of_item}: most of its leaves are there",
    )
    others = [part for part in parts if part != most[0]]
    return Aligned(abstract.below(most[0]), tree, [note, *_left_out(name, others)])


def _of_items(name: str, abstract: AbstractTree, tree: TreeSpec, items: Sequence[str]) -> Aligned:
    """A function of which some keys may name items, or which returns what one item holds, or parts in an order."""
    parts = _parts(abstract)
    named: dict[Key, str] = {part: str(part) for part in parts if part in items}
    own_keys = {item: {str(p[1]) for p in tree if p[0] == item and len(p) > 1} for item in items}
    texts = {str(part) for part in parts}
    if len(named) < len(parts):
        whole = [item for item in items if own_keys[item] == texts]
        if not whole and not named:
            whole = [item for item in items if own_keys[item] & texts]
        if len(whole) == 1:
            return _inside(name, abstract, tree, whole[0])
    if not named or not _is_dict(abstract):
        rest = [item for item in items if item not in named.values()]
        alike = _by_structure(abstract, tree, [p for p in parts if p not in named], rest)
        notes = _likened(name, alike)
        named |= alike
        left_out = [part for part in parts if part not in named]
        if named:
            return _renamed(abstract, tree, named, notes + _left_out(name, left_out))
    if not named:
        raise PlanError(
            f"'{name}' does not say which item is which",
            why=f"the step has the items {', '.join(items)}; "
            f"the function returns {', '.join(sorted(map(str, parts)))}",
            fix=f"return a dict of items, or choose one with `--item {items[0]}`",
        )
    return _renamed(abstract, tree, {part: str(part) for part in parts}, [])


def _parts(abstract: AbstractTree) -> list[Key]:
    """The keys at the root of what the function returns."""
    return list(dict.fromkeys(path[0] for path in abstract.tree if path))


def _is_dict(abstract: AbstractTree) -> bool:
    return abstract.classes.get(LeafPath(), "").rpartition(".")[2] in _DICTS


def _inside(name: str, abstract: AbstractTree, tree: TreeSpec, item: str) -> Aligned:
    """All that the function returns is one item."""
    return Aligned(
        abstract.placed(lambda path: LeafPath((item, *path))),
        _below(tree, [item]),
        [
            Consequence(
                DocsPage.LIKE_INIT,
                f"what '{name}' returns is taken for the item '{item}': no other has its keys",
            )
        ],
    )


def _renamed(
    abstract: AbstractTree,
    tree: TreeSpec,
    named: Mapping[Key, str],
    notes: list[Consequence],
    *,
    whole: bool = False,
) -> Aligned:
    """The parts under the names of their items; parts without one are left out, items too unless ``whole``."""

    def place(path: LeafPath) -> LeafPath | None:
        return LeafPath((named[path[0]], *path[1:])) if path and path[0] in named else None

    part = tree if whole else _below(tree, set(named.values()))
    return Aligned(abstract.placed(place), part, notes)


def _below(tree: TreeSpec, items: Collection[str]) -> TreeSpec:
    return TreeSpec({path: spec for path, spec in tree.items() if path[0] in items})


def _by_structure(
    abstract: AbstractTree, tree: TreeSpec, parts: Sequence[Key], names: Sequence[str]
) -> dict[Key, str]:
    """Parts of the function, each with the key of the tree that shares most leaves with it and with no other."""
    own = {part: _leaves(abstract.tree, part) for part in parts}
    there = {name: _leaves(tree, name) for name in names}

    def nearest(leaves: Leaves, others: Mapping[_K, Leaves]) -> _K | None:
        common = {key: len(leaves & other) for key, other in others.items()}
        most = [key for key, count in common.items() if count == max(common.values())]
        return most[0] if len(most) == 1 and common[most[0]] else None

    found: dict[Key, str] = {}
    for part in parts:
        name = nearest(own[part], there)
        if name is not None and nearest(there[name], own) == part:
            found[part] = name
    return found


def _leaves(tree: TreeSpec, key: Key) -> Leaves:
    """Plain paths and shapes of the arrays below a key of the root."""
    return frozenset(
        (plain_path(LeafPath(path[1:])), spec.shape)
        for path, spec in tree.items()
        if path[:1] == (key,) and len(path) > 1 and spec.has_array
    )


def _likened(name: str, pairs: Mapping[Key, str]) -> list[Consequence]:
    """Notes on parts that were recognised by their leaves."""
    return [
        Consequence(
            DocsPage.LIKE_INIT,
            f"'{part}' of what '{name}' returns is taken for '{there}': they have the most leaves in common",
        )
        for part, there in pairs.items()
    ]


def _left_out(name: str, parts: Sequence[Key]) -> list[Consequence]:
    """A note on what the function returns and no item holds."""
    if not parts:
        return []
    shown = ", ".join(f"'{part}'" for part in parts)
    said = f"{shown} of what '{name}' returns is not compared: the step has no such item"
    return [Consequence(DocsPage.LIKE_INIT, said)]
