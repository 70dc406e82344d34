"""The plan that undoes a plan: edit by edit from the last, and at the end what only the source has."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from surgery_cli.draft.recipe import Draft
from surgery_cli.draft.undo import Undo, difference, nodes_of
from surgery_cli.operations.base import Operation
from surgery_cli.tree.paths import Key, LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec, TreeSpec
from surgery_cli.tree.targets import target_text

ORIGIN: Final = "source"
"""The name in an inverse plan of the checkpoint that was edited."""

_LITERALLY: Final = {"twins": "literal"}
_ONLY_THERE: Final = "only the source has it"
_PLACES: Final = ("at", "to")


class Inverse:
    """What undoes the edits of a plan, found once it is asked for."""

    def __init__(self) -> None:
        self._steps: list[tuple[Operation, Draft, Draft]] = []

    def see(self, edit: Operation, before: Draft, after: Draft) -> None:
        """One more edit, with the draft before it and after it."""
        self._steps.append((edit, before, after))

    def document(self, source: str, params: str | None = None) -> dict[str, Any]:
        """The inverse plan as plain values.

        ``source`` is the address of the checkpoint that was edited, ``params`` where its params stood, if it was said.
        """
        edits = self._edits()
        sources = {"sources": {ORIGIN: source}} if any(needs_source(edit) for edit in edits) else {}
        return {**sources, **self._params(edits, params), "edits": edits}

    def _params(self, edits: Collection[Mapping[str, Any]], said: str | None) -> dict[str, Any]:
        """Where the params stand now, if twins are to follow them, and it was said or they have moved."""
        if all(edit.get("twins") == "literal" for edit in edits):
            return {}
        before, after = (
            {slot.root for slot in draft.slots.values() if slot.in_optimizer}
            for draft in (self._steps[0][1], self._steps[-1][2])
        )
        if len(after) != 1 or (said is None and before == after):
            return {}
        return {"params": after.pop().spelling}

    @property
    def original(self) -> str:
        """A digest of the tree that the inverse must give, where edits have changed its paths; '' elsewhere."""
        if all(before.leaves.keys() == after.leaves.keys() for _, before, after in self._steps):
            return ""
        return tree_digest(self._steps[0][1].source_tree)

    def _edits(self) -> list[dict[str, Any]]:
        if not self._steps:
            return []
        tree, front = self._steps[0][1].source_tree, self._steps[-1][2].items.front
        undone = self._undone()
        has_items_as_before = self._steps[0][1].items == self._steps[-1][2].items
        if len(undone) > 1 and has_items_as_before and (needed := _needed(undone, tree)):
            whole = [undone[0].joined(self._steps[-1][2])]
            if len(_needed(whole, tree)) < len(needed):
                undone = whole  # of what was copied and then deleted, the copy moves back
        lost: set[LeafPath] = set()
        found: list[dict[str, Any]] = []
        for undo, _, after, homes in reversed(undone):
            lost |= homes.of_any(undo.lost)
            is_behind = front and not after.items.front
            entries = entries_of(undo, after)
            found += [_behind(entry, front) for entry in entries] if is_behind else entries
        return [*found, *replaced(lost, tree, front)]

    def _undone(self) -> list[_Undone]:
        """What undoes the edits from the last to the first, here from the first to the last.

        What nothing brings back for the edits before it, such as a part of a leaf, is not brought back: those edits
        and this one are undone as one.
        """
        found: list[_Undone] = []
        homes = _Homes(self._steps[0][1].source_tree)
        for edit, before, after in self._steps:
            homes = homes.standing_behind(before.items.front)
            each = _Undone(edit.undo(before, after, homes.of), before, after, homes)
            while each.undo.owed and found:
                each = found.pop().joined(after)
            found.append(each)
            homes = each.homes.after(each.undo, after)
        return found


def tree_digest(tree: Mapping[LeafPath, LeafSpec]) -> str:
    """``sha256:…`` over the keys of a tree and what its leaves are, in whatever order."""
    from hashlib import sha256  # loads OpenSSL: not to print help

    specs = ((s.kind, s.shape, s.dtype, s.empty, s.key_impl) for s in tree.values())
    lines = sorted(map(msgspec.json.encode, zip(tree, specs, strict=True)))
    return f"sha256:{sha256(b''.join(lines)).hexdigest()}"


class _Undone(NamedTuple):
    """What leads from the draft after an edit, or after several, back to the one before, which has these homes."""

    undo: Undo
    before: Draft
    after: Draft
    homes: _Homes

    def joined(self, after: Draft) -> _Undone:
        """The same from a later draft."""
        before, homes = self.before, self.homes
        if after.items.front != before.items.front:
            before = before.behind(after.items.front)
            homes = homes.standing_behind(after.items.front)
        return _Undone(difference(before, after, homes.of), before, after, homes)


def _needed(undone: Iterable[_Undone], tree: TreeSpec) -> set[LeafPath]:
    """The leaves of the source that are taken from there."""
    found: set[LeafPath] = set()
    for undo, _, _, homes in undone:
        found |= homes.of_any(undo.lost)
        nodes, depths = {*undo.missing.values()}, {len(node) for node in undo.missing.values()}
        if nodes:
            found.update(p for p in tree if any(p[:depth] in nodes for depth in depths))
    return found


class _Homes:
    """Where the source has what stands at a path of a draft."""

    def __init__(
        self,
        tree: TreeSpec,
        known: Mapping[LeafPath, LeafPath | None] = {},
        parts: Mapping[LeafPath, tuple[LeafPath, ...]] = {},
        front: str = "",
    ) -> None:
        self._tree, self._known, self._parts, self._front = tree, known, parts, front

    def all_of(self, path: LeafPath) -> tuple[LeafPath, ...]:
        """The leaves of the source in which the values of one are that was joined of several, or is a part of one."""
        home = self.of(path)
        return self._parts.get(path, () if home is None else (home,))

    def of_any(self, paths: Iterable[LeafPath]) -> set[LeafPath]:
        """The leaves of the source in which the values of any of these are."""
        every = {
            id(homes): homes for homes in map(self.all_of, paths)
        }  # parts of a leaf share theirs
        return {home for homes in every.values() for home in homes}

    def of(self, path: LeafPath) -> LeafPath | None:
        if path in self._parts:
            return None
        if path in self._known:
            return self._known[path]
        own = LeafPath(path[1:]) if self._front and path[:1] == (self._front,) else path
        return own if own in self._tree else None

    def standing_behind(self, front: str) -> _Homes:
        """The same once paths have the name of their item in front."""
        if not front or self._front:
            return self
        known = {LeafPath((front, *path)): home for path, home in self._known.items()}
        parts = {LeafPath((front, *path)): homes for path, homes in self._parts.items()}
        return _Homes(self._tree, known, parts, front)

    def after(self, undo: Undo, after: Draft) -> _Homes:
        """The same of the draft after an edit."""
        places = [*undo.gone, *undo.moves]
        goals: dict[tuple[Key, ...], LeafPath | None] = {p: undo.moves.get(p) for p in places}
        depths = {len(node) for node in goals}
        known, parts = dict(self._known), dict(self._parts)
        for leaf in after.leaves if goals else ():
            for depth in depths:
                if (node := leaf[:depth]) in goals:
                    goal = goals[node]
                    known[leaf] = None if goal is None else self.of(goal / leaf[depth:])
                    if goal is not None and goal / leaf[depth:] in self._parts:
                        parts[leaf] = self._parts[goal / leaf[depth:]]
        homes: dict[tuple[LeafPath, ...], tuple[LeafPath, ...]] = {}
        for leaf, olds in undo.parts.items():
            if olds not in homes:  # what is a part of one leaf has the homes of all the others
                every = (home for old in olds for home in self.all_of(old))
                homes[olds] = tuple(dict.fromkeys(every))
            parts[leaf] = homes[olds]
        return _Homes(self._tree, known, parts, self._front)


def needs_source(edit: Mapping[str, Any]) -> bool:
    """True if an entry of an inverse plan takes something from the checkpoint that was edited."""
    return edit.get("with") == ORIGIN


def entries_of(undo: Undo, after: Draft) -> list[dict[str, Any]]:
    """The edits that do what ``undo`` says, from the tree ``after``."""
    return [*undo.edits, *(undo.instead or _placed(undo, after))]


def _placed(undo: Undo, after: Draft) -> Iterator[dict[str, Any]]:
    """What puts every leaf where it stood."""
    moves = dict(undo.moves)
    if undo.gone:
        yield {"op": "delete", "at": [p.exact_pattern for p in undo.gone], "twins": "literal"}
    sizes: dict[LeafPath, int] = {}
    into_lists: list[LeafPath] = []
    for place, home in undo.missing.items():
        node = place.parent
        if not isinstance(place[-1], int) or node not in after.tree.sequences:
            continue
        # a list has no holes: an element is put behind the others, and all get their places at once
        if node not in sizes:
            left = {p[len(node)] for p in after.leaves if p.is_below(node) and len(p) > len(node)}
            dropped = {p[len(node)] for p in undo.gone if p.parent == node}
            sizes[node] = len(left - dropped)
        end = LeafPath((*node, sizes[node]))
        sizes[node] += 1
        into_lists.append(place)
        if end != place:
            moves[end] = place
        yield inserted(end, home)
    if moves:
        texts = {old.exact_pattern: target_text(new) for old, new in moves.items()}
        yield {"op": "rename", "moves": texts, "twins": "literal"}
    others = {place: home for place, home in undo.missing.items() if place not in into_lists}
    at_home = [place for place, home in others.items() if place == home]
    if len(at_home) > 1 and after.items.keeps_kinds:  # else in a file that keeps the order of keys
        at = [place.exact_pattern for place in at_home]
        yield {"op": "merge", "at": at, "with": ORIGIN, **_LITERALLY, "note": _ONLY_THERE}
        others = {place: home for place, home in others.items() if place != home}
    for place, home in others.items():
        yield inserted(place, home)


def inserted(place: LeafPath, home: LeafPath) -> dict[str, Any]:
    """The entry that puts a node of the source, or all of it, at a place."""
    origin = {"from": home.spelling} if home else {}
    said = {**_LITERALLY, "note": _ONLY_THERE}
    return {"op": "insert-item", "at": place.exact_pattern, "with": ORIGIN, **origin, **said}


def replaced(lost: set[LeafPath], tree: TreeSpec, front: str) -> list[dict[str, Any]]:
    """The values that only the source has."""
    leaves = [path for path, spec in tree.items() if spec.kind is not LeafKind.EMPTY]
    nodes = nodes_of([leaf for leaf in leaves if leaf in lost], leaves)
    if not nodes:
        return []
    said = {"with": ORIGIN, **_LITERALLY, "note": "only the source has these values"}
    if not front:
        return [{"op": "replace", "at": [node.exact_pattern for node in nodes], **said}]
    return [
        {
            "op": "replace",
            "at": LeafPath((front, *node)).exact_pattern,
            "from": node.spelling,
            **said,
        }
        for node in nodes
    ]


def _behind(entry: dict[str, Any], front: str) -> dict[str, Any]:
    """An entry whose paths begin with the name of an item."""
    name = LeafPath((front,)).exact_pattern

    def put(value: Any) -> Any:
        return (
            [f"{name}/{text}" for text in value] if isinstance(value, list) else f"{name}/{value}"
        )

    put_in = {key: put(value) for key, value in entry.items() if key in _PLACES}
    if "moves" in entry:
        put_in["moves"] = {put(old): put(new) for old, new in entry["moves"].items()}
    return {**entry, **put_in}
