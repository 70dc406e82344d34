"""What the operations of places do: old paths to new ones, twins with them, lists closed, containers left empty."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from tests.random_plans.model import (
    Empty,
    Fields,
    Leaf,
    Path,
    Refused,
    Slot,
    State,
    Words,
    is_below,
    printed,
)
from tests.random_plans.patterns import Pattern, patterns_of, select
from tests.random_plans.world import World

Moves = Mapping[Path, Path]


# --- twins -------------------------------------------------------------------------------------------------------


def _goal_of(node: Path, moves: Moves, state: State) -> Path | None:
    """Where a node goes if everything below it goes alike; None if parts go elsewhere or stay."""
    goals = set()
    for leaf in state.leaves:
        if is_below(leaf, node):
            tail = leaf[len(node) :]
            goal = moves.get(leaf, leaf)
            whole = goal[len(goal) - len(tail) :] == tail
            goals.add(goal[: len(goal) - len(tail)] if whole else None)
    return goals.pop() if len(goals) == 1 else None


def _twin_moves(state: State, moves: Moves, *, copying: bool) -> dict[Path, Path]:
    """Where twins go because their params go.

    Raises:
        Refused: a param leaves what its optimizer mirrors while others stay.
    """
    found: dict[Path, Path] = {}
    whole = {
        root: _goal_of(root, moves, state) for root in {slot.root for slot in state.slots.values()}
    }
    for slot in state.slots.values():
        if slot.path not in state.leaves or slot.path in moves:
            continue
        if slot.param in state.leaves or slot.relation != "hole":
            goal = moves.get(slot.param)
        else:
            touched = any(is_below(old, slot.param) for old in moves)
            goal = _goal_of(slot.param, moves, state) if touched else None
            if touched and goal is None:
                inside = all(
                    is_below(moves.get(p, p), slot.param) for p in moves if is_below(p, slot.param)
                )
                if inside and not any(
                    is_below(new, slot.param) and not is_below(old, slot.param)
                    for old, new in moves.items()
                ):
                    continue
                if copying:
                    state.may[2] = "a part of what a hole stands for is copied"
                    continue
                raise Refused(2, "a part of what a hole stands for")
            if goal == slot.param:
                continue
        if goal is None:
            continue
        if is_below(goal, slot.root):
            found[slot.path] = slot.place_for(goal)
        elif copying or whole[slot.root] not in (None, slot.root):
            continue
        else:
            raise Refused(2, f"'{printed(slot.param)}' leaves what '{printed(slot.node)}' mirrors")
    return {old: new for old, new in found.items() if old != new}


def _moved_slots(state: State, moves: Moves) -> dict[Path, Slot]:
    """The slots after a move of params and twins; also where a whole field, or all params, moved."""
    roots = {slot.root for slot in state.slots.values()}
    whole = {root: _goal_of(root, moves, state) or root for root in roots}
    nodes = {slot.node: _goal_of(slot.node, moves, state) for slot in state.slots.values()}
    found = {}
    for slot in state.slots.values():
        if slot.path not in state.leaves:
            continue
        path = moves.get(slot.path, slot.path)
        if slot.param in state.leaves:
            param = moves.get(slot.param, slot.param)
        else:
            param = _goal_of(slot.param, moves, state) or slot.param
        root = whole[slot.root]
        if not is_below(param, root):
            root = slot.root
        node = nodes[slot.node] or slot.node
        found[path] = replace(slot, path=path, param=param, root=root, node=node)
    return found


def _refuse_torn(state: State, named: Iterable[Path], edit: Fields) -> None:
    """Parts of the optimizer state that are named themselves: whether that tears it, the program may say."""
    if any(path in state.slots or state.holds_optimizer(path) for path in named):
        state.may[2] = "parts of the optimizer state are named"


def _say_newcomers(state: State, moves: Moves) -> None:
    """What comes among the params of an optimizer, or into its state: the state would not mirror them."""
    for place in {place for slot in state.slots.values() for place in (slot.root, slot.node)}:
        if any(is_below(new, place) and not is_below(old, place) for old, new in moves.items()):
            state.may[2] = "a leaf comes for which the optimizer has nothing"


# --- lists, containers -------------------------------------------------------------------------------------------


def _lists_of(paths: Iterable[Path]) -> set[Path]:
    return {path[:n] for path in paths for n, key in enumerate(path) if isinstance(key, int)}


def _indices(leaves: Iterable[Path], node: Path) -> list[int]:
    depth = len(node)
    keys = {p[depth] for p in leaves if is_below(p, node) and len(p) > depth}
    return sorted(key for key in keys if isinstance(key, int))


def _has_hole(leaves: Iterable[Path], node: Path) -> bool:
    found = _indices(leaves, node)
    return found != list(range(len(found)))


def _check_mixed(leaves: Iterable[Path]) -> None:
    kinds: dict[Path, set[type]] = {}
    for path in leaves:
        for n, key in enumerate(path):
            kinds.setdefault(path[:n], set()).add(type(key))
    if any(len(found) > 1 for found in kinds.values()):
        raise Refused(2, "names and indices in one container")


def _check_names(state: State, new: Iterable[Path], source: Iterable[Path]) -> None:
    """Names that Orbax would store alike, or lose."""
    new = set(new) - set(source)
    for path in new:
        for key in map(str, path):
            if any(part in ("", ".", "..") for part in key.split("/")) or "\0" in key:
                raise Refused(2, f"the key '{key}' cannot be stored")
    stored: dict[str, Path] = {}
    for path in state.leaves:
        name = ".".join(map(str, path))
        other = stored.setdefault(name, path)
        if other != path and (other in new or path in new):
            raise Refused(2, f"two leaves would be stored as '{name}'")
    for name, path in stored.items():
        parts = name.split("/")
        for n in range(1, len(parts)):
            outer = stored.get("/".join(parts[:n]))
            if outer is not None and (outer in new or path in new):
                raise Refused(2, f"'{name}' would lie inside of a leaf's directory")


def _closed(state: State, touched: set[Path], asked: Iterable[Path]) -> None:
    """Lists that lost an element close the gap, but for those of the optimizer state."""
    _check_mixed(state.leaves)
    asked_lists = _lists_of(asked)
    holes = {node for node in touched if _has_hole(state.leaves, node)}
    if holes & asked_lists:
        raise Refused(2, "the edit asks for a hole in a list")
    closing = {
        node: {old: new for new, old in enumerate(_indices(state.leaves, node))}
        for node in holes
        if not state.holds_optimizer(node)
    }

    def renumbered(path: Path) -> Path:
        keys = list(path)
        for n in range(len(path)):
            if path[:n] in closing:
                keys[n] = closing[path[:n]].get(path[n], path[n])
        return tuple(keys)

    moves = {path: new for path in state.leaves if (new := renumbered(path)) != path}
    if moves:
        _rekey(state, {**_twin_moves(state, moves, copying=False), **moves})
    after = {renumbered(node) for node in touched}
    if any(_has_hole(state.leaves, node) for node in after):
        raise Refused(2, "a hole in a list of the optimizer state")


def _rekey(state: State, moves: Moves) -> None:
    """All moves at once.

    Raises:
        Refused: two leaves on one path, or one below another.
    """
    leaves: dict[Path, Leaf] = {}
    slots = _moved_slots(state, moves)
    clocks = {moves.get(c, c): _goal_of(o, moves, state) or o for c, o in state.clocks.items()}
    roots = tuple(_goal_of(root, moves, state) or root for root in state.optimizer)
    root = _goal_of(state.root, moves, state) or state.root
    for path, leaf in state.leaves.items():
        new = moves.get(path, path)
        if new in leaves:
            raise Refused(2, f"two leaves at '{printed(new)}'")
        leaves[new] = leaf
    restarted = {moves.get(path, path) for path in state.restarted}
    state.leaves = _nested(leaves, moves.values())
    state.slots, state.clocks, state.optimizer, state.root = slots, clocks, roots, root
    state.restarted = restarted
    state.items = tuple(name for name in state.items if any(p[0] == name for p in state.leaves))


def _nested(leaves: dict[Path, Leaf], fresh: Iterable[Path]) -> dict[Path, Leaf]:
    """Fresh leaves below leaves are refused, but an empty dict may be filled."""
    filled = set()
    nodes = {path[:n] for path in leaves for n in range(len(path))}
    for path in fresh:
        if path in nodes:
            raise Refused(2, f"'{printed(path)}' is a node")
        for n in range(1, len(path)):
            above = leaves.get(path[:n])
            if above is None:
                continue
            if above.is_empty_dict and isinstance(path[n], str):
                filled.add(path[:n])
            else:
                raise Refused(2, f"'{printed(path[:n])}' is a leaf")
    return {path: leaf for path, leaf in leaves.items() if path not in filled}


# --- where `to` leads --------------------------------------------------------------------------------------------


def _target(text: str, node: Path, pattern: Pattern, state: State) -> Path:
    r"""The typed path of `to` for a node that a pattern matched; ``\1`` alone in a segment keeps its key's type."""
    if not text or "" in text.split("/"):
        raise Refused(2, "an empty key")
    groups = pattern.groups(node) if "\\" in text else ()
    parts: list[str | int] = []
    for segment in text.split("/"):
        whole = re.fullmatch(r"\\(\d)", segment)
        if whole:
            index = int(whole[1]) - 1
            if index >= len(groups):
                raise Refused(2, "no such wildcard")
            key = _captured_key(node, pattern, index, groups[index])
            parts.append(key)
            continue
        numbers = [int(n) for n in re.findall(r"\\(\d)", segment)]
        if any(n > len(groups) for n in numbers):
            raise Refused(2, "no such wildcard")
        parts.append(re.sub(r"\\(\d)", lambda m: groups[int(m[1]) - 1], segment))
    return _typed(parts, state, is_spelled="%2F" in text or "%25" in text)


