"""The mirror invariant: what mirrored its param before an edit mirrors it after, in place and in shape."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from surgery_cli.draft.effect import Rearranges
from surgery_cli.draft.recipe import Draft
from surgery_cli.draft.slots import Slot
from surgery_cli.errors import Problem
from surgery_cli.optimizer.detect.mirrors import is_param
from surgery_cli.optimizer.detect.shapes import is_reduced
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.words.advice import worded
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.quantities import counted


class Torn(NamedTuple):
    """What an edit would part: a slot (of its field, as an example), what of it, and why that matters."""

    slot: Slot
    what: str
    why: str
    fix: str
    place: LeafPath
    of: tuple[object, ...]
    """What is said only once."""
    said: str = ""
    """What the preview says of it, where it is not that a slot and its param are parted."""

    def problem(self, fix: str = "") -> Problem:
        """It, with other advice than the usual if ``fix`` is given."""
        return Problem(self.what, self.why, fix or self.fix, path=str(self.place), field="at")


def torn(before: Draft, after: Draft, changed: Collection[LeafPath]) -> list[Torn]:
    """What of the optimizer state an edit would part from its params, once for each field of a state.

    ``changed`` are the leaves of ``after`` that ``before`` does not have, or not like that; only they are looked at,
    and what is gone. What did not mirror before need not after; a state of a part of the params may stay so.
    """
    new = {path for path in changed if _is_another(path, before, after)}
    gone = before.leaves.keys() - after.leaves.keys()
    if not (new or gone) or not (before.slots or after.slots):
        return []
    edit = _Edit(before, after)
    found: dict[tuple[object, ...], Torn] = {}
    for each in (*edit.parted(new | gone), *edit.left_behind(gone), *edit.strangers(new)):
        found.setdefault(each.of, each)
    return list(found.values())


def torn_notes(found: Sequence[Torn]) -> list[Consequence]:
    """What the preview says where an edit parts slots from params because it is told to edit as named."""
    if not found:
        return []
    first, *others = found
    if first.said:
        more = f", and so of {counted(len(others), 'more place')}" if others else ""
        return [Consequence(DocsPage.OPTIMIZERS, f"{first.said}{more}: it is not trained by it")]
    said = f"'{first.slot.path}' no longer mirrors its param '{first.slot.param}'"
    more = f", and so with {counted(len(others), 'other field')} of the state" if others else ""
    return [Consequence(DocsPage.OPTIMIZERS, f"{said}{more}: the optimizer needs both alike")]


def double_named(draft: Draft, selected: Iterable[LeafPath]) -> list[Slot]:
    """The slots among ``selected`` whose param is among them as well."""
    named = set(selected)
    slots = (draft.slots[path] for path in selected if path in draft.slots)
    return [s for s in slots if s.in_optimizer and s.relation != "hole" and s.param in named]


def mirrors(slot: Slot, draft: Draft) -> bool:
    """True if a slot stands where its state has the param, in the shape that follows from the param's."""
    own, param = draft.leaves.get(slot.path), draft.leaves.get(slot.param)
    if own is None or slot.place_for(slot.param) != slot.path:
        return False
    if slot.relation == "hole":  # of a leaf, or of a node of params
        return own.spec.kind is LeafKind.EMPTY
    return param is not None and _fits(slot, own.spec, param.spec)


def _fits(slot: Slot, own: LeafSpec, param: LeafSpec) -> bool:
    match slot.relation:
        case "same":
            return own.shape == param.shape
        case "stacked":
            return len(own.shape) > 0 and own.shape[1:] == param.shape
        case "scalar" | "one":
            return own.size == 1
        case "axis":
            return own.shape == param.shape[slot.axis or 0 :][:1]
        case "factored":
            return is_reduced(param.shape, own.shape)
        case _:
            return True


