"""Which subtree stands under another name: what only the tree has, paired with what only the script has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TypeAlias

from surgery_cli.matching.moves import with_nodes
from surgery_cli.matching.pairing import paired
from surgery_cli.script.contract import Breach, Subtree, leaf_breach, specs_below
from surgery_cli.script.numbered_series import is_out_of_order, numbered, paired_series
from surgery_cli.tree.nested import Branch, nested, walk
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec, TreeSpec

Moves: TypeAlias = dict[LeafPath, LeafPath]
"""Old path to new."""

Former: TypeAlias = Sequence[Mapping[str, str]]
"""Where leaves stood before earlier edits, by their path now, the latest edits first."""

_Sides: TypeAlias = dict[LeafPath, Subtree]


def moves_among(
    breaches: Sequence[Breach], stored: TreeSpec, wanted: TreeSpec, former: Former = ()
) -> Moves:
    """Pairs of subtrees of equal structure and shapes, where there is only one way to pair them.

    First whole nodes that moved one level down or up (a chain around the optimizer, a module around the model), then
    those whose ``former`` name the script has, numbered layers as a series, within one node (a renamed layer), below
    one key of the root (another order of a chain), then parts that were wrapped or unwrapped. Two candidates are no
    pair, as a guess could swap two layers, unless their names mean one thing: `q_proj` and `query`.
    """
    found = _levels(breaches, stored, wanted)
    if found:
        return found
    heres = {b.path: b.stored for b in breaches if b.stored is not None and _has_values(b.stored)}
    theres = {b.path: b.wanted for b in breaches if b.wanted is not None and _has_values(b.wanted)}
    for names in former:
        found.update(_as_before(heres, theres, names))
        _drop_paired(heres, theres, found)
    found.update(paired_series(heres, theres, are_alike))
    _drop_paired(heres, theres, found)
    for parent in dict.fromkeys(path.parent for path in heres if path):
        _pair_alike(
            {p: s for p, s in heres.items() if p and p.parent == parent},
            {p: s for p, s in theres.items() if p and p.parent == parent},
            found,
            wanted,
        )
    _drop_paired(heres, theres, found)
    for top in dict.fromkeys(path[:1] for path in heres):
        large = [
            {p: s for p, s in side.items() if p[:1] == top and _size(s) > 1}
            for side in (heres, theres)
        ]
        _pair_alike(large[0], large[1], found, wanted)
    _drop_paired(heres, theres, found)
    found.update(_unwrapped(theres, heres))
    _drop_paired(heres, theres, found)
    found.update({old: new for new, old in _unwrapped(heres, theres).items()})
    _drop_paired(heres, theres, found)
    found.update(_by_names(heres, theres, stored))
    return found


def _levels(breaches: Sequence[Breach], stored: TreeSpec, wanted: TreeSpec) -> Moves:
    """Nodes that stand whole at a child of themselves, or the other way round."""
    found: Moves = {}
    here, there = nested(stored), nested(wanted)
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
    """Leave out what has its pair: itself, or all the values below it."""
    for side, ends in ((heres, {*found}), (theres, {*found.values()})):
        for path, subtree in list(side.items()):
            leaves = (path / leaf for leaf in _leaves(subtree))
            if all(any(leaf[:n] in ends for n in range(len(leaf) + 1)) for leaf in leaves):
                del side[path]


def _as_before(heres: _Sides, theres: _Sides, names: Mapping[str, str]) -> Moves:
    """Nodes of which a record says that they stood where the script has something alike."""
    nodes = {
        str(path): (path, node) for top, whole in theres.items() for path, node in walk(whole, top)
    }
    found: Moves = {}
    for top, whole in heres.items():
        for path, node in walk(whole, top):
            before = {_node_before(names.get(str(path / leaf), ""), leaf) for leaf in _leaves(node)}
            new = nodes.get(before.pop()) if len(before) == 1 else None
            done = any(path.is_below(old) for old in found)
            if new is not None and not done and are_alike(node, new[1]):
                found[path] = new[0]
    return found


def _node_before(text: str, tail: LeafPath) -> str:
    """The node that a leaf stood below, if it kept the keys ``tail``."""
    return text.removesuffix(f"/{tail}") if tail and text.endswith(f"/{tail}") else text


def _pair_alike(heres: _Sides, theres: _Sides, found: Moves, wanted: TreeSpec) -> None:
    """Pair what is alike and alone in that on both sides; members of one series are not guessed."""
    for old, stored in heres.items():
        fitting = [new for new, wanted in theres.items() if are_alike(stored, wanted)]
        if len(fitting) == 1:
            rivals = [p for p, s in heres.items() if are_alike(s, theres[fitting[0]])]
            siblings = (p for p in wanted.nodes if p[:-1] == old[:-1])
            is_one = rivals == [old] and fitting[0] != old
            if is_one and not is_out_of_order(old, fitting[0], siblings):
                found[old] = fitting[0]


def _by_names(heres: _Sides, theres: _Sides, stored: TreeSpec) -> Moves:
    """What is called otherwise and means the same, as `derive` pairs it, whole nodes where they move as they are."""
    here, there = (
        {path / leaf: spec for path, node in side.items() for leaf, spec in _leaves(node).items()}
        for side in (heres, theres)
    )
    plain = [
        pair
        for pair in paired(here, there).pairs
        if pair.is_move
        and pair.means_one_thing
        and not any(
            numbered(old)[0] == numbered(new)[0]
            for old, new in zip(pair.old.members, pair.new.members, strict=True)
        )
        and all(
            are_alike(here[old], there[new])
            for old, new in zip(pair.old.members, pair.new.members, strict=True)
        )
    ]
    return {
        old: new
        for before, after in with_nodes(plain, [*stored])
        for old, new in zip(before.members, after.members, strict=True)
    }


def _unwrapped(outer: _Sides, inner: _Sides) -> Moves:
    """Pairs (inner, outer) that fill a subtree of ``outer`` from nodes of ``inner`` with the same last keys."""
    found: Moves = {}
    for top, subtree in outer.items():
        parts: Moves = {}
        covered = 0
        for path, part in islice(walk(subtree, top), 1, None):
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
