"""What operations have in common that make one leaf of several, or several of one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from surgery_cli.draft.arrangement import Arrangement
from surgery_cli.draft.effect import Effect, Rearranges
from surgery_cli.draft.expression import Stored, made
from surgery_cli.draft.kernels.join import Concat
from surgery_cli.draft.recipe import Draft, Edited, Output
from surgery_cli.draft.undo import Homes, Undo, difference
from surgery_cli.errors import PlanError, Problem, raise_all
from surgery_cli.operations.axis_notes import axis_notes
from surgery_cli.operations.base import Scene, ValueOperation
from surgery_cli.operations.rekey import rekey
from surgery_cli.optimizer.follow.clocks import filled_with
from surgery_cli.optimizer.follow.origins import Origin, Origins, slot_origins
from surgery_cli.tree.paths import LeafPath, Selection
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.words.advice import worded
from surgery_cli.words.lists import listed
from surgery_cli.words.notes import Note

JOINED_KINDS: Final = (LeafKind.ARRAY, LeafKind.NUMPY, LeafKind.KEY)
"""The kinds of leaves whose elements can be a part of another leaf."""


class Regrouping(ValueOperation):
    """Leaves become one, or parts of one. Subclasses say of what every new leaf is made."""

    def origins(self, selected: Selection, draft: Draft) -> Mapping[LeafPath, Origin]:
        """Every new leaf with those of which it is made, in order, and the map; no map where nothing has values.

        Raises:
            PlanError: everything that keeps the edit from being done.
        """
        raise NotImplementedError

    def undo_entry(
        self, here: Sequence[LeafPath], there: Sequence[LeafPath], sizes: Sequence[int]
    ) -> dict[str, Any]:
        """The inverse as an entry of a plan: it makes nodes that stood ``there`` of those that stand ``here``.

        ``sizes``: of the parts along the axis, where they may be of different ones.
        """
        raise NotImplementedError

    @property
    def along(self) -> int | None:
        """The axis of the leaves as they are along which they are joined or cut; None if there is none."""
        return None

    def notes(self, selected: Selection, draft: Draft) -> Iterator[Note]:
        """What the preview says of what was named, and of what was not."""
        return iter(()) if self.along is None else axis_notes(self.along, selected, draft)

    @property
    def effect(self) -> Effect:
        return Rearranges()

    def selectable(self, spec: LeafSpec) -> bool:
        return True

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        selected = scene.select(self, draft)
        if not selected:
            return draft
        origins = self.origins(selected, draft)
        self._refuse_lost(selected, origins)
        self._refuse_standing(origins, draft)
        if self.twins == "carried":
            self._refuse_clocks(selected, draft)
        slots = {} if self.follows_nothing else slot_origins(draft, origins)
        relation: dict[LeafPath, tuple[LeafPath, ...]] = dict.fromkeys(selected, ())
        for new, origin in origins.items():
            relation[origin.paths[0]] += (new,)
        after = rekey(draft, relation, is_literal=self.follows_nothing)
        after = _with_one_history(after, draft, {**slots, **origins})
        changed = {}
        for new, (paths, by) in origins.items():
            recipes = tuple(draft.leaves[path].recipe for path in paths)
            recipe = recipes[0]
            if by is not None:
                recipe = made(by, recipes, by.output(recipe.spec), new)
            edit = Edited(self.name, Rearranges(by, of=paths))
            changed[new] = after.leaves[new].then(recipe, edit)
        after = after.with_leaves(changed)
        edited = [new for new, origin in origins.items() if origin.map is not None]
        carried = scene.carried(after, self, edited, draft, {**slots, **origins})
        return carried.noting(*self.notes(selected, draft))

    def _refuse_lost(self, selected: Selection, origins: Origins) -> None:
        """Whatever a subclass does: no leaf that is named may be in no leaf of the result."""
        kept = {path for origin in origins.values() for path in origin.paths}
        raise_all(
            Problem(
                f"'{path}' would be lost",
                why=f"`{self.name}` makes it a part of no leaf",
                fix=worded("name the leaves one by one, or leave it out with {except}"),
                path=str(path),
                field="at",
            )
            for path in selected
            if path not in kept
        )

    def _refuse_standing(self, origins: Origins, draft: Draft) -> None:
        leaving = {path for origin in origins.values() for path in origin.paths}
        raise_all(
            Problem(
                f"'{new}' stands there already",
                why=f"`{self.name}` would put there what it makes of '{origin.paths[0]}'",
                fix=worded("choose another place in {to}, or `delete` what stands there first"),
                path=str(new),
                field="to",
            )
            for new, origin in origins.items()
            if new in draft.leaves and new not in leaving
        )

    def _refuse_clocks(self, selected: Selection, draft: Draft) -> None:
        raise_all(
            Problem(
                f"'{path}' counts steps for the optimizer, and `{self.name}` would take it from there",
                why="an optimizer finds its count at its own path, as one number",
                fix=worded("leave it out with {except}"),
                path=str(path),
                field="at",
            )
            for path in selected
            if draft.clock_at(path) is not None
        )

    def undo(self, before: Draft, after: Draft, home: Homes) -> Undo:
        """The inverse operation, where every leaf that came is nothing but elements of those that went."""
        came = {p: out for p, out in after.leaves.items() if before.leaves.get(p) is not out}
        if not all(map(_is_regrouped, came.values())):
            return difference(before, after, home)
        effects = {path: output.edits[-1].effect for path, output in came.items() if output.edits}
        named = {
            path: effect
            for path, effect in effects.items()
            if isinstance(effect, Rearranges) and effect.of
        }
        parts = {path: effect.of for path, effect in named.items()}
        for path in came:
            slot = after.slots.get(path)
            if slot is not None and slot.param in named and path not in parts:
                places = (slot.place_for(old) for old in named[slot.param].of)
                parts[path] = tuple(place for place in places if place is not None)
        kinds = [
            {after.leaves[path].spec.kind, *(before.leaves[old].spec.kind for old in olds)}
            for path, olds in parts.items()
        ]
        if any(
            len(found) > 1 for found in kinds
        ):  # NumPy's arrays became those of JAX, or the other way
            return difference(before, after, home)
        entries = tuple(self._undo_entries(named, after))
        return Undo(edits=entries, parts=parts)

    def _undo_entries(
        self, named: Mapping[LeafPath, Rearranges], after: Draft
    ) -> Iterator[dict[str, Any]]:
        said = {} if self.twins == "carried" else {"twins": "literal"}
        for here, there, sizes in _by_node(_groups(named), after):
            yield {**self.undo_entry(here, there, sizes), **said}


def _is_regrouped(output: Output) -> bool:
    recipe = output.recipe
    if isinstance(recipe, Stored):
        return True
    is_empty = output.spec.kind is LeafKind.EMPTY
    return is_empty or (isinstance(recipe.kernel, Arrangement) and recipe.kernel.regroups)


def _with_one_history(after: Draft, before: Draft, origins: Origins) -> Draft:
    """What stands for several leaves continues them all; without the edits of its first one, if not all are alike.

    Raises:
        PlanError: a list would be renumbered under a leaf.
    """
    changed: dict[LeafPath, Output] = {}
    for new, (paths, _) in origins.items():
        first = before.leaves[paths[0]]
        if after.leaves.get(new) is not first:
            raise PlanError(
                f"'{new}' would not stay where it is",
                why="a list that loses elements closes its gaps",
                fix=worded("choose a place in {to} that is not in that list"),
                path=str(new),
                field="to",
            )
        if len(paths) > 1:
            joined = [before.leaves[path] for path in paths]
            others = tuple(home for output in joined for home in output.homes)[1:]
            edits = first.edits if len({*map(filled_with, joined)}) == 1 else ()
            changed[new] = msgspec.structs.replace(first, edits=edits, others=others)
    return after.with_leaves(changed) if changed else after


_Group = tuple[tuple[LeafPath, ...], tuple[LeafPath, ...], tuple[int, ...]]
"""Leaves that stand here, those of which they were made or that they were, and the sizes of parts side by side."""


def _groups(named: Mapping[LeafPath, Rearranges]) -> list[_Group]:
    """The leaves after an edit with those before: several of one, or one of several."""
    news: dict[tuple[LeafPath, ...], list[LeafPath]] = {}
    sizes: dict[tuple[LeafPath, ...], tuple[int, ...]] = {}
    for new, effect in named.items():
        news.setdefault(effect.of, []).append(new)
        sizes[effect.of] = effect.map.sizes if isinstance(effect.map, Concat) else ()
    return [(tuple(here), there, sizes[there]) for there, here in news.items()]


def _by_node(groups: list[_Group], after: Draft) -> list[_Group]:
    """The same of whole nodes, where all that stands below those here goes one way."""
    sizes = Counter(LeafPath(path[:n]) for path in after.leaves for n in range(1, len(path) + 1))
    counts: Counter[_Group] = Counter()
    for group in groups:
        for lifted in _lifted(group):
            counts[lifted] += 1
    found: dict[_Group, None] = {}
    for group in groups:
        whole = group
        for lifted in _lifted(group):
            if all(sizes[node] == counts[lifted] for node in lifted[0]):
                whole = lifted
        found[whole] = None
    return list(found)


def _lifted(group: _Group) -> Iterator[_Group]:
    """The nodes above leaves that have one key each below them, from the leaves upwards."""
    here, there, sizes = group
    yield group
    while min(map(len, (*here, *there))) > 1 and len({path[-1] for path in (*here, *there)}) == 1:
        here, there = (tuple(path.parent for path in paths) for paths in (here, there))
        yield here, there, sizes


def differences(
    paths: Sequence[LeafPath], specs: Sequence[LeafSpec], why: str, free_axis: int | None = None
) -> Iterator[Problem]:
    """The leaves that are unlike most of those with which they are to be one; ``free_axis``: of sizes of their own."""

    def said(spec: LeafSpec) -> tuple[object, ...]:
        shape = [*spec.shape]
        if free_axis is not None and -len(shape) <= free_axis < len(shape):
            shape[free_axis] = 0
        kind = LeafKind.ARRAY if spec.kind is LeafKind.NUMPY else spec.kind
        return kind, spec.dtype, spec.empty, spec.key_impl, tuple(shape)

    usual = Counter(map(said, specs)).most_common(1)[0][0]
    like = next(spec for spec in specs if said(spec) == usual)
    for path, spec in zip(paths, specs, strict=True):
        if said(spec) != usual:
            yield Problem(
                f"'{path}' is {spec.type_text}, and others of its kind are {like.type_text}",
                why=why,
                fix=worded(
                    "make it like the others first, or leave all of its kind out with {except}"
                ),
                path=str(path),
                field="at",
            )


def axes_of(spec: LeafSpec) -> int:
    """How many axes a leaf has of its own: the last one of stored keys holds what is one key."""
    return len(spec.shape) - (spec.kind is LeafKind.KEY)


def shared_by_groups(sizes: Sequence[int], groups: int) -> None:
    """Raise PlanError if groups have no equal shares of parts of these sizes."""
    uneven = [size for size in sizes if size % groups]
    if uneven:
        raise PlanError(
            worded("{groups: {}} do not divide a part of {:,} places", groups, uneven[0]),
            why="every group has an equal share of each part",
            fix=worded("correct {groups}: of heads that share keys and values, one for each key"),
            field="groups",
        )


def check_joinable(path: LeafPath, spec: LeafSpec, name: str) -> None:
    """Raise PlanError if a leaf has no elements that could be a part of another."""
    if spec.kind not in JOINED_KINDS:
        raise PlanError(
            f"'{path}': `{name}` does not apply to {spec.type_text}",
            why=f"it takes {listed(('arrays', 'keys of random numbers'), word='and')}",
            fix=worded("leave it out with {except}"),
            path=str(path),
        )
