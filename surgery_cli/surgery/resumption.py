"""`--resume`: what an earlier run of the same command has kept, and whether this one may go on from there."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import NamedTuple

import msgspec

from surgery_cli import __version__
from surgery_cli.draft.expression import is_repeatable
from surgery_cli.errors import DestinationError, PlanError
from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.planning import Plan
from surgery_cli.proof.surgery_json import versions
from surgery_cli.settings.run import Options
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.bucket_locks import lock_of
from surgery_cli.store.filesystem.processes import State
from surgery_cli.store.write.aftermath import kept, kept_was_sought
from surgery_cli.store.write.bucket_leftovers import BucketLeftover
from surgery_cli.store.write.commit_marks import is_whole
from surgery_cli.store.write.dead_in_buckets import dead_at, leftovers_at
from surgery_cli.store.write.destination import claimed
from surgery_cli.store.write.half_replaced import half_replaced
from surgery_cli.store.write.item_plan import is_packed
from surgery_cli.store.write.journal import FORM, Head
from surgery_cli.store.write.leftovers import Left, Leftover
from surgery_cli.store.write.resumable_staging import being_written, what_is_kept
from surgery_cli.surgery.kept_inputs import inputs_of
from surgery_cli.surgery.kept_of_another import ITEM, refuse_another
from surgery_cli.surgery.preparation import Prepared
from surgery_cli.words.invocation import the_same
from surgery_cli.words.lists import listed, quoted


def head_of(prepared: Prepared, plan: Plan, options: Options) -> Head:
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
    compact = [name or "the tree" for name, chosen in prepared.compact.items() if chosen]
    named = (location.shape, location.step_name, *sorted(filter(None, location.items)))
    given = {
        "which checkpoint": ", ".join(map(str, filter(None, named))),
        ITEM: options.item,
        "--as-step": options.as_step,
        "--metrics": options.metrics,
        "--link": options.link,
        "--compact": options.compact,
        "items that are written compact": quoted(compact, word="and") if compact else None,
        "--device": options.device,
        "--mesh": options.mesh,
    }
    settings = {name: str(said) for name, said in given.items() if said is not None}
    count = sum(
        leaf.spec.bytes if leaf.is_read_whole else leaf.written_bytes
        for plan in prepared.plans.values()
        for leaf in plan.computed
        if is_repeatable(leaf.output.recipe)
    )
    programs = {"surgery": __version__, "journal": FORM, **versions()}
    inputs = inputs_of(prepared)
    said = msgspec.json.encode(plan.document()).decode()
    return Head(prepared.draft.digest, programs, settings, the_same(), count, inputs, said)


class Resumption(NamedTuple):
    """What a run goes on from.

    ``head`` is what it makes, if another one may go on from it; ``left`` what an earlier run has kept. ``built`` is
    where in a bucket an earlier one stands that this one goes on from, or removes.
    """

    head: Head | None
    left: Leftover | BucketLeftover | None
    built: Path | None


def resumption_of(target: Path, prepared: Prepared, plan: Plan, options: Options) -> Resumption:
    """What an earlier run to ``target`` has left there for this one.

    Raises:
        SurgeryError: see ``head_of`` and ``find_kept``; or a run has a destination in a bucket from which this one does
            not go on.
    """
    found = _resumption_of(target, prepared, plan, options)
    kept_was_sought()
    if found.left is None and isinstance(target, BucketPath):
        removes = options.force or options.resume
        if leftovers_at(target) and not (removes and dead_at(target, stale=options.stale)):
            mixture = half_replaced(target)
            with suppress(FileNotFoundError):  # it has ended meanwhile
                raise claimed(lock_of(target)) if mixture is None else DestinationError(mixture)
    return found


def _resumption_of(target: Path, prepared: Prepared, plan: Plan, options: Options) -> Resumption:
    if not options.resume:
        return Resumption(None, None, _dead_built(target, stale=False) if options.force else None)
    head = head_of(prepared, plan, options)
    left = find_kept(target, head, stale=options.stale)
    if left is None or left.journal is None:
        return Resumption(head, None, _dead_built(target, stale=options.stale))
    built = left.built if isinstance(left, BucketLeftover) else None
    if built is not None and left.journal.whole is not None and not is_whole(target):
        built = target  # it was about to take its place, or had begun to
    is_in_the_way = filesystem.is_taken(target) and built != target and not options.force
    command = the_same(*["--force"] * is_in_the_way)
    may_go = left.state not in (State.WHOLE, State.LOST)
    kept.append(what_is_kept(left.path, target, left.journal, command, may_go=may_go))
    return Resumption(head, left, built)


def _dead_built(target: Path, *, stale: bool) -> Path | None:
    """What a run to a bucket has built that is over, and nobody can go on from."""
    if not isinstance(target, BucketPath):
        return None
    return next((left.path for left in dead_at(target, stale=stale)), None)


def find_kept(target: Path, head: Head, *, stale: bool) -> Leftover | BucketLeftover | None:
    """What an earlier run of the same command has kept of the destination; None if there is nothing.

    ``stale``: what is of another machine is of a run that is over.

    Raises:
        DestinationError: the run that keeps it may be at work.
        PlanError: it was made by another version of the program, or under other settings.
        CheckpointError: it is of another draft, or of sources that have changed.
    """
    found = None
    for left in leftovers_at(target, anew=True):
        journal = left.journal
        if journal is None or journal.head is None:
            continue
        _refuse_living(left, target, stale=stale)
        refuse_another(left, journal.head, head, target)
        found = left
    return found


def _refuse_living(left: Left, target: Path, *, stale: bool) -> None:
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
