"""Counters that stand together in a donor, and no longer do in the result: a schedule beside the step of the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from surgery_cli.draft.recipe import SOURCE, Draft
from surgery_cli.optimizer.detect.params_root import is_step
from surgery_cli.optimizer.detect.survey import survey
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.surgery.clock_values import Numbers
from surgery_cli.tree.dtypes import is_integer
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.lists import listed, quoted
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage

_MOST = 3
"""How many counters one sentence names."""


def schedules_apart(
    draft: Draft, sources: Mapping[str, Any], numbers: Numbers
) -> Iterator[Consequence]:
    """What is said of counters that a donor gave, where others beside them are not at the count of there.

    A schedule goes by its own counter, and `step` is for scripts where the run stands. Counters of slots are no matter
    of this: they belong to what those have gathered.
    """
    clocks = {path: out for path, out in draft.leaves.items() if is_integer(out.spec.dtype)}
    for name in dict.fromkeys(out.home.source for out in clocks.values() if out.home is not None):
        donor = sources[name]
        if name == SOURCE or not isinstance(donor, Checkpoint):
            continue
        known = {SOURCE: draft.clocks, name: survey(donor.tree).clocks}
        come, apart, is_about_schedules = [], [], [False, False]
        for path, output in clocks.items():
            home = output.home
            clock = known[home.source].get(home.path) if home and home.source in known else None
            if home is None or clock is None or not (clock.drives == "schedule" or is_step(path)):
                continue
            now = numbers.becomes(path, draft, sources)
            is_theirs = home.source == name and not output.edits
            there = now if is_theirs else _counted(home.path, donor, numbers)
            if is_theirs:
                come.append(path)
            elif None not in (there, now) and there != now:
                apart.append(f"'{path}' stands at {there:,.0f} there, and at {now:,.0f} here")
            else:
                continue
            is_about_schedules[not is_theirs] |= clock.drives == "schedule"
        if come and apart and any(is_about_schedules):
            yield _note(name, come, apart)


def _counted(path: LeafPath, donor: Checkpoint, numbers: Numbers) -> float | None:
    """What a leaf of the donor counts; None if it has none there."""
    has = path in donor.tree and is_integer(donor.tree[path].dtype) and donor.tree[path].size == 1
    return numbers.stored(donor, path) if has else None


def _note(donor: str, come: list[LeafPath], apart: list[str]) -> Consequence:
    comes = "comes" if len(come) == 1 else "come"
    said = f"{quoted(come, _MOST)} {comes} from '{donor}': {listed(apart, _MOST)}; where a schedule or the script"
    return Consequence(DocsPage.COUNTERS, f"{said} goes by both, `set` one of them")
