"""The run that a step stands in, whether the run was opened or the step by its own path."""

from __future__ import annotations

from surgery_cli.errors import SurgeryError
from surgery_cli.store.filesystem.names import step_name
from surgery_cli.store.locate.location import Location, locate


def run_of(location: Location) -> Location:
    """The same checkpoint as a step of a run: of one that was opened by its own path, of the run around it, if any."""
    root, named = location.root, step_name(location.root.name)
    if location.shape not in ("step", "flat") or named is None:
        return location
    try:
        run = locate(str(root.parent), step=named.number)
    except SurgeryError:  # what stands around it is no run
        return location
    return run if run.shape == "root" and run.step_directory == root else location


def addresses_beside(location: Location, run: Location) -> dict[int, str]:
    """The finished steps of its run, with an address for each.

    Beside a step that was opened by its own path they are paths, too: nothing but these steps is read then, and another
    may be written beside them.
    """
    if run is location:
        return {number: f"{run.root}@{number}" for number in run.steps}
    names = {named.number: name for name in run.step_names if (named := step_name(name))}
    return {number: str(run.root / names[number]) for number in run.steps}
