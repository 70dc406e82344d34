"""Which subtree stands under another name: what only the tree has, paired with what only the script has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec, TreeSpec
from surgery_cli.verification.contract import (
    Branch,
    Breach,
    Subtree,
    branches_of,
    leaf_breach,
    specs_below,
)

Moves: TypeAlias = dict[LeafPath, LeafPath]
"""Old path to new."""

_Sides: TypeAlias = dict[LeafPath, Subtree]


def moves_among(breaches: Sequence[Breach], stored: TreeSpec, wanted: TreeSpec) -> Moves:
    """Pairs of subtrees of equal structure and shapes, where there is only one way to pair them.

    First whole nodes that moved one level down or up (a chain around the optimizer, a module around the model), then
    within one node (a renamed layer), then anywhere in the tree (another order of a chain), last parts that were
    wrapped or unwrapped. Two candidates are no pair: a guess could swap two layers.
    """
    found = _levels(breaches, stored, wanted)
    if found:
        return found
    heres = {b.path: b.stored for b in breaches if b.stored is not None and _has_values(b.stored)}
    theres = {b.path: b.wanted for b in breaches if b.wanted is not None and _has_values(b.wanted)}
    for parent in dict.fromkeys(path.parent for path in heres if path):
        _pair_alike(
            {p: s for p, s in heres.items() if p and p.parent == parent},
            {p: s for p, s in theres.items() if p and p.parent == parent},
            found,
        )
    _drop_paired(heres, theres, found)
    large = [{p: s for p, s in side.items() if _size(s) > 1} for side in (heres, theres)]
    _pair_alike(large[0], large[1], found)
    _drop_paired(heres, theres, found)
    found.update(_unwrapped(theres, heres))
    _drop_paired(heres, theres, found)
    found.update({old: new for new, old in _unwrapped(heres, theres).items()})
    return found


def _levels(breaches: Sequence[Breach], stored: TreeSpec, wanted: TreeSpec) -> Moves:
    """Nodes that stand whole at a child of themselves, or the other way round."""
    found: Moves = {}
    here, there = branches_of(stored), branches_of(wanted)
    for breach in breaches:
        path = breach.path
        places = [(path.parent, path)] if len(path) > 1 else []
        sides = (breach.stored, breach.wanted)
        if breach.what == "container" and path:
            places += [(path, path / (key,)) for s in sides if isinstance(s, Branch) for key in s]
        for outer, inner in places:
            if _are_alike_at(here, outer, there, inner):
                found.setdefault(outer, inner)
            elif _are_alike_at(here, inner, there, outer):
                found.setdefault(inner, outer)
    return found


def _are_alike_at(here: Subtree, old: LeafPath, there: Subtree, new: LeafPath) -> bool:
    stored, wanted = _at(here, old), _at(there, new)
    return isinstance(stored, Branch) and isinstance(wanted, Branch) and are_alike(stored, wanted)


def _at(tree: Subtree, path: LeafPath) -> Subtree | None:
    """What stands at a path; None if nothing does."""
    for key in path:
        if not isinstance(tree, Branch) or key not in tree:
            return None
        tree = tree[key]
    return tree


def _drop_paired(heres: _Sides, theres: _Sides, found: Moves) -> None:
    for old, new in found.items():
        heres.pop(old, None)
        theres.pop(new, None)


def _pair_alike(heres: _Sides, theres: _Sides, found: Moves) -> None:
    """Pair what is alike and alone in that on both sides."""
    for old, stored in heres.items():
        fitting = [new for new, wanted in theres.items() if are_alike(stored, wanted)]
        if len(fitting) == 1:
            rivals = [p for p, s in heres.items() if are_alike(s, theres[fitting[0]])]
            if rivals == [old] and fitting[0] != old:
                found[old] = fitting[0]


def _unwrapped(outer: _Sides, inner: _Sides) -> Moves:
    """Pairs (inner, outer) that fill a subtree of ``outer`` from nodes of ``inner`` with the same last keys."""
    found: Moves = {}
    for top, subtree in outer.items():
        parts: Moves = {}
        covered = 0
        for path, part in _nodes_below(top, subtree):
            if any(path.is_below(done) for done in parts.values()):
                continue
            fitting = _nearest(
                path,
                [
                    p
                    for p, s in inner.items()
                    if p and p[-1] == path[-1] and p not in found and are_alike(s, part)
                ],
            )
            if len(fitting) == 1 and fitting[0] not in parts:
                parts[fitting[0]] = path
                covered += _count(part)
        if covered and covered == _count(subtree):
            found.update(parts)
    return found


def _nearest(path: LeafPath, candidates: list[LeafPath]) -> list[LeafPath]:
    """Those that share most keys with ``path``: the layer in the params, not its twin in the optimizer state."""
    shared = {
        other: next(
            (depth for depth, key in enumerate(other) if path[depth : depth + 1] != (key,)), 0
        )
        for other in candidates
    }
    return [other for other in candidates if shared[other] == max(shared.values())]


def _nodes_below(path: LeafPath, subtree: Subtree) -> Iterator[tuple[LeafPath, Subtree]]:
    """Every node and leaf below, from the top."""
    if isinstance(subtree, Branch):
        for key, child in subtree.items():
            yield path / (key,), child
        for key, child in subtree.items():
            yield from _nodes_below(path / (key,), child)


def are_alike(stored: Subtree, wanted: Subtree) -> bool:
    """True if a restore takes one for the other, dtypes aside."""
    here, there = specs_below(stored), specs_below(wanted)
    if here.keys() != there.keys():
        return False
    found = [leaf_breach(path, here[path], there[path]) for path in here]
    return all(breach is None or breach.what == "dtype" for breach in found)


def _leaves(subtree: Subtree) -> Mapping[LeafPath, LeafSpec]:
    found = specs_below(subtree)
    return {path: spec for path, spec in found.items() if spec.kind is not LeafKind.EMPTY}


def _has_values(subtree: Subtree) -> bool:
    return bool(_leaves(subtree))


def _count(subtree: Subtree) -> int:
    return len(_leaves(subtree))


def _size(subtree: Subtree) -> int:
    return sum(spec.size for spec in _leaves(subtree).values())
