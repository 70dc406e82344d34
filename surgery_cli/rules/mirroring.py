"""Whether the state of an optimizer belongs to the params, as a resumed training needs it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from surgery_cli.draft.check import Apart
from surgery_cli.draft.slots import Slot
from surgery_cli.optimizer.detect.mirrors import is_param
from surgery_cli.optimizer.detect.survey import OptimizerSurvey
from surgery_cli.rules.contract import Named, Rule, refuse_false
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.lists import quoted
from surgery_cli.words.quantities import counted


class OptimizerMirrorsParams(Rule, frozen=True):
    """Every param that is named has its twins, each in its place and of its shape, and no twin is without a param.

    A param of which the optimizer keeps nothing but empty places, as ``optax.masked`` leaves them, is set apart.
    """

    optimizer_mirrors_params: Annotated[
        bool,
        Meta(
            description="Each param that is named has all its twins in the optimizer state, in their places and shapes,"
            " and no twin is left over; params that are not trained are left out with `except`. Params of which the"
            " optimizer keeps nothing but an empty place (masked) do not break it, and are named apart."
        ),
    ]

    def __post_init__(self) -> None:
        refuse_false(self)

    @property
    def text(self) -> str:
        return "optimizer mirrors params"

    def breach_of_selection(self, named: Named) -> str:
        survey = named.scene.survey_of_draft(named.draft)
        twins = list(filter(_is_twin, survey.slots.values()))
        if not survey.open_questions and all(map(_is_empty, twins)):
            return "there is no optimizer state that mirrors any params"
        roots = {slot.root for slot in twins}
        if twins and not any(_is_asked(path, named, survey, roots) for path in named.leaves):
            return "no param is among them: params are named, not what mirrors them"
        return ""

    def absent(self, named: Named) -> Iterator[tuple[LeafPath, str]]:
        survey = named.scene.survey_of_draft(named.draft)
        questions = [one for one in survey.open_questions if one.is_about(named.leaves)]
        for question in questions:
            yield question.concerns[0], f"{question.problem.what}: {question.problem.why}"
        if not questions:
            yield from _bare(named, survey)

    def set_apart(self, named: Named) -> Iterator[Apart]:
        survey = named.scene.survey_of_draft(named.draft)
        twins = list(filter(_is_twin, survey.slots.values()))
        kept = {slot.param for slot in twins if not _is_empty(slot)}
        left_out = {slot.param for slot in twins if _is_empty(slot)}
        roots = {slot.root for slot in twins}
        found = [
            str(path)
            for path in named.leaves
            if path not in kept
            and not left_out.isdisjoint(_from_root(path))
            and _is_asked(path, named, survey, roots)
        ]
        if found:
            what = f"{counted(len(found), 'param')} of which the optimizer keeps nothing (masked)"
            yield Apart(what=what, leaves=found)


def _bare(named: Named, survey: OptimizerSurvey) -> Iterator[tuple[LeafPath, str]]:
    """The params without a twin, where others have one: in any state, or in some fields of a state that has others."""
    twins = list(filter(_is_twin, survey.slots.values()))
    fields: dict[LeafPath, dict[LeafPath, set[LeafPath]]] = {}
    for slot in twins:
        fields.setdefault(slot.state, {}).setdefault(slot.node, set()).add(slot.param)
    roots = {slot.root for slot in twins}
    for path in named.leaves:
        if not _is_asked(path, named, survey, roots):
            continue
        above = _from_root(path)
        has = {
            state: [not params.isdisjoint(above) for params in nodes.values()]
            for state, nodes in fields.items()
        }
        if not any(map(any, has.values())):
            yield path, "no optimizer state has anything for it"
        for state, there in has.items():
            if any(there) and not all(there):
                without = (
                    n for n, is_there in zip(fields[state], there, strict=True) if not is_there
                )
                yield path, f"it has no twin in {quoted(without, 3)}"


def _is_asked(path: LeafPath, named: Named, survey: OptimizerSurvey, roots: set[LeafPath]) -> bool:
    """True of a param in a tree of which there are twins."""
    is_below = any(map(path.is_below, roots)) and path not in survey.slots
    return is_below and is_param(named.draft.leaves[path].spec)


def _from_root(path: LeafPath) -> list[LeafPath]:
    """A leaf and the nodes above it."""
    return [LeafPath(path[:depth]) for depth in range(len(path) + 1)]


def _is_twin(slot: Slot) -> bool:
    return slot.in_optimizer


def _is_empty(slot: Slot) -> bool:
    return slot.relation == "hole"
