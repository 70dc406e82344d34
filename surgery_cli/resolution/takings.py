"""What a plan leaves out of something that its edits take part by part: known once all of them have had theirs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from surgery_cli.draft.recipe import SOURCE, Draft
from surgery_cli.draft.taking import Taking
from surgery_cli.errors import Problem, raise_all
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.advice import worded
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence
from surgery_cli.words.quantities import counted
from surgery_cli.words.series import folded

if TYPE_CHECKING:
    from surgery_cli.planning.plan import Origin

_SHOWN: Final = 3


def rest_notes(
    draft: Draft, fingerprints: Mapping[str, str], origins: Sequence[Origin]
) -> list[Consequence]:
    """What the edits of a draft leave out on purpose; ``fingerprints`` are those of donors, by name.

    Raises:
        PlanError: something is left out, and no edit says so.
    """
    edits: dict[tuple[str, str], list[Taking]] = defaultdict(list)
    for taking in draft.takings:
        edits[taking.operation, fingerprints.get(taking.source, "")].append(taking)
    problems: list[Problem] = []
    notes: list[Consequence] = []
    for takings in edits.values():
        rest = _rest(takings, draft)
        if rest and any(taking.may_leave for taking in takings):
            notes.append(_note(takings[0], rest))
        else:
            problems += _located(rest, origins)
    raise_all(problems)
    return notes


def _rest(takings: Sequence[Taking], draft: Draft) -> dict[LeafPath, Taking]:
    """What none takes, with the first edit that knows of it; what is deleted is no longer there to be left out."""
    taken = {path for taking in takings for path in taking.taken}
    rest: dict[LeafPath, Taking] = {}
    for taking in takings:
        for path in taking.offered.keys() - taken if taking.offered else ():
            rest.setdefault(path, taking)
    if takings[0].source == SOURCE:
        homes = {home.path for leaf in draft.leaves.values() for home in leaf.homes}
        rest = {path: taking for path, taking in rest.items() if path in homes}
    return dict(sorted(rest.items(), key=lambda one: str(one[0])))


def _located(rest: Mapping[LeafPath, Taking], origins: Sequence[Origin]) -> Iterator[Problem]:
    for path, taking in rest.items():
        problem = taking.offered[path]
        is_known = taking.edit < len(origins)
        yield origins[taking.edit].located(problem) if is_known else problem


def _note(taking: Taking, rest: Mapping[LeafPath, Taking]) -> Consequence:
    count, shown = counted(len(rest), "leaf", "leaves"), quoted(folded(map(str, rest)), _SHOWN)
    said = worded("{} of '{}' are left out, as {rest: leave} says: {}", count, taking.text, shown)
    return Consequence(taking.page, said)
