"""Slots of params that an edit adds: what the optimizer's own start of the grown tree would hold for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from surgery_cli.draft.assumptions import Assumption, together
from surgery_cli.draft.expression import Made
from surgery_cli.draft.kernel import Nothing
from surgery_cli.draft.recipe import Draft, Edited, Output, is_numeric
from surgery_cli.draft.slots import Slot
from surgery_cli.errors import Gathering, PlanError
from surgery_cli.optimizer.follow.donor_notes import Grafts
from surgery_cli.optimizer.follow.donor_slots import Donors, resting_on
from surgery_cli.optimizer.follow.fresh_slots import fitted, moment_of
from surgery_cli.optimizer.follow.initial_values import refilled, taking_param
from surgery_cli.optimizer.follow.refusals import has_no_map, unknown_start
from surgery_cli.optimizer.follow.siblings import Siblings, UnknownStates
from surgery_cli.optimizer.follow.states import States
from surgery_cli.optimizer.follow.transform import mean_of
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence, Note, Remark
from surgery_cli.words.pages import DocsPage


class Grown(NamedTuple):
    """The leaves of an optimizer's state that new params have, what each is, and what must be said of them."""

    leaves: dict[LeafPath, Output]
    slots: dict[LeafPath, Slot]
    notes: list[Note]


def grown(
    new: Mapping[LeafPath, Output],
    like: Mapping[LeafPath, LeafPath],
    draft: Draft,
    scene: States,
    *,
    policy: str | None,
    name: str,
    takes_like: bool,
    taken: Iterable[LeafPath] = (),
) -> Grown:
    """What states that mirror the params hold for ``new`` ones, as they do for others that are ``like`` them.

    Of params for which that does not say one, all others of the tree tell it, where they agree. ``draft`` is without
    the new leaves. Where params come from a donor, its slots come with them if they would go on as they did there. No
    slot is made where a leaf is ``taken`` already. ``name`` is that of the edit; ``takes_like``: it has a field for it.

    Raises:
        PlanError: states choose their params, and nothing says whether they would choose these; the shape or the
            initial value of a slot is not known.
    """
    return _Growing(new, draft, scene, policy, name, takes_like, frozenset(taken)).of(like)


