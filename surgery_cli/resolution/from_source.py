"""Inverse plans for what no chain of edits leads back to: what a result lacks is taken from its source."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import count
from typing import Any, NamedTuple

from surgery_cli.draft.expression import LeafRef
from surgery_cli.draft.recipe import Draft, DraftItems, Output
from surgery_cli.draft.undo import difference
from surgery_cli.resolution.inverse import ORIGIN, entries_of, inserted, replaced
from surgery_cli.tree.paths import Key, LeafPath
from surgery_cli.tree.specs import TreeSpec
from surgery_cli.tree.targets import target_text

_RESULT = "result"
_LITERALLY = {"twins": "literal"}


class Ends(NamedTuple):
    """A result and the checkpoint that it was made of, as trees.

    ``kept`` are the leaves of the result that are leaves of the source as they are, wherever they stand. ``front`` is
    the item whose name the paths of the source lack, because a second item stands beside it in the result.
    """

    result: TreeSpec
    source: TreeSpec
    kept: Mapping[LeafPath, LeafPath]
    items: DraftItems
    front: str = ""

    def place(self, path: LeafPath) -> LeafPath:
        """Where a leaf of the source stood, among the paths of the result."""
        return LeafPath((self.front, *path)) if self.front else path

    def plans(self, address: str) -> Iterator[dict[str, Any]]:
        """Plans that make the source of the result, those first that take the least from it."""
        for edits in (self._as_one_edit(), self._whole()):
            yield {"sources": {ORIGIN: address}, "edits": edits}

    def _as_one_edit(self) -> list[dict[str, Any]]:
        """What is kept goes back to its place, all else is taken out or in."""
        before = Draft.of(self.source, "")
        if self.front:
            before = before.behind(self.front)
        leaves = {
            path: before.leaves[self.place(self.kept[path])]
            if path in self.kept
            else Output.of(LeafRef(_RESULT, path), spec)
            for path, spec in self.result.items()
        }
        after = Draft.of(self.result, "").replaced(leaves=leaves)
        cut = len(self.place(LeafPath()))
        undo = difference(before, after, lambda path: LeafPath(path[cut:]))
        return [*entries_of(undo, after), *replaced(set(undo.lost), self.source, self.front)]

    def _whole(self) -> list[dict[str, Any]]:
        """All of the source, in the place of all that there is."""
        aside = self._free_key(())
        if not self.items.names and not self.front:
            place = LeafPath((aside,))
            alone = {"op": "extract-item", "at": place.exact_pattern, **_LITERALLY}
            return [inserted(place, LeafPath()), alone]
        found: list[dict[str, Any]] = []
        names = dict.fromkeys(path[:1] for path in self.source) if self.items.is_prefixed else [()]
        roots = [(self.front,)] if self.front else list(names)
        for root in roots:
            home = LeafPath(() if self.front else root)
            place = LeafPath((*root, self._free_key(root)))
            others = dict.fromkeys(
                LeafPath(path[: len(root) + 1])
                for path in self.result
                if path[: len(root)] == root and len(path) > len(root)
            )
            keys = dict.fromkeys(
                path[len(home)] for path in self.source if path.is_below(home) and path != home
            )
            found.append(inserted(place, home))
            if others:
                found.append(_deleted(others))
            moves = {
                (place / (key,)).exact_pattern: target_text(LeafPath((*root, key))) for key in keys
            }
            found.append({"op": "rename", "moves": moves, **_LITERALLY})
        strange = [LeafPath(path[:1]) for path in self.result if path[:1] not in roots]
        if strange and self.items.is_prefixed:
            found.append(_deleted(dict.fromkeys(strange)))
        return found

    def _free_key(self, root: tuple[Key, ...]) -> Key:
        """A key that neither tree has below a root; the next index, where that is a list."""
        cut = len(root)
        there = {path[cut] for path in self.result if path[:cut] == root and len(path) > cut}
        if any(isinstance(key, int) for key in there):
            return len(there)
        taken = {str(key) for path in (*self.source, *self.result) for key in path[: cut + 1]}
        return next(name for n in count() if (name := f"{ORIGIN}_{n}") not in taken)


def _deleted(nodes: Collection[LeafPath]) -> dict[str, Any]:
    return {"op": "delete", "at": [node.exact_pattern for node in nodes], **_LITERALLY}
