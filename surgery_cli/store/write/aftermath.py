"""What stands once a run has ended, whichever way: its result, what it could not remove, what it has kept."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Final

import msgspec

from surgery_cli.errors import SurgeryError
from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.store.filesystem.names import SET_ASIDE_SUFFIX, destination_of
from surgery_cli.words.advice import NOTHING_LEFT, Left, Text, joined
from surgery_cli.words.invocation import typed
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage

NO_REPORT: Final = "its report is missing"
NOT_LASTING: Final = "the system did not say that it outlasts a power cut: `sync` makes sure"


class Completed(msgspec.Struct):
    """A destination that has got its name; ``lacks`` says what of it is missing, if the run ends now."""

    path: Path
    lacks: str = NO_REPORT

    @classmethod
    def now(cls, path: Path) -> Completed:
        """From this moment on it stands, whatever becomes of the run."""
        completed.append(cls(path))
        return completed[-1]


completed: Final[list[Completed]] = []
"""The destination of the last run in this process, if it got its name: what a run that ends late must say."""

remaining: Final[list[Path]] = []
"""What the last run in this process built, and could not remove."""

kept: Final[list[str]] = []
"""What the last run in this process has left so that another one goes on from there, in a sentence."""


set_aside: Final[list[Path]] = []
"""What something else wrote to the destination while the last run in this process replaced it, where that is kept."""

sought: Final[list[bool]] = []
"""Not empty once this command has looked for what an earlier run has kept."""

unknown: Final[list[str]] = []
"""What this process, one of several, does not know of what the last run has left: who says it, or what shows it."""


def begin_anew() -> None:
    """A run begins: nothing is to be said of an earlier one."""
    for known in (completed, remaining, kept, set_aside, unknown):
        known.clear()


def kept_was_sought() -> None:
    """From now on it is known what an earlier run has kept, if this command goes on from such."""
    sought.append(True)


def is_unknown(said: str) -> None:
    """From now on this process cannot say what the run leaves; ``said`` is what it says instead."""
    unknown[:] = [said]


def aftermath() -> str:
    """What stands now that the last run in this process has ended before its report."""
    said = [f"'{one.path}' is complete, only {one.lacks}" for one in completed]
    said += [*kept, *map(str, remaining_notes()), *unknown]
    if not said and not sought and "--resume" in typed():
        return "this run has written nothing; what an earlier one may have kept is as it was"
    return "; ".join(said) or str(NOTHING_LEFT)


def remaining_notes() -> list[Consequence]:
    """What the last run in this process did not remove: what was not its own, and what it could not, and what will."""
    found: dict[Path, list[Path]] = {}
    came = [
        Consequence(
            DocsPage.FORCE,
            f"'{path}' keeps what something else wrote to '{path.name.removesuffix(SET_ASIDE_SUFFIX)}' while that was"
            " replaced: see whether it is still wanted",
        )
        for path in set_aside
    ]
    for path in remaining:  # in a bucket, what was built and its lock go with one command
        named = destination_of(path) if isinstance(path, BucketPath) else path
        found.setdefault(named, []).append(path)
    return came + [
        Consequence(
            DocsPage.HOW_IT_WRITES,
            f"{quoted(paths, word='and')} could not be removed: `surgery clean {quote(str(named))}` once that is"
            " possible",
        )
        for named, paths in found.items()
    ]


def with_aftermath(error: SurgeryError) -> SurgeryError:
    """The error of a run that had begun to write, saying what stands now."""
    if completed:
        error.problems = tuple(msgspec.structs.replace(p, fix=aftermath()) for p in error.problems)
    elif remaining or kept or set_aside or unknown:
        error.problems = tuple(
            msgspec.structs.replace(p, fix=_with_what_is_left(p.fix)) for p in error.problems
        )
    return error


def _with_what_is_left(fix: str) -> Text:
    parts = fix.parts if isinstance(fix, Text) else (fix,)
    if any(isinstance(part, Left) for part in parts):
        return Text(*(aftermath() if isinstance(part, Left) else part for part in parts))
    return joined("; ", filter(None, (fix, aftermath())))