def _captured_key(node: Path, pattern: Pattern, index: int, text: str) -> str | int:
    """The key that a wildcard stood for, if it stood for a whole one."""
    found = [key for key in node if str(key) == text]
    return found[0] if found else text


def _typed(parts: list[str | int], state: State, *, is_spelled: bool) -> Path:
    """The longest place that exists decides for its part; the rest are dict keys, or indices below a list."""
    known = state.nodes() | set(state.leaves)
    by_text: dict[str, list[Path]] = {}
    for path in known:
        text = "/".join(str(k).replace("/", "%2F") for k in path) if is_spelled else printed(path)
        by_text.setdefault(text, []).append(path)
    found: Path = ()
    rest = list(parts)
    for count in range(len(parts), 0, -1):
        places = by_text.get("/".join(map(str, parts[:count])), [])
        if len(places) > 1:
            raise Refused(2, "`to` means two places")
        if places:
            found, rest = places[0], list(parts[count:])
            break
    for part in rest:
        if state.is_list(found):
            if not re.fullmatch("0|[1-9][0-9]*", str(part)):
                raise Refused(2, "a name in a list")
            found = (*found, int(part))
        elif found in known and isinstance(part, int):
            found = (*found, str(part))
        else:
            key = str(part).replace("%2F", "/") if is_spelled else part
            found = (*found, key)
    return found


