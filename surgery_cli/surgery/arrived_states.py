"""States that came from other checkpoints than the params or the clock beside which they go on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

from surgery_cli.draft.expression import stored_in
from surgery_cli.draft.recipe import SOURCE, Draft
from surgery_cli.draft.slots import Slot
from surgery_cli.errors import PlanError
from surgery_cli.optimizer.detect.survey import OptimizerSurvey, survey
from surgery_cli.optimizer.follow.clock_agreement import Clocked
from surgery_cli.optimizer.follow.clocks import NEEDS_SLOTS
from surgery_cli.optimizer.follow.decays import decays_tried
from surgery_cli.optimizer.follow.step_sizes import sizes_under_another_count
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.quantities import counted

Sources: TypeAlias = Mapping[str, Any]


def as_it_stands(draft: Draft) -> Draft:
    """The draft with the slots and clocks of states that its last edits brought, as far as metadata tell."""
    known = {*draft.slots, *draft.slots_of, *draft.clocks}
    homes = ((path, output.home) for path, output in draft.leaves.items() if path not in known)
    if all(home is None or home.source == SOURCE for _, home in homes):
        return draft
    with suppress(PlanError):
        found = survey(draft.tree)
        return draft.replaced(
            slots={**found.slots, **draft.slots}, clocks={**found.clocks, **draft.clocks}
        )
    return draft


def copies_of_others(draft: Draft, sources: Sources) -> list[Consequence]:
    """Copies of params in a state that are of other params: schedule-free's z, from which it goes on."""
    apart: dict[LeafPath, Slot] = {}
    for slot in draft.slots.values():
        if not (slot.takes_param and slot.in_optimizer) or _is_of_last_step(slot, draft):
            continue
        own, of = (_places(path, draft, sources) for path in (slot.path, slot.param))
        if own and of and not own & of:
            apart.setdefault(slot.node, slot)
    return [
        Consequence(
            DocsPage.OTHER_OPTIMIZER,
            f"'{node}' keeps copies of params, of those in '{_source(slot.path, draft)}', and the params here are "
            f"others: the optimizer goes by its copies; `replace` '{node}' with the params themselves",
        )
        for node, slot in apart.items()
    ]


def clocks_of_others(
    draft: Draft,
    sources: Sources,
    number: Callable[[Any, LeafPath], float | None],
    surveyed: Callable[[Any], OptimizerSurvey],
) -> list[Consequence]:
    """Slots of one checkpoint under a clock of another, both of which came: they have seen other counts."""
    found = []
    for path, clock in draft.clocks.items():
        home = _home(path, draft)
        if home is None or home.source == SOURCE or clock.drives not in NEEDS_SLOTS:
            continue
        ours = number(sources[home.source], home.path)
        apart: dict[tuple[str, LeafPath], list[Slot]] = {}
        for slot in draft.driven_by(path):
            own = _home(slot.path, draft)
            if own is None or own.source == SOURCE:
                continue
            source = sources[own.source]
            if _address(own.source, sources) == _address(home.source, sources):
                continue
            there = surveyed(source).slots.get(own.path)
            for other in there.clocks if there is not None else ():
                if other[-1:] == home.path[-1:]:
                    apart.setdefault((own.source, other), []).append(slot)
        for (name, other), slots in apart.items():
            theirs = number(sources[name], other)
            sizes = sizes_under_another_count(
                slots[0],
                draft,
                lambda ref: (
                    number(sources[ref.source], ref.path) if ref.source in sources else None
                ),
            )
            clocked = Clocked(path, clock.drives, theirs, ours, decays_tried(slots), sizes)
            if not clocked.agrees:
                said = f"'{path}' comes from '{home.source}', and {counted(len(slots), 'slot')} that it drives from "
                said += f"'{name}': {clocked.shifted}"
                found.append(Consequence(DocsPage.DONOR_SLOTS, said))
    return found


def _is_of_last_step(slot: Slot, draft: Draft) -> bool:
    """True for the params before a step, of L-BFGS: without a step behind it, it looks at none."""
    clocks = (draft.clocks.get(path) for path in slot.clocks)
    return any(clock is not None and clock.drives == "memory" for clock in clocks)


def _home(path: LeafPath, draft: Draft) -> Any:
    """The stored leaf that stands at a path as it is."""
    output = draft.leaves.get(path)
    return output.home if output is not None and output.is_by_reference else None


def _places(path: LeafPath, draft: Draft, sources: Sources) -> set[str]:
    """The checkpoints that have a part in a leaf."""
    output = draft.leaves.get(path)
    parts = stored_in(output.recipe) if output is not None else ()
    return {_address(part.ref.source, sources) for part in parts}


def _source(path: LeafPath, draft: Draft) -> str:
    return stored_in(draft.leaves[path].recipe)[0].ref.source


def _address(name: str, sources: Sources) -> str:
    """Where a source stands: two names may be given to one."""
    return str(getattr(sources[name], "address", name))
