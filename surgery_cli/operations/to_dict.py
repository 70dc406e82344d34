"""Make dicts of lists."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from surgery_cli.draft.recipe import Draft
from surgery_cli.draft.undo import Homes, Undo
from surgery_cli.errors import PlanError
from surgery_cli.operations.base import Scene
from surgery_cli.operations.rekey import PlaceOperation, rekey
from surgery_cli.optimizer.follow.moved_slots import Paths
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, lists_in


class ToDict(PlaceOperation, tag="to-dict", kw_only=True, frozen=True):
    """Make dicts of lists and tuples: place 0 becomes the key `0`. Paths print as before; `to-list` is the way back.

    All lists that are named, or stand below, become what Flax NNX and `flax.serialization.to_state_dict` hold in their
    place. A training script that has a list there no longer restores them. Twins in the optimizer state follow.
    """

    empties: Annotated[
        Literal["keep", "drop"],
        Meta(
            description="What is empty below (`None`, `{}`, `[]`), as the state of a transform that holds nothing:"
            " `drop` leaves it out, as NNX does. What stands for a masked param stays, as it does there."
        ),
    ] = "keep"

    example: ClassVar[str] = "op: to-dict\nat: opt_state\nempties: drop\n"
    refuses_torn_twins: ClassVar[bool] = True

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        params = {slot.param for slot in draft.slots.values()}
        relation = self._relation(draft, scene)
        if relation and all(news == (old,) for old, news in relation.items()):
            raise PlanError(
                f"'{self.summary}' changes nothing",
                why="no list stands there or below: the numbers in these paths are keys of dicts",
                fix="name the list itself, or a node above it; or take this edit out of the plan",
                field="at",
            )
        first = {old: news for old, news in relation.items() if old in params}
        if first:  # twins follow before the states that hold them move
            draft = rekey(draft, first, is_literal=self.follows_nothing)
            relation = self._relation(draft, scene)
        return rekey(draft, relation, is_literal=self.follows_nothing)

    def _relation(self, draft: Draft, scene: Scene) -> dict[LeafPath, Paths]:
        found: dict[LeafPath, Paths] = {}
        for path, node in scene.select(self, draft).topmost().items():
            is_empty = draft.leaves[path].spec.kind is LeafKind.EMPTY and path != node
            is_dropped = self.empties == "drop" and is_empty and not _is_masked(path, draft)
            place = LeafPath((*node, *map(str, path[len(node) :])))
            found[path] = () if is_dropped else (place,)
        return found

    def undo(self, before: Draft, after: Draft, home: Homes) -> Undo:
        """Dicts become lists again, each with as many places as it had."""
        lengths = dict(_lengths(before, after))
        gone = len(before.leaves) - len(after.leaves)
        if gone != sum(length - count for length, count in lengths.values()):
            return super().undo(before, after, home)  # not all that was dropped stood in lists
        whole = [node.exact_pattern for node, (length, count) in lengths.items() if length == count]
        entries: list[dict[str, Any]] = [
            {"op": "to-list", "at": node.exact_pattern, "length": length}
            for node, (length, count) in lengths.items()
            if count < length
        ]
        if whole:  # params and their twins at once
            entries.append({"op": "to-list", "at": whole})
        return Undo(moves=alike(before, after), instead=tuple(entries))


def _is_masked(path: LeafPath, draft: Draft) -> bool:
    """True for what stands where the slot of a param would: `MaskedNode`, of which NNX makes a variable."""
    slot = draft.slots.get(path)
    return slot is not None and slot.relation == "hole" and slot.param in draft.leaves


def alike(before: Draft, after: Draft) -> dict[LeafPath, LeafPath]:
    """Where leaves stood whose paths print as they did, and have keys of other kinds."""
    old = {path.spelling: path for path in before.leaves}
    found = {path: old.get(path.spelling, path) for path in after.leaves}
    return {new: was for new, was in found.items() if new != was}


def _lengths(before: Draft, after: Draft) -> Iterator[tuple[LeafPath, tuple[int, int]]]:
    """The lists that became dicts: how many places each had, and how many of them are left."""
    printed = {node.text for node in after.tree.nodes}
    still = {node.text for node in after.tree.sequences}
    for node in sorted(lists_in(before.leaves), key=len):
        places = {path[len(node)] for path in before.leaves if path.is_below(node)}
        left = {
            path[len(node)]
            for path in after.leaves
            if len(path) > len(node) and LeafPath(path[: len(node)]).text == node.text
        }
        if node.text in printed and node.text not in still:
            yield node, (len(places), len(left))