def _new_places(state: State, selected: list[Path], targets: Mapping[str, str]) -> dict[Path, Path]:
    found: dict[Path, Path] = {}
    for text, to in targets.items():
        pattern = Pattern(text)
        for leaf in selected:
            if not pattern.names(leaf):
                continue
            node = pattern.nodes(leaf)[-1]
            new = (*_target(to, node, pattern, state), *leaf[len(node) :])
            if found.setdefault(leaf, new) != new:
                raise Refused(2, f"'{printed(leaf)}' would move to two places")
    return found


# --- the operations ----------------------------------------------------------------------------------------------


def _check_policy(edit: Fields) -> None:
    if edit.get("optimizer"):
        raise Refused(2, "places have no policy")


def rename(state: State, edit: Fields, world: World, words: Words) -> None:
    _check_policy(edit)
    source = list(state.leaves)
    moves_given = edit.get("moves", {})
    asked = {**edit, "at": list(moves_given)} if moves_given else edit
    selected = select(state, asked, skips_empties=False, names_twins=True)
    targets = moves_given or dict.fromkeys([p.text for p in patterns_of(edit["at"])], edit["to"])
    moves = _new_places(state, selected, targets)
    if moves and all(old == new for old, new in moves.items()):
        raise Refused(2, "it already stands there")
    _refuse_torn(state, selected, edit)
    _say_merges(state, moves)
    _say_newcomers(state, moves)
    carried = {**_twin_moves(state, moves, copying=False), **moves}
    _rekey(state, carried)
    touched = _lists_of(carried) | _lists_of(carried.values())
    _closed(state, touched, moves.values())
    _check_items(state)
    _check_names(state, state.leaves, source)


