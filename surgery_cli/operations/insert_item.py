"""Put an item, or a subtree of another checkpoint, at a place in the tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from surgery_cli.draft.expression import LeafRef
from surgery_cli.draft.recipe import Draft, Output
from surgery_cli.draft.undo import Homes, Undo
from surgery_cli.errors import PlanError, Problem, raise_all
from surgery_cli.operations.base import Scene
from surgery_cli.operations.extract_item import subtree
from surgery_cli.operations.new_items import check_item_name, check_name, with_item
from surgery_cli.operations.new_places import NAMES_A_PLACE, check_place, node_of, place_of
from surgery_cli.operations.rekey import FOLLOWS, PlaceOperation, rekey
from surgery_cli.operations.replace import Replace
from surgery_cli.optimizer.follow.moved_slots import Paths, Relation, slots_after
from surgery_cli.tree.paths import LeafPath, PathPattern
from surgery_cli.tree.specs import LeafKind
from surgery_cli.words.advice import worded

_ARRAYS = {LeafKind.ARRAY, LeafKind.NUMPY}
"""What a restore without a target gives back as it was saved; a target takes either."""

Recipes = Mapping[LeafPath, Output]


class InsertItem(PlaceOperation, tag="insert-item", kw_only=True, frozen=True):
    """Put an item of the step, or a tree of another checkpoint, at one place: the way back of `extract-item`.

    `from` alone names an item of the same step, which then is no item any more. With `with` the tree comes from another
    checkpoint, by reference where both are stored alike. A place that is taken is replaced whole, and only by the
    same keys, shapes and dtypes; twins then follow as they do for `replace`. With `as` it becomes an item of its own.
    """

    with_: Annotated[
        str, Meta(description="Another checkpoint (`CKPT`, `CKPT@N`), or a name in `sources`.")
    ] = msgspec.field(name="with", default="")
    from_: Annotated[
        str,
        Meta(
            description="Path there, everything if left out; without `with`, the name of an item of this step."
        ),
    ] = msgspec.field(name="from", default="")

    as_: Annotated[
        str,
        Meta(
            description="The name of a new item that it becomes, beside the others, in place of `at`; only for steps"
            " with items, and with `with`."
        ),
    ] = msgspec.field(name="as", default="")

    unused_fields: ClassVar[Mapping[str, str]] = NAMES_A_PLACE
    example: ClassVar[str] = """\
