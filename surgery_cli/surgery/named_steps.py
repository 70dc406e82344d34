"""Of a run that was named without a number its newest step is read: commands that are to be typed later name it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from msgspec import UNSET

from surgery_cli.draft.recipe import SOURCE
from surgery_cli.errors import SurgeryError
from surgery_cli.inputs.addresses import address
from surgery_cli.inputs.buckets import path_at
from surgery_cli.store import filesystem
from surgery_cli.store.files.array_file import ArrayFile
from surgery_cli.store.locate.location import Location
from surgery_cli.surgery.preparation import Prepared
from surgery_cli.words.invocation import meaning, meaning_with, typed

_LATEST = "@latest"


def name_steps_read(prepared: Prepared, target: Path | None) -> None:
    """Let commands that go on say which steps this one reads."""
    for name, source in prepared.sources.items():
        if not isinstance(source, ArrayFile):
            name_step_read(source.location, target, is_source=name == SOURCE)


def name_step_read(
    location: Location, target: Path | None, *, step: int | None = None, is_source: bool = True
) -> None:
    """Let them say so of the newest step of one run (or of ``step``): of a donor where it is named but once."""
    step = location.step if step is None else step
    if location.shape != "root" or location.named_step is not UNSET or step is None:
        return
    found = [n for n, word in enumerate(typed()) if n and _leads_to(word, location.root)]
    is_in_it = target is not None and filesystem.real(target) == location.root
    if found and len(found) == 1 + is_in_it:  # what is read stands before where it goes
        word = _run_of(typed()[found[0]])
        meaning(found[0], f"{word.rstrip('/') or word}@{step}")
    elif found and is_source:
        meaning_with("--step", str(step))


def _leads_to(word: str, root: Path) -> bool:
    with suppress(SurgeryError, OSError, ValueError, RuntimeError):
        return filesystem.real(path_at(address(_run_of(word)))) == root
    return False


def _run_of(word: str) -> str:
    """The word without `@latest`, behind which a slash may stand."""
    bare = word.rstrip("/")
    return bare.removesuffix(_LATEST) if bare.endswith(_LATEST) else word