def _say_merges(state: State, moves: Moves) -> None:
    """A subtree that comes to stand beside what is in its place already: the program may refuse to merge."""
    nodes = state.nodes()
    for new in moves.values():
        for n in range(1, len(new)):
            node = new[:n]
            if node in nodes and not any(is_below(old, node) for old in moves):
                state.may[2] = "two nodes would become one"


def copy(state: State, edit: Fields, world: World, words: Words) -> None:
    _check_policy(edit)
    source = list(state.leaves)
    selected = select(state, edit, skips_empties=False)
    targets = dict.fromkeys([p.text for p in patterns_of(edit["at"])], edit["to"])
    copies = _new_places(state, selected, targets)
    _refuse_torn(state, selected, edit)
    _say_merges(state, copies)
    _say_newcomers(state, copies)
    carried = {**_twin_moves(state, copies, copying=True), **copies}
    for new in carried.values():
        if new in state.leaves:
            raise Refused(2, f"'{printed(new)}' is taken")
    if len(set(carried.values())) < len(carried):
        raise Refused(2, "two copies at one place")
    slots = _copied_slots(state, carried)
    more = {new: state.leaves[old] for old, new in carried.items()}
    state.has_strangers |= any(
        new not in slots for old, new in carried.items() if old in state.slots
    )
    state.has_strangers |= any(not is_below(new, state.root) for new in copies.values())
    state.leaves = _nested({**state.leaves, **more}, more)
    state.slots |= slots
    state.restarted |= {new for old, new in carried.items() if old in state.restarted}
    _closed(state, _lists_of(carried.values()), copies.values())
    _check_items(state)
    _check_names(state, state.leaves, source)


def _copied_slots(state: State, copies: Moves) -> dict[Path, Slot]:
    """Copies of slots within their state are slots of the copied params; elsewhere only with the whole state."""
    torn = {
        s.state for s in state.slots.values() if s.path in state.leaves and s.path not in copies
    }
    found = {}
    for old, slot in state.slots.items():
        new = copies.get(old)
        if new is None:
            continue
        if is_below(new, slot.node):
            inside = new[len(slot.node) :]
            found[new] = replace(slot, path=new, param=(*slot.root, *inside))
        elif slot.state not in torn:
            node = new[: len(new) - len(old) + len(slot.node)]
            found[new] = replace(slot, path=new, node=node)
    return found


def delete(state: State, edit: Fields, world: World, words: Words) -> None:
    _check_policy(edit)
    selected = select(state, edit, skips_empties=False, names_twins=True)
    patterns = patterns_of(edit.get("at", ()))
    for pattern in patterns if edit.get("twins") != "named" else ():
        named_here = [path for path in selected if pattern.names(path)]
        slots = [state.slots[path] for path in named_here if path in state.slots]
        if any(slot.param in named_here and slot.relation != "hole" for slot in slots):
            raise Refused(2, "one pattern names a param and its own twin")
    gone: dict[Path, Path] = {}
    for leaf in selected:
        tops = [found[0] for p in patterns if not p.is_regex and (found := p.nodes(leaf))]
        gone[leaf] = min(tops, key=len) if tops else leaf
    _refuse_torn(state, selected, edit)
    for slot in state.slots.values():
        if slot.path in gone or slot.path not in state.leaves:
            continue
        below = [p for p in state.leaves if is_below(p, slot.param)]
        if not below or not all(p in gone for p in below):
            continue
        named = min((gone[p] for p in below), key=len)
        node = (*slot.node, *named[len(slot.root) :])
        covers = len(named) <= len(slot.param)
        gone[slot.path] = node if covers and is_below(slot.path, node) else slot.path
    if state.root in gone:  # emptied before, as were the nodes that mirrored it
        emptied = [p for p, leaf in state.leaves.items() if leaf.is_empty and leaf.home is None]
        gone |= {path: path for path in emptied if state.holds_optimizer(path)}
    left = {path: leaf for path, leaf in state.leaves.items() if path not in gone}
    nodes = {path[:n] for path in left for n in range(len(path))}
    lost = {node[:-1] for node in gone.values() if node[:-1] not in nodes}
    above = {node[:n] for node in lost for n in range(len(node))}
    for node in lost - above:
        kind = "[]" if state.is_list(node) else "{}"
        left[node] = Leaf(Empty(kind))
    if not left or () in left:
        raise Refused(2, "nothing would be left")
    touched = _lists_of(gone)
    _keep_only(state, left)
    _closed(state, touched, ())


