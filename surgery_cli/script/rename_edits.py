"""The edits that take nodes to their new places, all at once; and paths as text that a plan takes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, TypeAlias

from surgery_cli.script.contract import Breach, specs_below
from surgery_cli.script.renamed_subtrees import Moves
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind

Edit: TypeAlias = dict[str, Any]
"""An edit as it stands in a plan."""


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
        edits.append({"op": "copy", "at": literal(empty or path), "to": spelled(spare)})
        every[spare] = path
    for number, path in enumerate(gone):
        every[path] = LeafPath((f"empty_{number}",))
    edits.append(
        {"op": "rename", "moves": {literal(old): spelled(new) for old, new in every.items()}}
    )
    edits += [{"op": "delete", "at": literal(every[path])} for path in gone]
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


def spelled(path: LeafPath) -> str:
    """The path as a plan takes it: spelled out only where a key contains a slash."""
    return path.spelling if any("/" in str(key) for key in path) else str(path)


def literal(path: LeafPath) -> str:
    """The pattern that names this path and no other."""
    return "".join(f"[{c}]" if c in "*?[{" else c for c in spelled(path))
