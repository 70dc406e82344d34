"""How an edit is undone: what moved goes back, what came goes, and what only the source has is taken from there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from surgery_cli.draft.expression import Stored
from surgery_cli.draft.recipe import SOURCE, Draft, Output
from surgery_cli.tree.paths import Key, LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec, lists_in

_Node: TypeAlias = tuple[Key, ...]

Homes: TypeAlias = Callable[[LeafPath], LeafPath | None]
"""Where the source has what stands at a path; None if it has not, or what stands there is to go."""


class Undo(NamedTuple):
    """What undoes an edit, from the tree after it to the tree before.

    Nodes that are ``gone`` are deleted, then ``moves`` are done at once (from where something stands to where it
    stood), then ``missing`` nodes are put in from the source (where they stood, and where the source has them).
    ``edits``, entries of a plan, come before all that where the operation says them; ``instead`` is in its place.
    ``lost`` are leaves, by where they stood, whose values only the source has. ``parts``: of which leaves others are
    made now, or a part, by where these stand. ``owed`` are leaves, by where they stood, that nothing brings back: they
    are gone, and were no leaves of the source.
    """

    gone: tuple[LeafPath, ...] = ()
    moves: Mapping[LeafPath, LeafPath] = {}
    missing: Mapping[LeafPath, LeafPath] = {}
    lost: tuple[LeafPath, ...] = ()
    edits: tuple[dict[str, Any], ...] = ()
    instead: tuple[dict[str, Any], ...] = ()
    parts: Mapping[LeafPath, tuple[LeafPath, ...]] = {}
    owed: tuple[LeafPath, ...] = ()


def _is_same(one: Output | None, other: Output) -> bool:
    """True for a leaf that is made of the same, whatever is said of it: a slot that is kept has its policy on it."""
    return one is other or (one is not None and one.recipe == other.recipe)


def difference(before: Draft, after: Draft, home: Homes) -> Undo:
    """What leads from one draft back to another: leaves are told by what they are made of."""
    old, new = before.leaves, after.leaves
    left = {path for path, output in old.items() if not _is_same(new.get(path), output)}
    came = {path for path, output in new.items() if not _is_same(old.get(path), output)}
    moves = _moves(left, came, before, after)
    anew: set[_Node] = set()
    while True:
        back = set(moves.values())
        lost = {
            path
            for path in left & came
            if path not in back
            and path not in moves
            and _alike(old[path], new[path])
            and not _is_in(path, anew)
        }
        gone = dict.fromkeys(p for p in new if p in came and p not in moves and p not in lost)
        missing = dict.fromkeys(p for p in old if p in left and p not in back and p not in lost)
        torn = _torn_lists(gone, new)
        if not torn:
            break
        anew |= torn
        left.update(path for path in old if _is_in(path, torn))
        came.update(path for path in new if _is_in(path, torn))
        kept = (pair for pair in moves.items() if not any(_is_in(path, torn) for path in pair))
        moves = dict(kept)
    staying = _spare_containers(missing, gone, old, new)
    homes = {
        path: place
        for path in missing
        if (place := home(path)) is not None
        and old[path].spec.agrees_with(before.source_tree[place])
    }
    lost.update(path for path in homes if not _is_pristine(old[path]))
    stay = [path for path in new if path not in gone and path not in moves] if homes else []
    blocked = _nodes_over([*stay, *moves.values()]) if homes else set()
    nodes = _paired(homes, old, before.source_tree, blocked)
    owed = tuple(path for path in missing if path not in homes)
    above = _nodes_over([*(node.parent for node in nodes), *staying, *owed])
    return Undo(
        tuple(nodes_of(gone, new, apart=above)),
        _paired(moves, new),
        nodes,
        tuple(path for path in old if path in lost),
        owed=owed,
    )


def _moves(
    left: Collection[LeafPath], came: Collection[LeafPath], before: Draft, after: Draft
) -> dict[LeafPath, LeafPath]:
    """Where the leaves that came stood, of those that are nothing but others at another place."""
    origin = {id(before.leaves[path]): path for path in before.leaves if path in left}
    moves: dict[LeafPath, LeafPath] = {}
    for path, output in after.leaves.items():
        if path in came and (was := origin.pop(id(output), None)) is not None:
            moves[path] = was
    found = _paired(moves, after.leaves)
    unable = [pair for pair in found.items() if not _has_lists(pair[1], after)]
    for node, _ in unable:  # nothing but the source says that these were lists
        for path in [path for path in moves if path.is_below(node)]:
            del moves[path]
    return moves


def _torn_lists(gone: Collection[LeafPath], leaves: Iterable[LeafPath]) -> set[_Node]:
    """Lists that lose an element before others: these are made anew, as a list has no holes."""
    lists = lists_in(gone)
    left: dict[_Node, set[int]] = {node: set() for node in lists}
    for leaf in leaves if lists else ():
        for depth, key in enumerate(leaf):
            if isinstance(key, int) and leaf not in gone and leaf[:depth] in left:
                left[leaf[:depth]].add(key)
    return {node for node, there in left.items() if there and max(there) >= len(there)}


def _is_in(path: LeafPath, nodes: Collection[_Node]) -> bool:
    return bool(nodes) and any(path[:depth] in nodes for depth in range(len(path)))


def _has_lists(goal: LeafPath, draft: Draft) -> bool:
    """True if every list through which a path runs stands there."""
    return all(
        LeafPath(goal[:depth]) in draft.tree.sequences
        for depth, key in enumerate(goal)
        if isinstance(key, int)
    )


def _is_pristine(output: Output) -> bool:
    """True if the source has the values of a leaf; those of others are put in place in the end, once it is back."""
    recipe = output.recipe
    is_stored = isinstance(recipe, Stored) and recipe.ref.source == SOURCE
    return is_stored or output.spec.kind is LeafKind.EMPTY


def _alike(old: Output, new: Output) -> bool:
    """True if the values of one can take the place of the other's."""
    a, b = old.spec, new.spec
    return (a.shape, a.dtype, a.key_impl, a.has_array) == (
        b.shape,
        b.dtype,
        b.key_impl,
        b.has_array,
    )