def _check_items(state: State) -> None:
    """Every first key names an item of the step, where it has several."""
    if state.items and any(str(path[0]) not in state.items for path in state.leaves):
        raise Refused(2, "a path that belongs to no item")


def _keep_only(state: State, left: Mapping[Path, Leaf]) -> None:
    nodes = {path[:n] for path in left for n in range(len(path))} | set(left)
    state.leaves = dict(left)
    state.items = tuple(name for name in state.items if any(path[0] == name for path in left))
    state.slots = {
        path: slot for path, slot in state.slots.items() if path in left and slot.param in nodes
    }
    state.clocks = {clock: owner for clock, owner in state.clocks.items() if clock in left}


def keep(state: State, edit: Fields, world: World, words: Words) -> None:
    _check_policy(edit)
    selected = select(state, edit, skips_empties=False, names_twins=True)
    left = {path: state.leaves[path] for path in state.leaves if path in set(selected)}
    if not left:
        raise Refused(2, "nothing would be left")
    for node in _lists_of(state.leaves):
        if _indices(left, node) and _has_hole(left, node):
            raise Refused(2, "a list would have a hole")
    _keep_only(state, left)


# --- items -------------------------------------------------------------------------------------------------------


def _one_node(state: State, edit: Fields) -> Path:
    selected = select(state, edit, skips_empties=False)
    nodes = {
        pattern.nodes(leaf)[-1]
        for pattern in patterns_of(edit["at"])
        for leaf in selected
        if pattern.names(leaf)
    }
    if len(nodes) != 1:
        raise Refused(2, f"{len(nodes)} places")
    (node,) = nodes
    if node in state.leaves:
        raise Refused(2, "a leaf is no item")
    if any(is_below(path, node) and path not in selected for path in state.leaves):
        raise Refused(2, "a part would stay behind")
    return node


def extract_item(state: State, edit: Fields, world: World, words: Words) -> None:
    _check_policy(edit)
    node = _one_node(state, edit)
    if not world.has_steps:
        if edit.get("as") or edit.get("keep"):
            raise Refused(2, "one tree has no items")
        _keep_only(state, {p: leaf for p, leaf in state.leaves.items() if is_below(p, node)})
        _relocate(state, node, ())
        return
    own = world.own
    if state.items and len(node) == 1:
        raise Refused(2, "an item is no part of itself")
    name = edit.get("as") or str(node[-1])
    if not re.fullmatch(r"[A-Za-z_][\w.-]*", name):
        raise Refused(2, f"'{name}' cannot be the name of an item")
    if name in (state.items or (own,)) or name in world.taken:
        raise Refused(2, "the name is taken")
    if not edit.get("keep"):
        _refuse_broken(state, node)
    if not state.items:
        _relocate(state, (), (own,))
        state.items = (own,)
        node = (own, *node)
    if not edit.get("keep"):
        _relocate(state, node, (name,))
    else:
        copies = {
            (name, *path[len(node) :]): leaf
            for path, leaf in state.leaves.items()
            if is_below(path, node)
        }
        state.leaves |= copies
        state.has_strangers = True
    left = {path[0] for path in state.leaves}
    state.items = tuple(item for item in (*state.items, name) if item in left)


def _refuse_broken(state: State, node: Path) -> None:
    if isinstance(node[-1], int):
        raise Refused(2, "an element of a list")
    slots = [slot for slot in state.slots.values() if slot.path in state.leaves]
    parted = {slot.root for slot in slots if not is_below(slot.param, node)}
    for slot in slots:
        if is_below(slot.param, node) and node != slot.root and slot.root in parted:
            raise Refused(2, "a part of params that an optimizer mirrors")
    if any(is_below(node, root) and node != root for root in state.optimizer):
        raise Refused(2, "a part of the optimizer state")


