"""Make lists of dicts whose keys are numbers."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Annotated, Any, ClassVar, Final

import msgspec
from msgspec import Meta

from surgery_cli.draft.recipe import Draft, Output
from surgery_cli.draft.undo import Homes, Undo
from surgery_cli.errors import Gathering, PlanError
from surgery_cli.operations.base import Scene
from surgery_cli.operations.containers_of_another import Containers, containers_as
from surgery_cli.operations.new_places import (
    NAMES_A_PLACE,
    check_place,
    node_of,
    place_of,
)
from surgery_cli.operations.rekey import PlaceOperation, rekey
from surgery_cli.operations.sequences import indices_text
from surgery_cli.operations.to_dict import alike
from surgery_cli.optimizer.follow.moved_slots import Paths
from surgery_cli.tree.paths import Key, LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.words.advice import worded
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence, Note, Remark
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.series import folded

_INDEX = re.compile("0|[1-9][0-9]*")
_LOOKED_UP: Final = worded(
    "{with}, a checkpoint of the program that takes it, tells lists and what is empty"
    " (`plans/nnx-to-linen-like.yaml`)"
)
_MOST_NAMED = 4


class ToList(PlaceOperation, tag="to-list", kw_only=True, frozen=True):
    """Make lists of dicts whose keys are numbers: the key `0` becomes place 0. `to-dict` is the way back.

    Only the dicts that are named become lists, not those below them: the chain of an optimizer that came out of Flax
    NNX or `flax.serialization`, say. A training script that has a dict there no longer restores them. With `with`, all
    of them at once: a checkpoint that the script has just begun tells which are lists, and what is empty beside.
    """

    length: Annotated[
        Annotated[int, Meta(ge=1, le=1 << 16)] | None,
        Meta(
            description="How many places each list has. Those for which there is no key hold `None`, as the state of a"
            " transform without one does. Left out, no number may be missing.",
        ),
    ] = None
    with_: Annotated[
        str,
        Meta(
            description="In place of `length`: a checkpoint that has the same leaves (`CKPT`, `CKPT@N`), or a name in"
            " `sources`. What is a list there, at `at` or below, becomes one; what is empty there comes. `at` is one"
            " place then, and need not exist yet."
        ),
    ] = msgspec.field(name="with", default="")
    from_: Annotated[str, Meta(description="Path there, the same one if left out.")] = (
        msgspec.field(name="from", default="")
    )

    example: ClassVar[str] = "op: to-list\nat: opt_state\nlength: 3\n"
    refuses_torn_twins: ClassVar[bool] = True

    path_fields: ClassVar[tuple[str, ...]] = ("with",)

    def check_values(self) -> None:
        super().check_values()
        if not self.with_:
            return
        self.refuse(NAMES_A_PLACE)
        if self.length is not None:
            raise PlanError(
                worded("{with} and {length} both say how long lists are"),
                fix=worded("leave {length} out"),
                field="length",
            )
        for pattern in self.patterns:
            check_place(pattern)

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        found = self._from_another(draft, scene) if self.with_ else self._by_keys(draft, scene)
        if not found.lists and not found.empties and not self.with_:  # nothing is named
            return draft
        if not found.lists and not found.empties:
            return draft.noting(
                Remark(
                    DocsPage.TO_LIST,
                    f"'{', '.join(self.patterns)}' has all lists of '{self.with_}'",
                )
            )
        params = {slot.param for slot in draft.slots.values()}
        first = {n.spelling for n in found.lists if any(p.is_below(n) for p in params)}
        filled: dict[LeafPath, Output] = {}
        if first:  # twins follow before the states that hold them move
            filled = _filled(draft, found, first)
            moves = _moves(draft, first)
            draft = rekey(draft, moves, arriving=filled, is_literal=self.follows_nothing)
        texts = {node.spelling for node in found.lists}
        relation = _moves(draft, texts)
        empties = {_listed(p, texts): Output.empty(spec) for p, spec in found.empties.items()}
        arriving = {path: output for path, output in empties.items() if path not in filled}
        scene.name(empties)
        return rekey(draft, relation, arriving=arriving, is_literal=self.follows_nothing).noting(
            *self._notes(found)
        )

    def _notes(self, found: Containers) -> Iterator[Note]:
        """What comes to fill places."""
        if self.with_:
            if found.empties:
                named = quoted(folded(map(str, found.empties)), _MOST_NAMED)
                yield Consequence(DocsPage.TO_LIST, f"empty, as in '{self.with_}': {named}")
            return
        places: dict[LeafPath, list[int]] = {}
        for path in found.empties:
            places.setdefault(path.parent, []).append(int(path[-1]))
        for node, indices in places.items():
            yield Consequence(
                DocsPage.TO_LIST, f"the list '{node}' holds None at {indices_text(indices)}"
            )
        if places:
            yield Remark(DocsPage.TO_LIST, _LOOKED_UP)

    def _by_keys(self, draft: Draft, scene: Scene) -> Containers:
        """The dicts that are named, and the places for which they have no key."""
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
        nothing = LeafSpec(kind=LeafKind.EMPTY, empty="None")
        empties = {n / (str(i),): nothing for n, found in holes.items() for i in found}
        return Containers(tuple(nodes), empties)

    def _from_another(self, draft: Draft, scene: Scene) -> Containers:
        """All dicts that are lists in the other checkpoint, and all that is empty there."""
        source = scene.open(self.with_)[1]
        lists: list[LeafPath] = []
        empties: dict[LeafPath, LeafSpec] = {}
        gathering = Gathering()
        for text in self.patterns:
            with gathering.catching():
                place = place_of(text, draft)
                node = node_of(self.from_ or place.spelling, source.tree, f"'{self.with_}'", "from")
                one = containers_as(place, draft, node, source.tree, self.with_)
                lists += one.lists
                empties |= one.empties
        gathering.raise_if_any()
        return Containers(tuple(lists), empties)

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
                fix=worded("name the node whose keys are numbers; {}", _LOOKED_UP),
            )
        places = {int(key) for key in texts}
        length = max(places) + 1 if self.length is None else self.length
        if max(places) >= length:
            raise PlanError(
                f"'{node}' has the key '{max(places)}'",
                why=f"a list of {length:,} has the places 0 to {length - 1:,}",
                fix=worded("say {length: {}}, or more; {}", max(places) + 1, _LOOKED_UP),
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


def _filled(draft: Draft, found: Containers, first: Collection[str]) -> dict[LeafPath, Output]:
    """What comes to fill places of the ``first`` lists, which hold params, and of those of their twins."""
    filled: dict[LeafPath, Output] = {}
    for path, spec in found.empties.items():
        node = path.parent
        if node.spelling not in first:
            continue
        twins = {
            LeafPath((*slot.node, *node[len(slot.root) :]))
            for slot in draft.slots.values()
            if slot.param.is_below(node)
        }
        place = _listed(path, first)
        for one in (place.parent, *twins):
            filled[LeafPath((*one, place[-1]))] = Output.empty(spec)
    return filled


def _listed(path: LeafPath, nodes: Collection[str]) -> LeafPath:
    """The path once these nodes, as they are spelled, are lists."""
    return LeafPath(
        int(key) if isinstance(key, str) and LeafPath(path[:n]).spelling in nodes else key
        for n, key in enumerate(path)
    )


def _moves(draft: Draft, nodes: Collection[str]) -> dict[LeafPath, Paths]:
    return {path: (new,) for path in draft.leaves if (new := _listed(path, nodes)) != path}