op: insert-item
at: params
with: runs/weights
"""
    path_fields: ClassVar[tuple[str, ...]] = ("with",)
    instead_of_at: ClassVar[tuple[str, ...]] = ("as",)

    def check_values(self) -> None:
        super().check_values()
        if not self.as_:
            self._check_place()
            return
        self.refuse(FOLLOWS)
        if not self.with_:
            raise PlanError(
                worded("{as} makes an item of what comes from another checkpoint"),
                why=worded("nothing is said in {with}"),
                fix=worded(
                    "name the checkpoint in {with}; `extract-item` takes a part of this one"
                ),
                field="as",
            )
        if self.at:
            raise PlanError(
                worded("'insert-item' has both {at} and {as}"),
                why=worded("{at} says a place in the tree, {as} a new item"),
                fix="say one of them",
                field="as",
            )
        check_item_name(self.as_)

    def _check_place(self) -> None:
        if len(self.patterns) != 1 or not PathPattern(self.patterns[0]).is_literal:
            raise PlanError(
                "'insert-item' names one place",
                why=worded("{at} is {}", ", ".join(self.patterns) or "missing"),
                fix="write a path without wildcards: `params`, `default/params`",
                field="at",
            )
        check_place(self.patterns[0])

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        if self.as_:
            return self._beside(draft, scene)
        place = self._place(draft)
        moving: dict[LeafPath, Paths] = {}
        arriving = self._of_donor(scene) if self.with_ else {}
        if not self.with_:
            node = LeafPath((self._item(draft, place),))
            moving = subtree(draft, node, place)
            arriving = {LeafPath(path[1:]): draft.leaves[path] for path in moving}
        standing = {p: r for p, r in draft.leaves.items() if p.is_below(place) and p not in moving}
        if standing and not (len(standing) == 1 and _is_empty_dict(standing.get(place))):
            return self._replaced(draft, place, moving, arriving, scene)
        self.refuse(FOLLOWS)
        come = {} if moving else {place / tail: recipe for tail, recipe in arriving.items()}
        relation: Relation = {**dict.fromkeys(standing, ()), **moving}
        try:
            after = rekey(draft, relation, arriving=come, is_literal=True)
            return self._in_order(after, come, place, scene) if come else after
        except PlanError as error:  # the place is in `at`
            at = (msgspec.structs.replace(problem, field="at") for problem in error.problems)
            raise PlanError.of(at) from None

    def undo(self, before: Draft, after: Draft, home: Homes) -> Undo:
        """An item of the step that was put in comes out again."""
        found = super().undo(before, after, home)
        if self.with_ or list(found.moves.values()) != [LeafPath((self.from_,))]:
            return found
        (stands,) = found.moves
        if stands[-1:] == (self.from_,):
            entry = {"op": "extract-item", "at": stands.exact_pattern}
        else:
            entry = {"op": "extract-item", "at": stands.exact_pattern, "as": self.from_}
        return found._replace(instead=(entry,))

    def _beside(self, draft: Draft, scene: Scene) -> Draft:
        """The draft with a further item."""
        if not draft.items.names:
            raise PlanError(
                worded("{as} is for steps with items"),
                why="this checkpoint is one tree without a name",
                fix=worded("say {at}, a place in it"),
                field="as",
            )
        check_name(self.as_, draft)
        arriving = self._of_donor(scene)
        if LeafPath() in arriving:
            raise PlanError(
                f"'{self.from_}' is a leaf",
                why="an item is a tree: it has keys at its root",
                fix=worded("name a node above it in {from}"),
                field="from",
            )
        if not draft.items.is_prefixed:
            draft = draft.behind(draft.items.names[0])
        come = {LeafPath((self.as_, *tail)): output for tail, output in arriving.items()}
        scene.name(come)
        after = rekey(draft, {}, arriving=come, is_literal=True)
        after, notes = with_item(after, self.as_, draft.items.names[0])
        return after.noting(*notes)

    def _place(self, draft: Draft) -> LeafPath:
        """The one place that `at` names, which need not exist."""
        return place_of(self.patterns[0], draft)

    def _item(self, draft: Draft, place: LeafPath) -> str:
        """The item of the step that `from` names."""
        items = draft.items.first_keys
        if self.from_ not in items or str(place[0]) == self.from_:
            of = f"its items are {', '.join(items)}" if items else "it holds one tree"
            raise PlanError(
                f"'{self.from_}' is no other item of this step"
                if self.from_
                else "'insert-item' does not say what to insert",
                why=of,
                fix=worded("name an item in {from}, or another checkpoint in {with}"),
                field="from",
            )
        return self.from_

    def _of_donor(self, scene: Scene) -> Recipes:
        """The tree of the other checkpoint, or the part that `from` names, by paths in it."""
        name, source = scene.open(self.with_)
        node = node_of(self.from_, source.tree, f"'{self.with_}'", "from")
        return {
            LeafPath(path[len(node) :]): Output.of(LeafRef(name, path), spec)
            for path, spec in source.tree.items()
            if path.is_below(node)
        }

    def _in_order(self, draft: Draft, come: Recipes, place: LeafPath, scene: Scene) -> Draft:
        """The draft with what came between the leaves between which it stands in the other checkpoint."""
        source = scene.open(self.with_)[1]
        node = node_of(self.from_, source.tree, f"'{self.with_}'", "from")
        alike = next(
            (n for n, keys in enumerate(_from_the_end(place, node)) if len({*keys}) > 1), 0
        )
        ours, theirs = place[: len(place) - alike], node[: len(node) - alike]
        there = (
            LeafPath((*ours, *path[len(theirs) :])) for path in source.tree if path.is_below(theirs)
        )
        behind: dict[LeafPath | None, list[LeafPath]] = {}
        first = last = None
        for path in there:
            if path in come:
                behind.setdefault(last, []).append(path)
            elif path in draft.leaves:
                first, last = first or path, path
        order: list[LeafPath] = []
        for path in draft.leaves:
            if path not in come:
                order += [
                    *(behind.get(None, ()) if path == first else ()),
                    path,
                    *behind.get(path, ()),
                ]
        leaves = {path: draft.leaves[path] for path in (*order, *come)}
        return draft.replaced(leaves=leaves)

    def _replaced(
        self, draft: Draft, place: LeafPath, moving: Relation, arriving: Recipes, scene: Scene
    ) -> Draft:
        """Other values for leaves that stand there; their twins follow as they do for `replace`."""
        standing = {
            LeafPath(path[len(place) :]): recipe
            for path, recipe in draft.leaves.items()
            if path.is_below(place) and path not in moving
        }
        raise_all(_differences(place, standing, arriving))
        changed = {
            place / tail: _in_place(recipe, standing[tail]) for tail, recipe in arriving.items()
        }
        rest = {path: recipe for path, recipe in draft.leaves.items() if path not in moving}
        own = {p: s for p, s in draft.slots.items() if not {p, s.param} & moving.keys()}
        edit = Replace(at=str(place), with_=self.with_ or self.from_, optimizer=self.optimizer)
        if any(not recipe.spec.empty for recipe in changed.values()):
            scene.select(edit, draft)
        after = draft.replaced(leaves={**rest, **changed}, slots=own)
        after = scene.carried(after, edit, list(changed), draft)
        return after.replaced(slots={**slots_after(draft, moving), **after.slots})


def _from_the_end(*paths: LeafPath) -> Iterator[tuple[object, ...]]:
    """The keys of paths side by side from the last one on; then what is alike no more."""
    yield from zip(*map(reversed, paths), strict=False)
    yield (*range(len(paths)),)


def _is_empty_dict(recipe: Output | None) -> bool:
    return recipe is not None and recipe.spec.empty == "Dict"


def _differences(place: LeafPath, standing: Recipes, arriving: Recipes) -> list[Problem]:
    """What keeps one tree from standing in for the other."""
    found = []
    for tail in dict.fromkeys((*standing, *arriving)):
        old, new = standing.get(tail), arriving.get(tail)
        if old is None or new is None or not old.spec.agrees_with(_in_place(new, old).spec):
            there = old.spec.type_text if old else "nothing"
            comes = new.spec.type_text if new else "nothing"
            found.append(
                Problem(
                    f"'{place / tail}' does not agree",
                    why=f"there stands {there}, and {comes} would come in its place",
                    fix=f"`delete` '{place}' first, or `replace` single leaves",
                    path=str(place / tail),
                    field="at",
                )
            )
    return found


def _in_place(recipe: Output, old: Output) -> Output:
    """The arriving leaf, held and placed on devices as the one that stood there."""
    if not recipe.is_by_reference:
        return recipe
    kind = old.spec.kind if {recipe.spec.kind, old.spec.kind} == _ARRAYS else recipe.spec.kind
    spec = msgspec.structs.replace(recipe.spec, kind=kind, sharding=old.spec.sharding)
    return recipe.with_spec(spec)
