"""Renames as findings: nodes, and series of them, that stand under another name; each with the edit that moves it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from surgery_cli.matching.structures import DIGITS, numbered
from surgery_cli.script.contract import RAISES, Breach, specs_below
from surgery_cli.script.findings import Edit, Mend, Slots
from surgery_cli.script.renamed_subtrees import Moves
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, TreeSpec
from surgery_cli.tree.targets import target_text

STRUCTURAL: Final = ("extra", "missing", "container")
"""Breaches of which moves take care."""


def after_renames(moves: Moves, stored: TreeSpec, slots: Slots) -> tuple[TreeSpec, Slots]:
    """The tree and its slots as renames leave them: slots follow their params."""
    places: dict[LeafPath, LeafPath] = {}
    params: dict[LeafPath, LeafPath] = {}
    for old, new in moves.items():
        for path in stored:
            if path.is_below(old):
                places[path] = new / path[len(old) :]
        for path, slot in slots.items():
            if slot.param.is_below(old):
                params[path] = new / slot.param[len(old) :]
                places[path] = slot.place_for(params[path]) or path

    def place(node: LeafPath) -> LeafPath:
        above = next((old for old in moves if node.is_below(old)), None)
        return node if above is None else moves[above] / node[len(above) :]

    moved = [
        slot.rebased(place, path=places.get(path, path), param=params.get(path, slot.param))
        for path, slot in slots.items()
    ]
    return stored.mapped(lambda path: places.get(path, path)), {slot.path: slot for slot in moved}


def is_plain(new: LeafPath, stored: TreeSpec) -> bool:
    """True if a rename needs no other place to be made free: nothing stands at, above or below the new path."""
    above = (LeafPath(new[:depth]) for depth in range(1, len(new) + 1))
    return new not in stored.nodes and not any(node in stored for node in above)


def twins_of(moves: Moves, slots: Slots) -> set[LeafPath]:
    """Those of the moved nodes whose leaves all are slots of params that move alike."""
    return {old for old in moves if _leader(old, moves, slots) is not None}


def _leader(node: LeafPath, moves: Moves, slots: Slots) -> LeafPath | None:
    """The moved node of params to which all slots below ``node`` belong."""
    params = {slot.param for path, slot in slots.items() if path.is_below(node)}
    for other in moves:
        if other != node and params and all(param.is_below(other) for param in params):
            return other
    return None


def renamed(
    series: Moves,
    moves: Moves,
    breaches: Sequence[Breach],
    slots: Slots,
    stored: TreeSpec,
    wanted: TreeSpec,
) -> Mend:
    """The finding of a node, or of a series of nodes, that stands under another name."""
    leaders = {o: _leader(o, moves, slots) for o in moves if o not in series}
    followers = {o: moves[o] for o, leader in leaders.items() if leader in series}
    pairs = [*series.items(), *followers.items()]
    parts = tuple(b for b in breaches if b.what in STRUCTURAL and _is_settled(b, moves, pairs))
    old, new = label([*series]), label([*series.values()])
    return Mend(
        path=next(iter(series)),
        name=old,
        what="renamed",
        here=old,
        there=new,
        effect=RAISES,
        breaches=parts,
        twins=tuple(label([*twins]) for twins in grouped(followers)),
        nodes=tuple(node for node, _ in pairs),
        edits=_edits(series, stored, wanted),
    )


def _is_settled(breach: Breach, moves: Moves, pairs: Sequence[tuple[LeafPath, LeafPath]]) -> bool:
    """True if all leaves of a breach are moved away, or filled by moves, one of ``pairs`` among them."""
    side = 1 if breach.what == "missing" else 0
    ends = moves.values() if side else moves.keys()
    return any(leaf.is_below(pair[side]) for leaf in breach.leaves for pair in pairs) and all(
        any(leaf.is_below(end) for end in ends) for leaf in breach.leaves
    )


def _edits(series: Moves, stored: TreeSpec, wanted: TreeSpec) -> tuple[Edit, ...]:
    """The rename; in a list where the script wants nothing at the old place, a copy, and the old one emptied."""
    (old, new), *others = series.items()
    left = wanted.get(old)
    in_list = old.parent == new.parent and isinstance(old[-1], int)
    if in_list and not others and left is not None and left.kind is LeafKind.EMPTY:
        copy = {"op": "copy", "at": old.exact_pattern, "to": target_text(new)}
        return copy, {"op": "delete", "at": f"{old.exact_pattern}/*", "twins": "named"}
    return (rename_of(series, {*stored.nodes, *stored}),)


# --- numbered series as text -----------------------------------------------------------------------------------


def grouped(moves: Mapping[LeafPath, LeafPath]) -> list[dict[LeafPath, LeafPath]]:
    """The moves, those of one series together."""
    groups: dict[object, dict[LeafPath, LeafPath]] = {}
    for old, new in moves.items():
        (before, numbers), (after, same) = numbered(old), numbered(new)
        key = (before, after) if numbers == same and numbers else old
        groups.setdefault(key, {})[old] = new
    return list(groups.values())


def label(paths: Sequence[LeafPath]) -> str:
    """The paths of a series as one: the numbers that differ as a range.

    >>> label([LeafPath(("p", f"layers_{n}", "w")) for n in range(3)])
    'p/layers_{0..2}/w'
    >>> label([LeafPath(("p", f"layers_0{n}", "1", "w")) for n in range(3)])
    'p/layers_{00..02}/1/w'
    """
    columns = zip(*(DIGITS.findall(str(path)) for path in paths), strict=True)
    numbers = iter([_range(set(column)) for column in columns])
    return DIGITS.sub(lambda _: next(numbers), str(paths[0]))


def rename_of(moves: Mapping[LeafPath, LeafPath], stored: Iterable[LeafPath]) -> Edit:
    """The edit that moves one node, or all members of a series; ``stored`` are all nodes and leaves of the tree."""
    (old, new), *others = moves.items()
    if not others:
        return plain_rename(moves)
    columns = list(zip(*(numbered(path)[1] for path in moves), strict=True))
    differs = [len(set(column)) > 1 for column in columns]
    at = "/".join(_filled(old, ["*" if it else None for it in differs]))
    to = "/".join(_filled(new, [r"\1" if it else None for it in differs]))
    is_plain = not any(c in str(key) for key in (*old, *new) for c in "/*?[{\\%")
    if not is_plain or sum(differs) != 1:
        return plain_rename(moves)
    named = re.compile(re.escape(at).replace(r"\*", "([^/]*)"))
    goals = {p: found.expand(to) for p in stored if (found := named.fullmatch(p.text))}
    if goals == {
        path: goal.text for path, goal in moves.items()
    }:  # numbers may be spelled 07 there
        return {"op": "rename", "at": at, "to": to}
    return plain_rename(moves)


def plain_rename(moves: Mapping[LeafPath, LeafPath]) -> Edit:
    """The edit that moves nodes, each by its path."""
    (old, new), *others = moves.items()
    if not others:
        return {"op": "rename", "at": old.exact_pattern, "to": target_text(new)}
    return {
        "op": "rename",
        "moves": {old.exact_pattern: target_text(new) for old, new in moves.items()},
    }


def _filled(path: LeafPath, texts: Sequence[str | None]) -> list[str]:
    """The keys of a path as text, with others in the place of its numbers; None leaves one as it is."""
    left = iter(texts)
    return [DIGITS.sub(lambda found: next(left) or found[0], str(key)) for key in path]


def _range(numbers: Collection[str]) -> str:
    """The numbers, as they are spelled, as a choice or a range."""
    found = sorted(numbers, key=lambda text: (int(text), text))
    first, last = found[0], found[-1]
    if first == last:
        return first
    width = len(first) if first.startswith("0") and len(first) > 1 else 1
    is_row = all(text == f"{int(first) + n:0{width}}" for n, text in enumerate(found))
    return f"{{{first}..{last}}}" if is_row else f"{{{','.join(found)}}}"


def exchange(moves: Moves, parts: Sequence[Breach]) -> tuple[Edit, ...]:
    """Edits that take every node to its new place, and empties to where the script wants them."""
    surplus = _empties(parts, [b.stored for b in parts], moves)
    wanted = _empties(parts, [b.wanted for b in parts], moves.values())
    shared = [path for path in surplus if path in wanted]
    surplus = [path for path in surplus if path not in shared]
    wanted = [path for path in wanted if path not in shared]
    every = {**moves, **dict(zip(surplus, wanted, strict=False))}
    gone, more = surplus[len(wanted) :], wanted[len(surplus) :]
    empty = next(iter(_empties(parts, [b.stored for b in parts], ())), None)
    if more and empty is None:
        return ()
    # Lists have no holes between edits, so all places change at once; what is too many, or is needed twice, waits
    # under a name of its own at the root
    edits: list[Edit] = []
    for number, path in enumerate(more):
        spare = LeafPath((f"empty_{number}",))
        edits.append({"op": "copy", "at": (empty or path).exact_pattern, "to": target_text(spare)})
        every[spare] = path
    for number, path in enumerate(gone):
        every[path] = LeafPath((f"empty_{number}",))
    edits.append(
        {
            "op": "rename",
            "moves": {old.exact_pattern: target_text(new) for old, new in every.items()},
        }
    )
    edits += [{"op": "delete", "at": every[path].exact_pattern} for path in gone]
    return tuple(edits)


def _empties(
    parts: Sequence[Breach], sides: Sequence[Any], moved: Collection[LeafPath]
) -> list[LeafPath]:
    """Empty leaves on one side of the breaches that no move takes along."""
    return [
        breach.path / path
        for breach, side in zip(parts, sides, strict=True)
        if side is not None
        for path, spec in specs_below(side).items()
        if spec.kind is LeafKind.EMPTY
        and not any((breach.path / path).is_below(node) for node in moved)
    ]