class _Growing:
    def __init__(
        self,
        new: Mapping[LeafPath, Output],
        draft: Draft,
        scene: States,
        policy: str | None,
        name: str,
        takes_like: bool,
        taken: frozenset[LeafPath],
    ) -> None:
        self._new, self._taken, self._policy = new, taken, policy
        self._before, self._scene = draft, scene
        self._name, self._takes_like = name, takes_like
        self._draft = draft.with_leaves(new)
        self._found: dict[LeafPath, Output] = {}
        self._slots: dict[LeafPath, Slot] = {}
        self._models: dict[LeafPath, LeafPath] = {}
        self._model_slots: dict[LeafPath, LeafPath] = {}
        self._gathering = Gathering()

    def of(self, like: Mapping[LeafPath, LeafPath]) -> Grown:
        siblings = Siblings(self._before)
        gathering = self._gathering
        asked: dict[UnknownStates, list[LeafPath]] = {}
        known: dict[LeafPath, UnknownStates] = {}
        for param, output in self._new.items():
            with gathering.catching(path=str(param), field="like" if self._takes_like else "at"):
                try:
                    model = siblings.model_of(param, output.spec, like.get(param))
                except UnknownStates as question:
                    asked.setdefault(known.setdefault(question.about, question), []).append(param)
                    continue
                if output.spec.kind is LeafKind.EMPTY and param in like:
                    self._grow_empty(param, like[param])
                elif model is not None:
                    self._models[param] = model
                    self._grow(param, model)
        gathering.problems += (
            each.problem(new, takes_like=self._takes_like) for each, new in asked.items()
        )
        gathering.raise_if_any()
        draft = self._draft.with_leaves(self._found)
        notes = [*self._graft(draft), *self._said(like)]
        return Grown(self._found, self._slots, notes)

    def _grow(self, param: LeafPath, model: LeafPath) -> None:
        """The slots of one param, as those of the other."""
        depth = len(model)
        for n in range(depth + 1):
            node = LeafPath(model[:n])
            for slot in self._before.slots_of.get(node, ()):
                goal = param if n == depth else _counterpart(node, model, param)
                place = None if goal is None else slot.place_for(goal)
                if goal is None or place is None or place in self._taken:
                    continue
                if place in self._before.leaves or place in self._found:
                    continue  # a hole for a node that holds both
                new = msgspec.structs.replace(slot, path=place, param=goal)
                self._model_slots[place] = slot.path
                if slot.relation == "hole":
                    self._put(new, Output.empty(self._before.leaves[slot.path].spec))
                else:
                    with self._gathering.catching(path=str(place)):
                        self._start(new, slot, model)

    def _grow_empty(self, path: LeafPath, model: LeafPath) -> None:
        """A container without leaves: states that mirror the params have the same where they have its model."""
        slots = self._before.slots.values()
        for node, root in dict.fromkeys((slot.node, slot.root) for slot in slots):
            place, there = (node / leaf[len(root) :] for leaf in (path, model))
            is_mirrored = path.is_below(root) and model.is_below(root) and there != model
            if is_mirrored and there in self._before.leaves and place not in self._taken:
                self._found[place] = Output.empty(self._before.leaves[there].spec)

    def _put(self, slot: Slot, output: Output) -> None:
        self._slots[slot.path] = slot
        self._found[slot.path] = output

    def _start(self, new: Slot, model: Slot, other: LeafPath) -> None:
        """One slot with its initial value."""
        old, param = self._before.leaves[other].spec, self._new[new.param].spec
        leaf = self._before.leaves[model.path]
        own = leaf.spec
        if own.dtype == old.dtype:
            own = msgspec.structs.replace(own, dtype=param.dtype)
        fit = fitted(model, own, old, param)
        if fit.spec is None:
            raise PlanError.of([has_no_map(new, self._name, fit.why, settled_by=fit.settled_by)])
        spec = msgspec.structs.replace(fit.spec, stored_bytes=None)
        slot = msgspec.structs.replace(new, relation=fit.relation)
        # of a whole tree a copy for each slot would cost its square
        two = {slot.param: self._new[slot.param], slot.path: _nothing_yet(spec, slot.path)}
        draft = self._draft.replaced(leaves=two)
        if slot.is_params_like:
            self._put(slot, taking_param(draft, slot, "reset" if slot.in_optimizer else "carried"))
            return
        if not is_numeric(spec) and (slot.fresh is None or spec.dtype != "bool"):
            raise PlanError.of([has_no_map(new, self._name, f"it is {spec.type_text}")])
        beside = self._before.slots_of[other]
        moment = None
        if self._policy == "warm" and slot.is_second_moment:
            moment = moment_of(model, fit, beside, self._before)
        if moment is not None:
            mean = mean_of(slot, moment, spec)
            edit = Edited(mean.name, mean.effect, is_named=False)
            self._put(slot, draft.leaves[slot.path].then(mean.recipe, edit, policy="warm"))
            return
        if slot.fresh is None:
            raise PlanError.of([unknown_start(slot, may_stay=False)])
        is_warm = self._policy == "warm" and any(one.is_second_moment for one in beside)
        policy = "warm" if is_warm else "reset"
        value = bool(slot.fresh) if spec.dtype == "bool" else slot.fresh
        self._put(slot, refilled(draft, slot.path, value, policy, spec))

    def _graft(self, draft: Draft) -> list[Note]:
        """Take the slots of params that come from a donor from there, where they can go on."""
        donors, grafts = Donors(self._scene), Grafts()
        assumed: dict[LeafPath, Assumption] = {}
        of_param: dict[LeafPath, list[LeafPath]] = {}
        for slot in self._slots.values():
            of_param.setdefault(slot.param, []).append(slot.path)
        for param, output in self._new.items():
            home = output.home
            slots = [
                donors.told(slot, self._before.leaves[self._model_slots[slot.path]].home)
                for slot in map(self._slots.__getitem__, of_param.get(param, ()))
                if slot.in_optimizer and slot.relation != "hole"
            ]
            if home is None or not home.source or not slots or self._policy is not None:
                continue
            taken = donors.twins(home, slots, draft)
            grafts.add(home.source, slots, taken)
            self._found.update(taken.recipes)
            for state, new in taken.assumed.items():
                if (every := together((assumed.get(state), new))) is not None:
                    assumed[state] = every
        self._slots = dict(resting_on(assumed, draft.replaced(slots=self._slots)).slots)
        return grafts.notes(draft, frozenset(self._new), self._found)

    def _said(self, like: Mapping[LeafPath, LeafPath]) -> Iterator[Note]:
        """From which params it was seen what slots there are."""
        told = {p: m for p, m in self._models.items() if like.get(p) != m}
        if told:
            models = list(dict.fromkeys(told.values()))
            yield Remark(
                DocsPage.OPTIMIZERS,
                f"slots of the new params are like those of {quoted(models, 2)}",
            )
        other = [
            (param, model)
            for param, model in self._models.items()
            if self._new[param].spec.dtype != self._before.leaves[model].spec.dtype
        ]
        if other:
            param, model = other[0]
            yield Consequence(
                DocsPage.OPTIMIZERS,
                f"slots of '{param}' that have the dtype of '{model}' there are taken to follow the dtype of the param",
            )


def _counterpart(node: LeafPath, model: LeafPath, param: LeafPath) -> LeafPath | None:
    """The node that is to the new param what ``node`` is to the one that it is like; None if it holds both, or none."""
    tail = model[len(node) :]
    kept = len(param) - len(tail)
    if kept <= 0 or param[kept:] != tail or param.is_below(node):
        return None
    return LeafPath(param[:kept])


def _nothing_yet(spec: LeafSpec, path: LeafPath) -> Output:
    return Output(Made(Nothing(), (), spec, path), None)
