"""Give slots of the optimizer state their initial values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, ClassVar

from msgspec import Meta

from surgery_cli.draft.effect import Sets
from surgery_cli.draft.placeholders import KIND
from surgery_cli.draft.recipe import SOURCE, Draft, Edited, Output, is_numeric
from surgery_cli.draft.settings import check_finite
from surgery_cli.draft.slots import Slot
from surgery_cli.errors import Gathering, PlanError, raise_all
from surgery_cli.operations.base import Operation, Scene
from surgery_cli.operations.nothing_to_reset import nothing_to_reset
from surgery_cli.operations.set import Set
from surgery_cli.optimizer.follow.initial_values import refilled, taking_param
from surgery_cli.optimizer.follow.param_copies import half_told
from surgery_cli.optimizer.follow.refusals import why_no_start
from surgery_cli.optimizer.follow.untold_counters import is_untold, left_alone, restarting
from surgery_cli.tree.dtypes import is_floating
from surgery_cli.tree.paths import LeafPath, PathPattern, Selection
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.advice import worded
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence, Remark
from surgery_cli.words.pages import DocsPage

_SHOWN_NUMBERS = 6


class ResetOptimizer(Operation, tag="reset-optimizer", kw_only=True, frozen=True):
    """Give the slots of the optimizer state their initial values, and with `clocks` restart its step counters.

    Patterns name slots, or params whose slots are meant; without any, all slots are reset. Running sums that a state
    keeps for all its slots restart with all of them. Schedules go on: they belong to no slot.
    docs/changing-the-optimizer.md tells how to go on with another optimizer.
    """

    clocks: Annotated[
        bool,
        Meta(description="Restart the step counters that drive these slots as well."),
    ] = False
    fill: Annotated[
        float | None,
        Meta(description="Value for slots whose initial value is set by the training script."),
    ] = None

    example: ClassVar[str] = "- op: reset-optimizer\n  at: opt_state\n  clocks: true\n"
    selects_everything_without_at: ClassVar[bool] = True
    unused_fields: ClassVar[Mapping[str, str]] = MappingProxyType({"optimizer": "it always resets"})

    def selectable(self, spec: LeafSpec) -> bool:
        return True

    def narrowed(self, selected: Selection, draft: Draft) -> Selection:
        """The slots that stand among ``selected``, or whose params do; an exception spares either."""
        slots = [
            slot.path
            for slot in draft.slots.values()
            if slot.in_optimizer
            and slot.relation not in ("hole", "one")
            and is_numeric(draft.leaves[slot.path].spec)
            and (slot.path in selected or slot.param in selected)
            and not {slot.path, slot.param} & selected.excluded
        ]
        return selected.narrowed(slots)

    def check_values(self) -> None:
        super().check_values()
        if self.fill is not None:
            check_finite(self.fill, "fill")

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        slots = [draft.slots[path] for path in scene.select(self, draft)]
        if not slots and not self.optional:
            raise nothing_to_reset(draft, self.patterns)
        scene.settle((slot.param for slot in slots), draft)
        self._refuse_half_told(slots, draft)
        if self.clocks:
            _refuse_untold_clocks(slots, draft)
        if self.fill is not None and slots and not any(map(_needs_fill, slots)):
            raise PlanError(
                worded("{fill: {:g}} would fill nothing", self.fill),
                why="the initial values of all these slots are known, and they get those",
                fix=worded(
                    "take {fill} out; to put another value into slots, `replace` them with that number"
                ),
                field="fill",
            )
        changed: dict[LeafPath, Output] = {}
        gathering = Gathering()
        for slot in slots:
            with gathering.catching(path=str(slot.path)):
                changed[slot.path] = self._reset(slot, draft)
        gathering.raise_if_any()
        clocks = _restarted_clocks(slots, draft, scene) if self.clocks else {}
        changed |= clocks
        running = _restarted_numbers(slots, draft)
        reset = draft.with_leaves(changed | running)
        which = "this step counter goes" if len(clocks) == 1 else "these step counters go"
        restart = "these numbers of the optimizer's own restart with its slots"
        reset = reset.noting(
            *(
                Remark(DocsPage.COUNTERS, said)
                for said in _naming(f"{which} back to the start", clocks)
            ),
            *(Consequence(DocsPage.COUNTERS, said) for said in _naming(restart, running)),
        )
        owners = {slot.state for slot in slots}
        states = {slot.whole_state for slot in slots}
        whole = owners if self.patterns else states
        left = _numbers_left(whole, reset)
        if self.clocks:
            left += _schedules_left(states, reset) + _others_left(whole, slots, reset)
        return reset.noting(*(Consequence(DocsPage.COUNTERS, said) for said in left))

    def _refuse_half_told(self, slots: Sequence[Slot], draft: Draft) -> None:
        """Raise PlanError if slots restart, and a tree that is named likewise stays which may be one of them."""
        beside = [slot for slot in draft.slots.values() if slot.assumed and not slot.in_optimizer]
        texts = {path: path.text for slot in beside for path in (slot.path, slot.param)}
        named = set() if self.patterns else set(texts)
        for pattern in self.patterns if beside else ():
            named |= PathPattern(pattern).named(texts).keys()
        staying = (slot for slot in beside if slot.path in named or slot.param in named)
        raise_all(half_told(slots, staying, "name the slots themselves"))

    def _reset(self, slot: Slot, draft: Draft) -> Output:
        if slot.takes_param:
            return taking_param(draft, slot, "reset")
        value = self.fill if slot.fresh is None else slot.fresh
        if value is None:
            usual = (
                f"name the factory ({KIND}) if it is optax's default, "
                if slot.start is None
                else ""
            )
            raise PlanError(
                f"the initial value of '{slot.path}' is not known",
                why=why_no_start(slot),
                fix=worded("give it with {fill}, {}or leave these slots out with {except}", usual),
                field="fill",
            )
        return refilled(draft, slot.path, value)


def _needs_fill(slot: Slot) -> bool:
    return slot.fresh is None and not slot.takes_param


def _refuse_untold_clocks(slots: Iterable[Slot], draft: Draft) -> None:
    """Raise PlanError where something may be the clock of some slots, and nothing states that it is, or is not."""
    left = left_alone(slots, draft)
    if not left:
        return
    which = "whether" if len(left) == 1 else "which of"
    raise PlanError(
        f"nothing states {which} {quoted(left, _SHOWN_NUMBERS, word='and')} counts the steps of these slots",
        why=worded(
            "{clocks: true} restarts counters that are known to drive slots, and a state that is of no known form tells"
            " of none"
        ),
        fix=worded("take {clocks: true} out; {}, if it does", restarting(left, draft)),
        field="clocks",
    )


def _restarted_clocks(slots: Iterable[Slot], draft: Draft, scene: Scene) -> dict[LeafPath, Output]:
    """The clocks of the slots, at the value at which the optimizer starts them."""
    found: dict[LeafPath, Output] = {}
    for path in dict.fromkeys(clock for slot in slots for clock in slot.clocks):
        recipe, clock = draft.leaves.get(path), draft.clock_at(path)
        if recipe is not None and clock is not None:
            fresh = bool(clock.fresh) if recipe.spec.dtype == "bool" else clock.fresh
            made = Set(to=fresh).made(path, recipe.recipe, scene)
            found[path] = recipe.then(made, Edited("set", Sets(fresh)), policy="reset")
    return found


def _restarted_numbers(slots: Iterable[Slot], draft: Draft) -> dict[LeafPath, Output]:
    """Running numbers of states all of whose slots are reset: over sums of old slots, new ones would be misjudged."""
    reset = {slot.path for slot in slots}
    owners = {slot.state for slot in draft.slots.values() if slot.path in reset}
    partly = {
        slot.state
        for slot in draft.slots.values()
        if slot.in_optimizer and slot.relation not in ("hole", "one") and slot.path not in reset
    }
    found: dict[LeafPath, Output] = {}
    for path, recipe in draft.leaves.items():
        if path.parent not in owners or path.parent in partly or recipe.home is None:
            continue
        if recipe.home.source == SOURCE and recipe.home.path in draft.running:
            found[path] = refilled(draft, path, draft.running[recipe.home.path])
    return found


def _numbers_left(nodes: Collection[LeafPath], reset: Draft) -> list[str]:
    """The floating numbers below ``nodes``, slots aside, which are as they were."""
    kept = [
        path
        for path, recipe in _below(nodes, reset)
        if recipe.spec.has_array and is_floating(recipe.spec.dtype) and path not in reset.slots
    ]
    said = "these numbers of the optimizer's own are left as they are"
    return _naming(said, sorted(kept, key=str))


def _schedules_left(nodes: Collection[LeafPath], reset: Draft) -> list[str]:
    """The counters of schedules below ``nodes`` which go on."""
    kept = [path for path, _ in _below(nodes, reset) if _is_schedule(path, reset)]
    verb = "this schedule goes on" if len(kept) == 1 else "these schedules go on"
    return [worded("{}; `set` with {to: 0} restarts one", said) for said in _naming(verb, kept)]


def _is_schedule(path: LeafPath, draft: Draft) -> bool:
    clock = draft.clock_at(path)
    return clock is not None and clock.drives == "schedule"


def _others_left(nodes: Collection[LeafPath], slots: Iterable[Slot], reset: Draft) -> list[str]:
    """Whatever else below ``nodes`` is as it was: counters that drive no slot, flags, random keys."""
    kept = []
    untold = {slot.state for slot in slots if is_untold(slot)}
    for path, recipe in _below(nodes, reset):
        slot, spec = reset.slots.get(path), recipe.spec
        is_said = is_floating(spec.dtype) or _is_schedule(path, reset)
        is_nothing = slot is not None and (slot.takes_param or slot.relation in ("hole", "one"))
        if spec.has_array and not is_said and not is_nothing:
            kept.append(path)
    why = {False: "as no slot that restarts goes by it", True: "as nothing states what goes by it"}
    found: dict[bool, list[LeafPath]] = {False: [], True: []}
    for path in kept:
        found[any(path.is_below(state) for state in untold)].append(path)
    return [
        said
        for is_open, paths in found.items()
        for said in _naming(
            f"{'this goes' if len(paths) == 1 else 'these go'} on, {why[is_open]}", paths
        )
    ]


def _naming(said: str, paths: Collection[LeafPath]) -> list[str]:
    """The sentence with the paths that it is about; none without any."""
    return [f"{said}: {quoted(map(str, paths), _SHOWN_NUMBERS)}"] if paths else []


def _below(nodes: Collection[LeafPath], draft: Draft) -> Iterator[tuple[LeafPath, Output]]:
    """The leaves below some nodes that no edit has changed."""
    for path, recipe in draft.leaves.items():
        if recipe.is_by_reference and any(path[:n] in nodes for n in range(1, len(path))):
            yield path, recipe
