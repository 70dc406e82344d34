"""What stands at a destination and goes with it: a run is more than the one step that takes its place."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from surgery_cli.errors import SurgeryError, UnseenError
from surgery_cli.store import filesystem
from surgery_cli.store.locate.location import locate
from surgery_cli.words.lists import listed
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage

_SHOWN_STEPS: Final = 4


def replaced_notes(destination: Path, result: str, *, force: bool) -> list[Consequence]:
    """What goes with a destination that is replaced whole: a run is more than the ``result`` that takes its place."""
    if not force or filesystem.is_link(destination) or not (steps := steps_replaced(destination)):
        return []
    said = f"`--force` replaces '{destination}' whole: its {steps} go, and the result is {result}"
    return [Consequence(DocsPage.FORCE, said)]


def steps_replaced(destination: Path) -> str:
    """The steps of a run of several that stands at a destination, as words; "" where none does."""
    steps = steps_standing_at(destination)
    return f"{len(steps)} steps ({listed(steps, _SHOWN_STEPS)})" if len(steps) > 1 else ""


def steps_standing_at(destination: Path) -> list[int]:
    """The finished steps of a run that stands at a destination."""
    if not filesystem.is_folder(destination) or not filesystem.entries(destination):
        return []
    try:
        return locate(str(filesystem.absolute(destination))).steps
    except UnseenError:
        raise
    except SurgeryError:  # what it is, is said by who looks whether it may be replaced
        return []
