"""`--resume`: what an earlier run of the same command has kept, and whether this one may go on from there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Final

from surgery_cli import __version__
from surgery_cli.draft.digest import DigestPart
from surgery_cli.draft.expression import is_repeatable
from surgery_cli.errors import CheckpointError, DestinationError, PlanError, SurgeryError
from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.proof.records import read_record
from surgery_cli.proof.surgery_json import versions
from surgery_cli.settings.run import Options
from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.store.write.bucket_leftovers import BucketLeftover, bucket_leftovers
from surgery_cli.store.write.item_plan import is_packed
from surgery_cli.store.write.journal import Head
from surgery_cli.store.write.leftovers import Leftover, leftovers_of
from surgery_cli.store.write.owners import State
from surgery_cli.store.write.resumable_staging import Left, being_written
from surgery_cli.surgery.preparation import Prepared
from surgery_cli.words.invocation import the_same
from surgery_cli.words.lists import listed

_PART: Final = DigestPart()


def head_of(prepared: Prepared, options: Options) -> Head:
    """What this run makes, and by what.

    Raises:
        PlanError: nothing of it could be kept.
    """
    packed = [name for name, plan in prepared.plans.items() if is_packed(plan)]
    if packed:
        raise PlanError(
            f"`--resume` can keep nothing of {listed(packed, word='and')}"
            if any(packed)
            else "`--resume` can keep nothing of this",
            why="its values stand in one file, which is written in one go at the end",
            fix="leave `--resume` out",
        )
    location = prepared.checkpoint.location
    compact = [name for name, chosen in prepared.compact.items() if chosen]
    settings = {
        "which checkpoint": f"{location.shape} {location.step_name} {sorted(location.items)}",
        "--item": str(options.item),
        "--as-step": str(options.as_step),
        "--link": options.link,
        "--compact": f"{options.compact} {compact}",
        "--device": options.device,
        "--mesh": str(options.mesh),
    }
    count = sum(
        leaf.spec.bytes if leaf.is_read_whole else leaf.written_bytes
        for plan in prepared.plans.values()
        for leaf in plan.computed
        if is_repeatable(leaf.output.recipe)
    )
    programs = {"surgery": __version__, **versions()}
    return Head(prepared.draft.digest, programs, settings, the_same(), count)


def find_kept(
    target: Path, prepared: Prepared, head: Head, *, stale: bool
) -> Leftover | BucketLeftover | None:
    """What an earlier run of the same command has kept of the destination; None if there is nothing.

    ``stale``: what is of another machine is of a run that is over.

    Raises:
        DestinationError: the run that keeps it may be at work.
        PlanError: it was made by another version of the program, or under other settings.
        CheckpointError: it is of another draft, or of sources that have changed.
    """
    found = None
    for left in _leftovers_of(target):
        journal = left.journal
        if journal is None or journal.head is None:
            continue
        _refuse_living(left, target, stale=stale)
        _refuse_another(left, journal.head, head, prepared, target)
        found = left
    return found


def refuse_finished(target: Path, prepared: Prepared) -> None:
    """Say so where the destination is what this very command makes.

    Raises:
        DestinationError: an earlier run has finished it.
    """
    try:
        record = read_record(open_checkpoint(str(target)))
    except SurgeryError:
        return
    if record is None or record.draft != prepared.draft.digest:
        return
    left = _leftovers_of(target)
    clean = f"; `surgery clean {quote(str(target))}` removes what is left beside it" if left else ""
    raise DestinationError(
        f"'{target}' is complete",
        why="it is what this command makes: an earlier run has finished it",
        fix=f"nothing is left to be done{clean}; `--force` makes it anew",
    )


def _leftovers_of(target: Path) -> Sequence[Leftover | BucketLeftover]:
    if not isinstance(target, BucketPath):
        return leftovers_of(target)
    return [left for left in bucket_leftovers(target) if left.destination == target]


def _refuse_living(left: Leftover | BucketLeftover, target: Path, *, stale: bool) -> None:
    state = State.UNKNOWN if left.owner is None else left.owner.state
    if state is State.LIVING:
        raise being_written(left)
    if state is State.DEAD or stale:
        return
    of = f" of '{left.owner.host}'" if left.owner and left.owner.host else ""
    raise DestinationError(
        f"a run{of} that cannot be looked at from here has '{left.path}'",
        why="it may still be writing: another machine, or this one before it was started anew",
        fix=f"if it is over, add `--stale` to go on from there; `surgery clean {quote(str(target))} --stale`"
        " removes it",
    )


def _refuse_another(left: Left, kept: Head, head: Head, prepared: Prepared, target: Path) -> None:
    """See that what was kept is of this very draft, this program and these settings."""
    remedy = f"{kept.command} goes on with what was kept; `surgery clean {quote(str(target))}` removes it"
    if kept.draft != head.draft:
        raise _of_another_draft(left, kept.draft, head.draft, prepared, remedy)
    for what, ours, theirs in (
        ("version", head.programs, kept.programs),
        ("setting", head.settings, kept.settings),
    ):
        other = _differing(ours, theirs)
        if other:
            raise PlanError(
                f"what is kept in '{left.path}' was made by another {what}",
                why="; ".join(
                    f"{name}: {theirs.get(name, 'none')}, and {ours.get(name, 'none')} now"
                    for name in other
                ),
                fix=f"blocks of both would stand in one result: {remedy}",
            )


def _differing(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    return [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]


def _of_another_draft(
    left: Left, kept: str, draft: str, prepared: Prepared, remedy: str
) -> SurgeryError:
    why = f"it was {kept}, and is {draft} now"
    if kept[_PART.source] != draft[_PART.source]:
        root = prepared.checkpoint.location.root
        return CheckpointError(
            f"'{root}' is not what it was when '{left.path}' was begun", why=why, fix=remedy
        )
    same_names = kept[_PART.donor_names] == draft[_PART.donor_names]
    if same_names and kept[_PART.donors] != draft[_PART.donors]:
        return CheckpointError(
            f"a donor is not what it was when '{left.path}' was begun", why=why, fix=remedy
        )
    return CheckpointError(
        f"what is kept in '{left.path}' is of another draft",
        why=f"{why}: the plan, or an option, is another",
        fix=remedy,
    )