def _relocate(state: State, node: Path, place: Path) -> None:
    def move(path: Path) -> Path:
        return (*place, *path[len(node) :]) if is_below(path, node) else path

    state.leaves = {move(path): leaf for path, leaf in state.leaves.items()}
    state.slots = {
        move(path): replace(
            slot,
            path=move(path),
            param=move(slot.param),
            node=move(slot.node),
            root=move(slot.root),
        )
        for path, slot in state.slots.items()
    }
    state.clocks = {move(clock): move(owner) for clock, owner in state.clocks.items()}
    state.optimizer = tuple(map(move, state.optimizer))
    state.restarted = set(map(move, state.restarted))
    state.root = move(state.root)


def insert_item(state: State, edit: Fields, world: World, words: Words) -> None:
    from tests.random_plans import twins

    at = edit["at"]
    place = _typed(list(at.split("/")), state, is_spelled="%2F" in at or "%25" in at)
    if state.items and place[0] not in state.items:
        raise Refused(2, "no such item")
    before = state.copy()
    item, arriving = _arriving(state, edit, world, place)
    rest = {p: leaf for p, leaf in state.leaves.items() if item is None or p[0] != item}
    standing = {p[len(place) :]: leaf for p, leaf in rest.items() if is_below(p, place)}
    if standing and not (len(standing) == 1 and standing.get((), Leaf("")).is_empty_dict):
        if set(standing) != set(arriving) or not all(
            _agree(standing[tail], arriving[tail]) for tail in arriving
        ):
            raise Refused(2, "another tree stands there")
        changed = {(*place, *tail): leaf for tail, leaf in arriving.items()}
        state.leaves = {p: changed.get(p, leaf) for p, leaf in rest.items()}
        if item is not None:
            state.may[2] = "an item over a subtree"
            state.items = tuple(name for name in state.items if name != item)
        named = [path for path in changed if not changed[path].is_empty]
        donors = None if item else world
        twins.follow_new_values(state, before, edit, named, words, world=donors)
        return
    _check_policy(edit)
    for slot in state.slots.values():
        for node in (slot.root, slot.node):
            if place != node and is_below(place, node):
                raise Refused(2, "a new leaf in what an optimizer mirrors")
    if item is not None:
        _relocate(state, (item,), place)
        state.items = tuple(name for name in state.items if name != item)
    more = {(*place, *tail): leaf for tail, leaf in arriving.items()}
    state.has_strangers |= item is None
    if any(state.holds_optimizer(path) for path in more):
        state.may[2] = "something comes into an optimizer's state"
    elsewhere = {path: leaf for path, leaf in rest.items() if path != place}  # an empty dict
    state.leaves = _nested({**elsewhere, **more}, more)
    _check_mixed(state.leaves)
    if any(_has_hole(state.leaves, node) for node in _lists_of([place])):
        raise Refused(2, "a list would have a hole")
    _check_names(state, more, before.leaves)


def _arriving(
    state: State, edit: Fields, world: World, place: Path
) -> tuple[str | None, dict[Path, Leaf]]:
    """The item of the step that is meant, None for a donor; and the tree that comes."""
    if edit.get("with"):
        return None, world.tree_of(edit["with"], edit.get("from", ""))
    item = edit.get("from", "")
    if item not in state.items or place[0] == item:
        raise Refused(2, "no other item of this step")
    return item, {p[1:]: leaf for p, leaf in state.leaves.items() if p[0] == item}


def _agree(one: Leaf, other: Leaf) -> bool:
    if one.is_empty or other.is_empty:
        return one.is_empty and other.is_empty and one.value == other.value
    return (one.dtype, one.shape, one.is_text, one.is_python) == (
        other.dtype,
        other.shape,
        other.is_text,
        other.is_python,
    )


OPERATIONS: dict[str, Callable[[State, Fields, World, Words], None]] = {
    "rename": rename,
    "copy": copy,
    "delete": delete,
    "keep": keep,
    "extract-item": extract_item,
    "insert-item": insert_item,
}
