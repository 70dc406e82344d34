"""What the optimizer keeps for a param of some shape: the shape of every slot, by what it is to its param."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from surgery_cli.draft.arrangement import rearranged, reshaped, resized
from surgery_cli.draft.effect import Effect, is_new
from surgery_cli.draft.expression import Recipe
from surgery_cli.draft.recipe import Draft
from surgery_cli.draft.slots import Factoring, Slot
from surgery_cli.errors import Problem
from surgery_cli.optimizer.follow.answers import default_policy
from surgery_cli.optimizer.follow.maps import Maps
from surgery_cli.optimizer.follow.rearranged import factored_axes
from surgery_cli.optimizer.follow.refusals import (
    SETTLES_FACTORING,
    does_not_fit,
    has_no_map,
    other_partition,
    unknown_factoring,
)
from surgery_cli.optimizer.follow.states import Edit
from surgery_cli.optimizer.follow.transform import Change, at_mean
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec


class Fit(NamedTuple):
    """A slot for a param of another shape: what it is then, and how its shape follows from the param's.

    Without a spec nothing is known of its shape, ``why`` not.
    """

    spec: LeafSpec | None
    relation: str
    why: str = ""
    settled_by: str = ""


def fitted(slot: Slot, own: LeafSpec, old: LeafSpec, param: LeafSpec) -> Fit:
    """What a slot, which is ``own`` of a param like ``old``, is of one like ``param``."""
    if old.shape == param.shape:
        return Fit(own, slot.relation)
    if slot.factoring is not None:
        return _factored(slot.factoring, slot.relation, own, param)
    match slot.relation:
        case "same":
            return Fit(resized(own, param.shape), slot.relation)
        case "stacked":
            return Fit(resized(own, (own.shape[0], *param.shape)), slot.relation)
        case "axis" if slot.axis is not None and len(old.shape) == len(param.shape):
            return Fit(resized(own, (param.shape[slot.axis],)), slot.relation)
        case "axis":
            why = "it keeps a vector for every axis, and the param gets another number of them"
            return Fit(None, slot.relation, why)
        case "scalar" | "one" | "hole":
            return Fit(own, slot.relation)
        case _:
            return Fit(None, slot.relation, f"no rule is known for a {slot.title}")


def _factored(factoring: Factoring, relation: str, own: LeafSpec, param: LeafSpec) -> Fit:
    """A part of a second moment, which may hold nothing.

    Source: optax.scale_by_factored_rms.
    """
    shape, part = param.shape, factoring.part
    has = factoring.is_factored(shape)
    if has is None:
        return Fit(None, relation, unknown_factoring(shape), SETTLES_FACTORING)
    if has == (part == "whole"):
        nothing = msgspec.structs.replace(reshaped(own, (1,)), sharding=None)
        return Fit(own if own.shape == (1,) else nothing, "one")
    if part == "whole":
        return Fit(_like(param, range(len(shape)), own), "same")
    lacks = factored_axes(shape)[part == "column"]
    return Fit(_like(param, [n for n in range(len(shape)) if n != lacks], own), "factored")


def _like(param: LeafSpec, axes: Sequence[int], own: LeafSpec) -> LeafSpec:
    """A slot with some of the axes of its param, held as it is held now."""
    spec = rearranged(param, [param.shape[n] for n in axes], axes)
    return msgspec.structs.replace(spec, dtype=own.dtype, kind=own.kind)


class Renewal(NamedTuple):
    """What a slot is once its param has another shape: its spec and relation, and of what it may take the mean.

    That is None of a slot which holds nothing then.
    """

    spec: LeafSpec
    relation: str
    moment: Recipe | None


class Renewals:
    """The slots of one param after the other, where values are new and the shape is another; else there are none.

    ``before`` is the draft before the edit, ``draft`` that with the new params. What is decided of slots is given to
    ``maps``, what is in the way to ``problems``.
    """

    def __init__(
        self,
        before: Draft,
        draft: Draft,
        maps: Maps,
        edit: Edit,
        policy: str | None,
        problems: dict[tuple[object, ...], Problem],
    ) -> None:
        self._before, self._draft, self._maps, self._problems = before, draft, maps, problems
        self._is_new, self._stay = is_new(edit.effect), policy == "keep"
        self._name = edit.name
        self._found: dict[LeafPath, Renewal] = {}

    def is_about(self, param: LeafPath) -> bool:
        """True for a param of new values in another shape."""
        return self._is_new and new_shape(param, self._before, self._draft)

    def default_for(self, param: LeafPath, effect: Effect) -> str:
        """What becomes of slots if nobody says: those of another shape start anew."""
        return "reset" if self.is_about(param) else default_policy(effect)

    def find(self, param: LeafPath, slots: Sequence[Slot]) -> bool:
        """Look at the slots of a param; False if something is in the way."""
        self._found = {}
        if not slots or not self.is_about(param):
            return True
        problems = list(self._look_at(param, slots))
        for problem in problems:
            self._problems.setdefault((problem.path, problem.why), problem)
        for slot in slots if not problems else ():
            self._maps.see(slot, self._found[slot.path].relation, self._draft.leaves[param].spec)
        return not problems

    def spec_of(self, slot: Slot) -> LeafSpec | None:
        """What a slot is then; None if it keeps its shape."""
        found, own = self._found.get(slot.path), self._draft.leaves[slot.path].spec
        return None if found is None or found.spec.shape == own.shape else found.spec

    def wanted(self, slots: Sequence[Slot]) -> tuple[list[Slot], dict[LeafPath, LeafSpec]]:
        """The slots as they are to their param then, and what they must be."""
        specs = {path: renewal.spec for path, renewal in self._found.items()}
        new = {path: renewal.relation for path, renewal in self._found.items()}
        return [_related(slot, new.get(slot.path, slot.relation)) for slot in slots], specs

    def at_mean(self, slot: Slot) -> tuple[Change, ...] | None:
        """A second moment at its mean, in its shape; None for a part that holds nothing then."""
        new = self._found.get(slot.path)
        if new is None:
            return at_mean(slot, self._draft.leaves[slot.path].recipe)
        return None if new.moment is None else at_mean(slot, new.moment, new.spec)

    def _look_at(self, param: LeafPath, slots: Sequence[Slot]) -> Iterator[Problem]:
        old, new = (each.leaves[param].spec for each in (self._before, self._draft))
        for slot in slots:
            own = self._draft.leaves[slot.path].spec
            fit = fitted(slot, own, old, new)
            if fit.spec is None:
                yield has_no_map(slot, self._name, fit.why, settled_by=fit.settled_by)
            elif self._stay and fit.spec.shape != own.shape and not slot.is_params_like:
                yield does_not_fit(slot, own, new)
            else:
                moment = moment_of(slot, fit, slots, self._draft)
                self._found[slot.path] = Renewal(fit.spec, fit.relation, moment)
        if len(old.shape) != len(new.shape):
            yield from (other_partition(param, s) for s in _choosing(param, slots, self._draft))


def new_shape(param: LeafPath, before: Draft, after: Draft) -> bool:
    """True for a leaf that stood there before an edit, in another shape."""
    old = before.leaves.get(param)
    return old is not None and old.spec.shape != after.leaves[param].spec.shape


def moment_of(slot: Slot, fit: Fit, slots: Sequence[Slot], draft: Draft) -> Recipe | None:
    """What tells the size of a second moment: the slot, or the part of it that holds something."""
    if slot.factoring is None:
        return draft.leaves[slot.path].recipe
    if fit.relation == "one":
        return None
    parts = [slot, *(s for s in slots if s.factoring is not None and s.state == slot.state)]
    return next((draft.leaves[s.path].recipe for s in parts if s.relation != "one"), None)


def _choosing(param: LeafPath, slots: Sequence[Slot], draft: Draft) -> list[Slot]:
    """A hole of every state that leaves out the param, or others while it has slots of this one."""
    nodes = {slot.node for slot in slots}
    holes = (slot for slot in draft.slots.values() if slot.relation == "hole")
    found = {h.node: h for h in holes if h.node in nodes or param.is_below(h.param)}
    return list(found.values())


def _related(slot: Slot, relation: str) -> Slot:
    return slot if relation == slot.relation else msgspec.structs.replace(slot, relation=relation)
