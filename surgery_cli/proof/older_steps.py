"""That an older step of a run is meant, where none was named and the newest is unfinished."""

from __future__ import annotations

from surgery_cli.proof.record_parts import Assumed
from surgery_cli.store.filesystem.names import step_name, unfinished_name
from surgery_cli.store.locate.location import Location
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.words.lists import listed


def assumed_steps(*opened: object) -> list[Assumed]:
    """For each root that was named without a step, that an older one is meant where the newest is unfinished."""
    found = {
        str(one.location.root): newer
        for one in opened
        if isinstance(one, Checkpoint) and (newer := _older_step(one.location)) is not None
    }
    return list(found.values())


def _older_step(location: Location) -> Assumed | None:
    """That an older step is meant; None where the step was named, or is the newest that there is."""
    if location.shape != "root" or location.step is None or isinstance(location.named_step, int):
        return None
    begun = (step_name(unfinished_name(name) or name) for name in location.unfinished)
    newer = sorted({step.number for step in begun if step and step.number > location.step})
    if not newer:
        return None
    *_, newest = newer
    which = f"the newest, {newest}, is unfinished"
    if newer[:-1]:
        which = f"{which}, as is {listed(map(str, newer[:-1]), word='and')}"
    return Assumed(
        node=str(location.root),
        taken_for=f"step {location.step}",
        unless=[f"step {number}" for number in newer],
        settled_by=f"name the step, as '{location.address}'",
        sentence=f"step {location.step} of '{location.root}' is taken: {which}",
    )