def _spare_containers(
    missing: dict[LeafPath, None],
    gone: dict[LeafPath, None],
    old: Mapping[LeafPath, Output],
    new: Mapping[LeafPath, Output],
) -> list[LeafPath]:
    """Leave out empty dicts that come back, or go, by what goes, or comes back, below them; those that come back."""
    above_gone, above_missing = _nodes_over(gone), _nodes_over(missing)
    staying = [p for p in missing if _is_empty(old[p].spec) and p in above_gone]
    for path in staying:
        del missing[path]
    for path in [p for p in gone if _is_empty(new[p].spec) and p in above_missing]:
        del gone[path]
    return staying


def _is_empty(spec: LeafSpec) -> bool:
    return spec.kind is LeafKind.EMPTY and spec.empty == "Dict"


def _nodes_over(leaves: Iterable[LeafPath]) -> set[_Node]:
    """The nodes above leaves, and they themselves."""
    return {leaf[:depth] for leaf in leaves for depth in range(len(leaf) + 1)}


def nodes_of(
    chosen: Collection[LeafPath],
    leaves: Iterable[LeafPath],
    apart: Collection[_Node] = (),
) -> list[LeafPath]:
    """The topmost nodes of which all leaves are chosen, but for those ``apart``."""
    those = frozenset(chosen)
    others = {leaf[:n] for leaf in leaves if leaf not in those for n in range(len(leaf) + 1)}
    found: dict[LeafPath, None] = {}
    for leaf in chosen:
        depth = next(
            n
            for n in range(len(leaf) + 1)
            if n == len(leaf) or (n and leaf[:n] not in others and leaf[:n] not in apart)
        )
        found[LeafPath(leaf[:depth])] = None
    return list(found)


def _paired(
    places: Mapping[LeafPath, LeafPath],
    leaves: Iterable[LeafPath],
    others: Iterable[LeafPath] | None = None,
    blocked: Collection[_Node] = (),
) -> dict[LeafPath, LeafPath]:
    """The same places of whole nodes, where all leaves below one (in ``leaves``) go to another alike.

    ``others``: the leaves among which the others stand, where these must be all below it, too. No node is ``blocked``.
    """
    pairs: Counter[tuple[_Node, _Node]] = Counter()
    for one, other in places.items():
        for tail in range(min(len(one), len(other))):
            pairs[one[: len(one) - tail], other[: len(other) - tail]] += 1
            if one[-1 - tail] != other[-1 - tail] or type(one[-1 - tail]) is not type(
                other[-1 - tail]
            ):
                break
    sizes = _sizes({one for one, _ in pairs}, leaves)
    theirs = None if others is None else _sizes({other for _, other in pairs}, others)
    found: dict[LeafPath, LeafPath] = {}
    for one, other in places.items():
        chosen = (one, other)
        for tail in range(1, min(len(one), len(other))):
            pair = (one[: len(one) - tail], other[: len(other) - tail])
            count = pairs.get(pair)
            if count is None:
                break
            if (
                count == sizes[pair[0]]
                and pair[0] not in blocked
                and (theirs is None or count == theirs[pair[1]])
            ):
                chosen = (LeafPath(pair[0]), LeafPath(pair[1]))
        found[chosen[0]] = chosen[1]
    return found


def _sizes(nodes: Collection[_Node], leaves: Iterable[LeafPath]) -> Counter[_Node]:
    """How many leaves stand below each node."""
    depths = sorted({len(node) for node in nodes})
    return Counter(
        leaf[:depth]
        for leaf in leaves
        for depth in depths
        if len(leaf) >= depth and leaf[:depth] in nodes
    )
