"""What joining and parting keys does to a tree, and lists that become dicts: leaves get other paths, as by a rename."""

from __future__ import annotations

from tests.random_plans import places
from tests.random_plans.model import (
    Empty,
    Fields,
    Leaf,
    Path,
    Refused,
    State,
    Words,
    is_below,
    spelled,
)
from tests.random_plans.patterns import patterns_of, select
from tests.random_plans.world import World


def flatten(state: State, edit: Fields, world: World, words: Words) -> None:
    separator, moves = edit["separator"], {}
    for path, node in _named(state, edit).items():
        keys = path[len(node) :]
        if any(separator in str(key) for key in keys):
            raise Refused(2, "the separator stands in a key")
        if len(keys) > 1 and any(isinstance(key, int) for key in keys):
            raise Refused(2, "an index would become a name")
        moves[path] = (*node, separator.join(map(str, keys))) if len(keys) > 1 else path
    _move(state, edit, moves)


def unflatten(state: State, edit: Fields, world: World, words: Words) -> None:
    separator, moves = edit["separator"], {}
    heads: dict[Path, set[bool]] = {}
    for path, node in _named(state, edit).items():
        keys = path[len(node) :]
        if not keys:
            moves[path] = path
            continue
        parts = keys[:1] if isinstance(keys[0], int) else tuple(keys[0].split(separator))
        if len(parts) > 1 and "" in parts:
            raise Refused(2, "an empty key")
        heads.setdefault((*node, parts[0]), set()).add(len(parts) > 1)
        moves[path] = (*node, *parts, *keys[1:])
    if any(len(found) > 1 for found in heads.values()):
        raise Refused(2, "a node is there already")
    _move(state, edit, moves)


def to_dict(state: State, edit: Fields, world: World, words: Words) -> None:
    named = _named(state, edit)
    empty = {
        p
        for p, node in named.items()
        if p != node and state.leaves[p].is_empty and not _is_masked(state, p)
    }
    gone = empty if edit.get("empties") == "drop" else set()
    moves = {p: (*node, *map(str, p[len(node) :])) for p, node in named.items() if p not in gone}
    if not gone and all(old == new for old, new in moves.items()):
        raise Refused(2, "no list stands there")
    if gone == state.leaves.keys():
        raise Refused(2, "nothing would be left")
    state.leaves = {path: leaf for path, leaf in state.leaves.items() if path not in gone}
    state.slots = {path: slot for path, slot in state.slots.items() if path not in gone}
    changed = {old: new for old, new in moves.items() if old != new}
    if changed:
        _move(state, edit, changed)
    elif any(state.holds_optimizer(path) for path in gone):
        state.may[2] = "parts of the optimizer state are named"


def _is_masked(state: State, path: Path) -> bool:
    """True for what stands in the place of a single param's slot."""
    slot = state.slots.get(path)
    return slot is not None and slot.relation == "hole" and slot.param in state.leaves


def _as_there(state: State, edit: Fields, world: World) -> None:
    """Lists, and what is empty, as a donor has them that has the same leaves."""
    at = edit["at"]
    place = places._typed(list(at.split("/")), state, is_spelled=False)
    there = {(*place, *tail): leaf for tail, leaf in world.tree_of(edit["with"], at).items()}
    here = {spelled(p): leaf for p, leaf in state.leaves.items() if is_below(p, place)}
    nodes = {spelled(node) for node in state.nodes()}
    new = {p: leaf for p, leaf in there.items() if spelled(p) not in here}
    if here.keys() - set(map(spelled, there)) or any(
        not leaf.is_empty or spelled(p) in nodes for p, leaf in new.items()
    ):
        raise Refused(2, "other leaves there")
    both = [(here[spelled(p)], leaf) for p, leaf in there.items() if p not in new]
    if any(a.is_empty != b.is_empty or a.shape != b.shape for a, b in both):
        raise Refused(2, "other shapes there")
    lists = {spelled(p[:n]) for p in there for n, k in enumerate(p) if isinstance(k, int)}

    def listed(path: Path) -> Path:
        return tuple(int(k) if spelled(path[:n]) in lists else k for n, k in enumerate(path))

    moves = {p: q for p in state.leaves if is_below(p, place) and (q := listed(p)) != p}
    if not moves and not new:
        return
    if new and any(is_below(path, slot.root) for path in new for slot in state.slots.values()):
        state.may[2] = "a leaf comes for which the optimizer has nothing"
    state.leaves = state.leaves | new
    _move(state, edit, {**moves, **{path: path for path in new}})


def to_list(state: State, edit: Fields, world: World, words: Words) -> None:
    if "with" in edit:
        _as_there(state, edit, world)
        return
    selected = select(state, edit, skips_empties=False, names_twins=True)
    patterns = patterns_of(edit["at"])
    nodes = {p.nodes(path)[-1] for path in selected for p in patterns if p.nodes(path)}
    places_of: dict[Path, set[int]] = {}
    for node in nodes:
        keys = {p[len(node)] for p in state.leaves if is_below(p, node) and len(p) > len(node)}
        if not keys or not all(isinstance(k, str) and k.isdecimal() for k in keys):
            raise Refused(2, "it is no dict of numbers")
        if any(str(int(key)) != key for key in keys):
            raise Refused(2, "a number with zeros in front")
        places_of[node] = set(map(int, keys))
        if max(places_of[node]) >= edit.get("length", len(keys)):
            raise Refused(2, "a list has no holes, or is too short")

    def listed(path: Path) -> Path:
        return tuple(int(k) if path[:n] in places_of else k for n, k in enumerate(path))

    moves = {path: new for path in state.leaves if (new := listed(path)) != path}
    none = Leaf(Empty("None"))
    new = {
        listed((*node, str(n))): none
        for node, found in places_of.items()
        for n in range(edit.get("length", 0))
        if n not in found
    }
    if any(is_below(path, slot.root) for path in new for slot in state.slots.values()):
        state.may[2] = "a leaf comes for which the optimizer has nothing"
    state.leaves = state.leaves | new
    _move(state, edit, {**moves, **{path: path for path in new}})


def _named(state: State, edit: Fields) -> dict[Path, Path]:
    """The leaves with the topmost node that the pattern matches."""
    selected = select(state, edit, skips_empties=False, names_twins=True)
    patterns = patterns_of(edit["at"])
    return {
        path: min((found[0] for p in patterns if (found := p.nodes(path))), key=len)
        for path in selected
    }


def _move(state: State, edit: Fields, moves: dict[Path, Path]) -> None:
    places._check_policy(edit)
    source = list(state.leaves)
    if moves and all(old == new for old, new in moves.items()):
        raise Refused(2, "nothing changes")
    places._refuse_torn(state, moves, edit)
    places._say_newcomers(state, moves)
    carried = {**places._twin_moves(state, moves, copying=False), **moves}
    if any(is_below(new, root) for root in state.optimizer for new in moves.values()):
        state.may[2] = "keys of the optimizer's own"
    places._rekey(state, carried)
    touched = places._lists_of(carried) | places._lists_of(carried.values())
    places._closed(state, touched, moves.values())
    places._check_items(state)
    places._check_names(state, state.leaves, source)


OPERATIONS = {
    "flatten": flatten,
    "unflatten": unflatten,
    "to-dict": to_dict,
    "to-list": to_list,
}
