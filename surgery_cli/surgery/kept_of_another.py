"""What an earlier run has kept is for one that makes the very same: any other is told what differs, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote

from surgery_cli.errors import CheckpointError, PlanError
from surgery_cli.store.write.half_replaced import half_replaced
from surgery_cli.store.write.journal import Head
from surgery_cli.store.write.leftovers import Left, is_over
from surgery_cli.store.write.resumable_staging import goes_on
from surgery_cli.surgery.kept_inputs import Changed, changed_inputs, how_changed, labels_of
from surgery_cli.surgery.unlike_plans import first_unlike
from surgery_cli.words.invocation import the_same
from surgery_cli.words.lists import quoted

ITEM = "--item"
"""The setting that says which item of a step is read."""
_MIXED = "blocks of both would stand in one result"


def refuse_another(left: Left, kept: Head, head: Head, target: Path) -> None:
    """See that what was kept is of this very draft and what it reads, this program and these settings.

    Raises:
        PlanError: it was made by another version of the program, or under other settings.
        CheckpointError: it is of another draft, or of inputs that were written since.
    """
    anew, remedy = _remedies(left, kept, target)
    _refuse_differing("version", left, kept.programs, head.programs, remedy)
    if kept.settings.get(ITEM) != head.settings.get(ITEM):  # of which other files are read
        _refuse_differing("setting", left, kept.settings, head.settings, remedy)
    changed = changed_inputs(kept.inputs, head.inputs, of_one_draft=kept.draft == head.draft)
    if rewritten := [one for one in changed if not one.is_elsewhere]:
        raise CheckpointError(
            f"{labels_of(rewritten)} {'have' if len(rewritten) > 1 else 'has'} changed since the run that left"
            f" '{left.path}' was started",
            why=how_changed(rewritten),
            fix=_mended(rewritten, anew, is_one=_makes(kept) == _makes(head)),
        )
    if changed:
        goes_on_there = remedy != anew  # the command that was started names what it has read
        raise _read_elsewhere(left, changed, f"{': ' if goes_on_there else '; else '}{remedy}")
    if kept.draft != head.draft:
        raise CheckpointError(
            f"what is kept in '{left.path}' is of another draft",
            why=_of_other_plans(kept, head),
            fix=remedy,
        )
    _refuse_differing("setting", left, kept.settings, head.settings, remedy)


def _of_other_plans(kept: Head, head: Head) -> str:
    """What was asked for, and is; where that is the same, an option or code of the user's makes the difference."""
    unlike = None if not kept.plan else first_unlike(kept.plan, head.plan)
    if unlike is None:
        return f"its digest was {kept.draft}, and is {head.draft} now: an option is another, or code that is called"
    return f"the plan's {unlike.what} was {unlike.one}, and is {unlike.other} now"


def _makes(head: Head) -> tuple[str, Mapping[str, str]]:
    return head.draft, head.settings


def _mended(changed: Sequence[Changed], anew: str, *, is_one: bool) -> str:
    """What to do; if the command ``is_one`` with that which was started, what has come beside is only in its way."""
    if not all(one.is_read_the_same for one in changed):
        return f"{_MIXED}: {anew}"
    came_alone = all(one.was.carried.items() <= one.now.carried.items() for one in changed)
    if not (is_one and came_alone):
        return f"the result would not carry along what it was begun with: {anew}"
    came = [name for one in changed for name in one.now.carried if name not in one.was.carried]
    where = f"move {quoted(sorted(came), 3, word='and')} to another place"
    return f"{where}, and {the_same()} goes on; else {anew}"


def _remedies(left: Left, kept: Head, target: Path) -> tuple[str, str]:
    """How to begin anew; and what to do where the command that was started may still go on."""
    if (mixture := half_replaced(target)) is not None:  # which `clean` does not remove
        return mixture.fix, mixture.fix
    stale = "" if is_over(left) else " --stale"
    clean = f"`surgery clean {quote(str(target))}{stale}`"
    anew = f"{clean} removes what was kept, then {the_same()} starts anew; nothing else is lost"
    if kept.command == the_same():  # which is refused
        return anew, anew
    return anew, f"{goes_on(left)}; {clean} removes it"


def _refuse_differing(
    what: str, left: Left, theirs: Mapping[str, str], ours: Mapping[str, str], remedy: str
) -> None:
    names = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
    if names:
        raise PlanError(
            f"what is kept in '{left.path}' was made by another {what}",
            why="; ".join(
                f"{name}: {theirs.get(name, 'none')}, and {ours.get(name, 'none')} now"
                for name in names
            ),
            fix=f"{_MIXED}: {remedy}",
        )


def _read_elsewhere(left: Left, changed: Sequence[Changed], remedy: str) -> CheckpointError:
    """The error for what was begun on other places: as a rule an older step, where the newest is read."""
    were = quoted([one.was.place for one in changed], word="and")
    return CheckpointError(
        f"what is kept in '{left.path}' is made of {were}, and {labels_of(changed)}"
        f" {'are' if len(changed) > 1 else 'is'} read now",
        why=_MIXED,
        fix=f"to go on from there, name {were} in its place{remedy}",
    )
