"""Inverse plans for what no chain of edits leads back to: what a result lacks is taken from its source."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import count
from typing import Any, NamedTuple

from surgery_cli.draft.expression import LeafRef
from surgery_cli.draft.recipe import Draft, Output
from surgery_cli.draft.undo import difference
from surgery_cli.resolution.inverse import ORIGIN, entries_of, inserted, replaced
from surgery_cli.tree.paths import Key, LeafPath
from surgery_cli.tree.specs import TreeSpec

_RESULT = "result"
_LITERALLY = {"twins": "literal"}


class Side(NamedTuple):
    """The tree of a result, or of what it was made of, and the items of the step in which that stands, if it is one."""

    tree: TreeSpec
    items: tuple[str, ...] = ()
    is_prefixed: bool = False
    """True if paths begin with the name of their item."""


class Ends(NamedTuple):
    """A result and its source, by paths of one kind: where there are several items, these stand in front.

    ``kept`` are leaves of the result that are leaves of the source as they are, wherever they stand. ``own`` is the
    source's tree as it is opened, and ``front`` the item whose name its paths then lack. ``items`` are those of the
    source, ``brought`` those of them that the result lacks: they come first, and count as the result's below.
    """

    result: TreeSpec
    source: TreeSpec
    kept: Mapping[LeafPath, LeafPath]
    own: TreeSpec
    items: tuple[str, ...] = ()
    front: str = ""
    brought: tuple[str, ...] = ()

    @classmethod
    def of(cls, result: Side, source: Side, kept: Mapping[LeafPath, LeafPath]) -> Ends:
        """The ends of a run; ``kept`` as both sides' own paths have it."""
        both = {*result.items, *source.items}
        if not (result.items and source.items) or len(both) == 1:
            return cls(result.tree, source.tree, kept, source.tree, tuple(both))
        ours, theirs = (
            (lambda path: path) if side.is_prefixed else LeafPath((side.items[0],)).__truediv__
            for side in (result, source)
        )
        brought = tuple(name for name in source.items if name not in result.items)
        there = {theirs(path): spec for path, spec in source.tree.items()}
        come = {path: spec for path, spec in there.items() if path[0] in brought}
        here = {ours(path): spec for path, spec in result.tree.items()}
        same = {ours(path): theirs(home) for path, home in kept.items()}
        return cls(
            TreeSpec({**here, **come}),
            TreeSpec(there),
            {**same, **{path: path for path in come}},
            source.tree,
            source.items,
            "" if source.is_prefixed else source.items[0],
            brought,
        )

    def plans(self, address: str) -> Iterator[dict[str, Any]]:
        """Plans that make the source of the result, those first that take the least from it."""
        for edits in (self._as_one_edit, self._whole):
            come = [_brought(name, self._home(LeafPath((name,)))) for name in self.brought]
            yield {"sources": {ORIGIN: address}, "edits": [*come, *edits()]}

    def _home(self, path: LeafPath) -> LeafPath:
        """A path of the source as that is opened."""
        return LeafPath(path[1:]) if self.front else path

    def _as_one_edit(self) -> list[dict[str, Any]]:
        """What is kept goes back to its place, all else is taken out or in."""
        before = Draft.of(self.source, "").replaced(source_tree=self.own)
        leaves = {
            path: before.leaves[self.kept[path]]
            if path in self.kept
            else Output.of(LeafRef(_RESULT, path), spec)
            for path, spec in self.result.items()
        }
        after = Draft.of(self.result, "").replaced(leaves=leaves)
        undo = difference(before, after, self._home)
        lost = {self._home(path) for path in undo.lost}
        return [*entries_of(undo, after), *replaced(lost, self.own, self.front)]

    def _whole(self) -> list[dict[str, Any]]:
        """All of the source, in the place of all that there is."""
        if not self.items:
            place = LeafPath((self._free_key(),))
            alone = {"op": "extract-item", "at": place.exact_pattern, **_LITERALLY}
            return [inserted(place, LeafPath()), alone]
        if len(self.items) == 1 and not self.brought and self.source is self.own:
            aside, name = str(self._free_key()), self.items[0]
            only = [_deleted([LeafPath((name,))]), _brought(name, LeafPath())]
            return [_brought(aside, LeafPath()), *only, _deleted([LeafPath((aside,))])]
        found: list[dict[str, Any]] = []
        for root in (LeafPath((name,)) for name in self.items if name not in self.brought):
            found += [_deleted([root]), _brought(str(root[0]), self._home(root))]
        there = {path[0] for path in self.result} - {*self.items}
        strange = [LeafPath((name,)) for name in sorted(map(str, there))]
        return [*found, _deleted(strange)] if strange else found

    def _free_key(self) -> Key:
        """A key that neither tree has at its root; the next index, where that is a list."""
        there = {path[0] for path in self.result if path}
        if not self.items and any(isinstance(key, int) for key in there):
            return len(there)
        taken = {str(key) for path in (*self.source, *self.result) for key in path} | {*self.items}
        return next(name for n in count() if (name := f"{ORIGIN}_{n}") not in taken)


def _brought(name: str, home: LeafPath) -> dict[str, Any]:
    """The entry that makes an item of the step of one of the source, or of all of it."""
    origin = {"from": home.spelling} if home else {}
    said = {"note": "only the source has it", **_LITERALLY}
    return {"op": "insert-item", "as": name, "with": ORIGIN, **origin, **said}


def _deleted(nodes: Collection[LeafPath]) -> dict[str, Any]:
    return {"op": "delete", "at": [node.exact_pattern for node in nodes], **_LITERALLY}
