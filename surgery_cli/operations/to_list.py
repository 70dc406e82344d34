"""Make lists of dicts whose keys are numbers."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from surgery_cli.draft.recipe import Draft, Output
from surgery_cli.draft.undo import Homes, Undo
from surgery_cli.errors import Gathering, PlanError
from surgery_cli.operations.base import Scene
from surgery_cli.operations.rekey import PlaceOperation, rekey
from surgery_cli.operations.sequences import indices_text
from surgery_cli.operations.to_dict import alike
from surgery_cli.optimizer.follow.moved_slots import Paths
from surgery_cli.tree.paths import Key, LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.words.advice import worded
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence

_INDEX = re.compile("0|[1-9][0-9]*")


class ToList(PlaceOperation, tag="to-list", kw_only=True, frozen=True):
    """Make lists of dicts whose keys are numbers: the key `0` becomes place 0. `to-dict` is the way back.

    Only the dicts that are named become lists, not those below them: the chain of an optimizer that came out of Flax
    NNX or `flax.serialization`, say. A training script that has a dict there no longer restores them.
    """

    length: Annotated[
        Annotated[int, Meta(ge=1, le=1 << 16)] | None,
        Meta(
            description="How many places each list has. Those for which there is no key hold `None`, as the state of a"
            " transform without one does. Left out, no number may be missing.",
        ),
    ] = None

    example: ClassVar[str] = "op: to-list\nat: opt_state\nlength: 3\n"
    refuses_torn_twins: ClassVar[bool] = True

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        self.refuse_policy()
        nodes = scene.select(self, draft).nodes()
        keys: dict[LeafPath, set[Key]] = {node: set() for node in nodes}
        for path in draft.leaves:
            for depth in range(len(path)):
                if path[:depth] in keys:
                    keys[LeafPath(path[:depth])].add(path[depth])
        holes: dict[LeafPath, list[int]] = {}
        gathering = Gathering()
        for node in nodes:
            with gathering.catching(path=str(node), field="at"):
                holes[node] = self._holes(node, keys[node])
        gathering.raise_if_any()

        params = {slot.param for slot in draft.slots.values()}
        first = {n.spelling for n in nodes if any(param.is_below(n) for param in params)}
        if first:  # twins follow before the states that hold them move
            moves = _moves(draft, first)
            draft = rekey(draft, moves, is_literal=self.follows_nothing)
        texts = {node.spelling for node in nodes}
        relation = _moves(draft, texts)
        nothing = Output.empty(LeafSpec(kind=LeafKind.EMPTY, empty="None"))
        arriving = {
            _listed(n / (str(i),), texts): nothing for n, found in holes.items() for i in found
        }
        after = rekey(draft, relation, arriving=arriving, is_literal=self.follows_nothing)
        return after.noting(
            *(
                Consequence(f"the list '{node}' holds None at {indices_text(found)}")
                for node, found in holes.items()
                if found
            )
        )

    def undo(self, before: Draft, after: Draft, home: Homes) -> Undo:
        """Lists become dicts again, unless others stand below them; what came to fill places goes."""
        made = after.tree.sequences - before.tree.sequences
        if any(node.is_below(one) for node in after.tree.sequences - made for one in made):
            return super().undo(before, after, home)
        moves = alike(before, after)
        at = [node.exact_pattern for node in sorted(made, key=len)]
        came = tuple(
            path for path in after.leaves if path not in moves and path not in before.leaves
        )
        entries: list[dict[str, Any]] = [{"op": "to-dict", "at": at}]
        if came:
            entries.append({"op": "delete", "at": [path.exact_pattern for path in came]})
        return Undo(gone=came, moves=moves, instead=tuple(entries))

    def _holes(self, node: LeafPath, keys: Collection[Key]) -> list[int]:
        """The places of the list to come for which a dict has no key.

        Raises:
            PlanError: it is no dict, has other keys, or too many, or a place is empty.
        """
        if not keys:
            raise PlanError(
                f"'{node}' is a leaf",
                why="a dict becomes a list, by its keys",
                fix="name the node above it",
            )
        texts = [key for key in keys if isinstance(key, str)]
        if not texts:
            raise PlanError(
                f"'{node}' is a list already",
                fix="take it out of this edit",
            )
        if others := sorted(key for key in texts if not _INDEX.fullmatch(key)):
            raise PlanError(
                f"'{node}' has keys that are no places in a list: {quoted(others, 3)}",
                why="a list has the places 0, 1, 2, …",
                fix="name the node whose keys are numbers, or rename these first",
            )
        places = {int(key) for key in texts}
        length = max(places) + 1 if self.length is None else self.length
        if max(places) >= length:
            raise PlanError(
                f"'{node}' has the key '{max(places)}'",
                why=f"a list of {length:,} has the places 0 to {length - 1:,}",
                fix=worded("say {length: {}}, or more", max(places) + 1),
                field="length",
            )
        holes = [place for place in range(length) if place not in places]
        if holes and self.length is None:
            raise PlanError(
                f"'{node}' would have nothing at {indices_text(holes)}",
                why="a list has no holes",
                fix=worded(
                    "where these hold None, say how many places there are: {length: {}}", length
                ),
                field="length",
            )
        return holes


def _listed(path: LeafPath, nodes: Collection[str]) -> LeafPath:
    """The path once these nodes, as they are spelled, are lists."""
    return LeafPath(
        int(key) if isinstance(key, str) and LeafPath(path[:n]).spelling in nodes else key
        for n, key in enumerate(path)
    )


def _moves(draft: Draft, nodes: Collection[str]) -> dict[LeafPath, Paths]:
    return {path: (new,) for path in draft.leaves if (new := _listed(path, nodes)) != path}