def _is_another(path: LeafPath, before: Draft, after: Draft) -> bool:
    """True for a leaf that was not there before, or not in this shape."""
    if path not in before.leaves:
        return True
    old, new = before.leaves[path], after.leaves[path]
    if old.home != new.home:
        return True
    shapes = (old.spec.shape, old.spec.kind) != (new.spec.shape, new.spec.kind)
    return old.recipe is not new.recipe and shapes


_Field: TypeAlias = tuple[LeafPath, LeafPath, str]
"""The leaves of one name that mirror a root: their node, the root, the name."""


class _Edit:
    """The drafts before and after an edit, and the slots of both in the optimizer state."""

    def __init__(self, before: Draft, after: Draft) -> None:
        self._before, self._after = before, after
        self._had = [slot for slot in before.slots.values() if slot.in_optimizer]
        self._has = [slot for slot in after.slots.values() if slot.in_optimizer]
        self._came: dict[int, LeafPath] = {}

    def parted(self, touched: Collection[LeafPath]) -> Iterator[Torn]:
        """Slots that stand elsewhere than their param wants them, or in another shape."""
        for slot in self._has:
            is_touched = slot.path in touched or slot.param in touched
            if not is_touched or self._mirrors(slot) or self._was_parted(slot):
                continue
            old, param = (self._origin(path) or path for path in (slot.path, slot.param))
            own = self._after.leaves.get(slot.path)
            what, why = f"'{old}' would not mirror its param '{param}'", _leaf_by_leaf(slot)
            of: tuple[object, ...] = (slot.node, slot.name)
            if own is None:
                what = f"'{old}' cannot go while its param '{param}' stays"
            elif slot.param not in self._after.leaves and slot.relation != "hole":
                what = f"'{slot.path}' cannot stay while its param '{slot.param}' goes"
            elif slot.place_for(slot.param) == slot.path and not mirrors(slot, self._after):
                there = self._after.leaves[slot.param].spec.type_text
                why = f"it would be {own.spec.type_text}, its param {there}"
            elif old != slot.path:
                what = f"'{old}' cannot become '{slot.path}': its param is '{slot.param}'"
            else:
                what = (
                    f"'{param}' cannot become '{slot.param}': its twin '{old}' has no place there"
                )
                of = (slot.root,)
            yield Torn(slot, what, why, _name_param(slot.node, param), old, of)

    def left_behind(self, gone: Collection[LeafPath]) -> Iterator[Torn]:
        """Slots that go while their param stays, or stay while it goes, and others of their field stay as they are."""
        if not gone:
            return
        fields = {_field(slot) for slot in self._has}
        has = {(slot.param, slot.part, *_field(slot)) for slot in self._has}
        for slot in self._had:
            if slot.relation == "hole" or _field(slot) not in fields:
                continue
            is_touched = slot.path in gone or slot.param in gone
            if not is_touched or (slot.param, slot.part, *_field(slot)) in has:
                continue
            stays = {path for path in (slot.path, slot.param) if self._stays(path)}
            if stays == {slot.param}:
                what = f"'{slot.path}' cannot go while its param '{slot.param}' stays"
            elif stays == {slot.path} and slot.path not in self._after.slots:
                what = f"'{slot.path}' cannot stay while its param '{slot.param}' goes"
            else:
                continue
            fix = _name_param(slot.node, slot.param)
            yield Torn(slot, what, _leaf_by_leaf(slot), fix, slot.path, (slot.node, slot.name))

    def _stays(self, path: LeafPath) -> bool:
        """True if the same leaf stands there as before; another may, where layers change places."""
        old, new = self._before.leaves.get(path), self._after.leaves.get(path)
        return old is not None and new is not None and old.home == new.home

    def strangers(self, new: Collection[LeafPath]) -> Iterator[Torn]:
        """Leaves among params of which a state that has all others has nothing; leaves in a state that no param has."""
        arrived = {path for path in new if path not in self._before.leaves}
        arrived -= self._after.slots.keys()
        fields = {_field(slot): slot for slot in self._has} if arrived else {}
        had = {place for slot in self._had for place in (slot.node, slot.root)} if fields else set()
        arrived = {path for path in arrived if not self._stood_there(path, had)}
        for (node, root, name), slot in fields.items() if arrived else ():
            for path in arrived:
                is_known = (
                    path in self._after.slots or root / path[len(node) :] in self._after.leaves
                )
                if path.is_below(node) and not is_known:
                    place = self._topmost(path)
                    what = f"'{place}' would be new in '{node}', and no param stands there"
                    yield Torn(slot, what, _leaf_by_leaf(slot), _COPY, place, (place,))
            covered = {s.param for s in self._has if _field(s) == (node, root, name)}
            bare = [path for path in self._after.leaves if self._is_bare(path, node, root, covered)]
            if any(
                path not in arrived and is_param(self._after.leaves[path].spec) for path in bare
            ):
                continue  # a state of a part of the params
            for place in {self._topmost(path) for path in arrived.intersection(bare)}:
                what = f"'{place}' would be new in '{root}'"
                why = f"'{node}' in the optimizer state would have nothing for it"
                said = f"'{node}' in the optimizer state has nothing of '{place}'"
                yield Torn(slot, what, why, _COPY, place, (place,), said)

    def _is_bare(
        self, path: LeafPath, node: LeafPath, root: LeafPath, covered: Collection[LeafPath]
    ) -> bool:
        """True for a leaf below ``root`` for which ``node`` has nothing."""
        if not path.is_below(root) or path in self._after.slots:
            return False
        is_covered = any(path[:n] in covered for n in range(len(root), len(path) + 1))
        return not is_covered and node / path[len(root) :] not in self._after.leaves

    def _stood_there(self, path: LeafPath, had: Collection[LeafPath]) -> bool:
        """True for a leaf that was in a state or among its params before, and no slot; or whose node was emptied."""
        old = self._origin(path)
        if old is None:
            return path in self._before.tree.nodes
        return old not in self._before.slots and any(old.is_below(place) for place in had)

    def _mirrors(self, slot: Slot) -> bool:
        """True if it mirrors its param, as the part of what is kept for it that it was."""
        old = self._former(slot)
        return (old is None or old.part == slot.part) and mirrors(slot, self._after)

    def _was_parted(self, slot: Slot) -> bool:
        """True if the slot did not mirror its param before, wherever it stood."""
        old = self._former(slot)
        return old is not None and not mirrors(old, self._before)

    def _former(self, slot: Slot) -> Slot | None:
        """The slot before the edit."""
        path = slot.path if slot.path in self._before.slots else self._origin(slot.path)
        return self._before.slots.get(path) if path is not None else None

    def _origin(self, path: LeafPath) -> LeafPath | None:
        """Where a leaf stood before the edit; None if it is new."""
        if not self._came:
            self._came = {id(recipe): old for old, recipe in self._before.leaves.items()}
        leaf = self._after.leaves.get(path)
        if leaf is self._before.leaves.get(path):
            return path
        effect = leaf.edits[-1].effect if leaf is not None and leaf.edits else None
        joined = effect.of if isinstance(effect, Rearranges) else ()
        return self._came.get(id(leaf), joined[0] if joined else None)

    def _topmost(self, path: LeafPath) -> LeafPath:
        """The topmost node above a leaf that was not there before; the leaf itself if all were."""
        nodes = self._before.tree.nodes
        return next(
            (n for d in range(1, len(path)) if (n := LeafPath(path[:d])) not in nodes), path
        )


def _field(slot: Slot) -> _Field:
    return slot.node, slot.root, slot.name


def _leaf_by_leaf(slot: Slot) -> str:
    return f"'{slot.node}' mirrors '{slot.root}' leaf by leaf, and the optimizer needs both alike"


def _name_param(node: LeafPath, param: LeafPath) -> str:
    return worded(
        "name '{}', and its twins follow; or the whole '{}'; or say {twins: named}", param, node
    )


_COPY: Final = worded(
    "`copy` a leaf of the same shape there: its twins are copied as well; or say {twins: named}"
)
