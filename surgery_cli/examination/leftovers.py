"""What runs of surgery have left in a run directory, or still build there."""

from __future__ import annotations

from shlex import quote

from surgery_cli.examination.footprint import Footprint
from surgery_cli.examination.places import Kind, Place
from surgery_cli.examination.states import Condition, State
from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.salvage.glance import Glance, glance
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import removal_of
from surgery_cli.store.filesystem.names import SET_ASIDE_SUFFIX, destination_of
from surgery_cli.store.filesystem.owners import is_staging, owner_of
from surgery_cli.store.filesystem.processes import State as RunState
from surgery_cli.store.write.dead_in_buckets import bucket_leftovers
from surgery_cli.store.write.half_replaced import half_replaced
from surgery_cli.store.write.leftovers import Left, Leftover, is_over
from surgery_cli.store.write.resumable_staging import amount_of, goes_on
from surgery_cli.store.write.strays import strays

_CANNOT_BE_TOLD = "whether the run that builds there still goes on cannot be told from here"


def leftover_condition(place: Place, seen: Footprint) -> Condition:
    """The condition of a staging place, or of what was set aside."""
    if place.kind is Kind.SET_ASIDE:
        return _set_aside(place, seen)
    path = place.path
    found: Left | None = None
    if isinstance(path, BucketPath):
        left: list[Left] = [*bucket_leftovers(path), *strays(path)]
        found = left[0] if left else None
    elif is_staging(path.name):
        found = Leftover(path, owner_of(path))
    if found is None:
        why = "it is called as a run of surgery calls what it builds, and nothing in it says whose it is"
        todo = "remove it if no run of `surgery` is still going"
        return Condition(
            place=place, state=State.LEFTOVER, of="surgery", seen=seen, why=[why], todo=todo
        )
    return _of_run(place, seen, found)


def _of_run(place: Place, seen: Footprint, found: Left) -> Condition:
    owner, run, journal = found.owner, found.state, found.journal
    who = "" if owner is None else f"process {owner.pid}"
    who += f" on {owner.host}" if owner is not None and owner.host else ""
    if run is RunState.LIVING:
        why = [f"{who} is building there"]
        return Condition(
            place=place, state=State.WRITING, of="surgery", seen=seen, why=why, todo="wait for it"
        )
    left = None if isinstance(place.path, BucketPath) else glance(place.path)
    is_dead = is_over(found)
    why = [f"{who}, which is gone, was building there" if is_dead else _CANNOT_BE_TOLD]
    clean = f"`surgery clean {quote(str(found.path))}{'' if is_dead else ' --stale'}`"
    resumed = [] if journal is None or journal.head is None else [goes_on(found)]
    has_replaced = run in (RunState.WHOLE, RunState.LOST)
    mixture = half_replaced(destination_of(found.path)) if has_replaced else None
    if mixture is not None:
        why.append(mixture.why)
        todo = (
            f"{mixture.fix}, before anything is removed" if run is RunState.WHOLE else mixture.fix
        )
    elif journal is not None and resumed:
        why.append(f"it keeps {amount_of(journal)}")
        todo = f"{resumed[0]}; {clean} removes it"
    else:
        todo = f"{clean} removes it"
    if run not in (RunState.DEAD, RunState.WHOLE, RunState.LOST):
        todo = f"if that run is over, {todo}"
    return _leftover(place, seen, left, why, f"{todo}{_with_leaves(left)}")


def _leftover(
    place: Place, seen: Footprint, left: Glance | None, why: list[str], todo: str
) -> Condition:
    """What a run of ours has left, and what to do about it."""
    return Condition(
        place=place,
        state=State.LEFTOVER,
        of="surgery",
        seen=seen,
        left=left if left is not None and left.leaves else None,
        why=why,
        todo=todo,
    )


def _with_leaves(left: Glance | None) -> str:
    """What whoever removes it should know before."""
    if left is not None and not left.whole and left.is_least:
        return "; not everything in it was searched for whole leaves"
    return f", with {left} that look whole" if left is not None and left.whole else ""


def _set_aside(place: Place, seen: Footprint) -> Condition:
    """The old destination of a run with `--force` that was interrupted."""
    whole = place.path.with_name(place.path.name.removesuffix(SET_ASIDE_SUFFIX))
    left = None if isinstance(place.path, BucketPath) else glance(place.path)
    old, new = quote(str(place.path)), quote(str(whole))
    if filesystem.exists(whole):
        todo = f"`{removal_of(place.path)}` once '{whole.name}' is known to be good{_with_leaves(left)}"
    else:
        todo = f"`mv {old} {new}` brings it back"
    why = [
        f"it is what '{whole.name}' was before an interrupted `--force`, or what else came to that"
    ]
    return _leftover(place, seen, left, why, todo)
