"""What a run reads, so that it is not written: each place, and what to name as the destination instead."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shlex import quote

from surgery_cli.store import filesystem
from surgery_cli.store.locate.location import Location
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.write.destination import OUTSIDE
from surgery_cli.surgery.preparation import Prepared
from surgery_cli.surgery.same_run import step_beside


def places_read(target: Path, prepared: Prepared) -> Iterator[tuple[Path, str, str]]:
    """What may not be written, where else the result may go, and where if that itself was named.

    Of other steps of the run that the result becomes a step of, those steps alone.
    """
    own = step_beside(target, prepared)
    for source in prepared.sources.values():
        location = source.location if isinstance(source, Checkpoint) else None
        step = None if location is None else location.step_directory
        is_beside = (
            own is not None and step is not None and filesystem.real(step).parent == own.parent
        )
        place = step if is_beside and step is not None else source.place_on_disk
        yield place, *_other_places(location)


def _other_places(location: Location | None) -> tuple[str, str]:
    """What to do instead of writing into the source, and instead of naming it as the destination."""
    beside = "name another place"
    if location is None or location.shape != "root":
        return OUTSIDE, beside
    tree, new = (
        quote(str(next(iter(location.items.values())))),
        "`--as-step N` makes a step of the run",
    )
    return (
        f"{OUTSIDE}; {new}; a tree, named as {tree}, can become an item of a step",
        f"{beside}; or {new}",
    )
