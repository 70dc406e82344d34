"""What a run reads and where it writes: neither may be the other, and the one must stand until the run is done."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from shlex import quote

from surgery_cli.errors import (
    BeingWrittenError,
    CheckpointError,
    DestinationError,
    LeftBehindError,
    Problem,
    RemovedError,
    SurgeryError,
    UnseenError,
)
from surgery_cli.inputs.addresses import destination_address
from surgery_cli.inputs.buckets import BucketPath, path_at
from surgery_cli.script.user_code import Say
from surgery_cli.store import filesystem
from surgery_cli.store.files.array_file import ArrayFile
from surgery_cli.store.filesystem.bucket_locks import claim_of, lock_around
from surgery_cli.store.filesystem.names import destination_of, step_name
from surgery_cli.store.filesystem.processes import State
from surgery_cli.store.locate.argument import refuse_step_of_run
from surgery_cli.store.locate.being_written import is_marked
from surgery_cli.store.locate.location import locate
from surgery_cli.store.open.as_opened import changed_while_read
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.write.aftermath import with_aftermath
from surgery_cli.store.write.commit_marks import is_unfinished
from surgery_cli.store.write.destination import (
    already_there,
    being_written,
    check_address,
    check_destination,
    claimed,
)
from surgery_cli.store.write.half_replaced import half_replaced
from surgery_cli.store.write.inventory import inventory_at
from surgery_cli.store.write.set_aside import recover_old, set_aside_of
from surgery_cli.surgery.others_inside import refuse_to_lose_others
from surgery_cli.surgery.places_read import places_read
from surgery_cli.surgery.preparation import Prepared
from surgery_cli.surgery.put_into import refuse_misplaced
from surgery_cli.surgery.removal_advice import is_stood_in, or_removed_first
from surgery_cli.words.advice import NOTHING_LEFT, worded
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage


def check_target(
    target: Path, prepared: Prepared, *, force: bool, built: Path | None = None
) -> None:
    """Nothing that is read may be written: not the source, and no donor; and nothing but a checkpoint is replaced.

    ``built``: where in a bucket an earlier run stands from which this one goes on; it may have begun to replace.

    Raises:
        DestinationError: the destination cannot be used.
    """
    if prepared.output is None and prepared.checkpoint.location.shape != "file":
        check_address(target)
    filesystem.look_ahead(target, around=True)
    _refuse_inside_of_what_is_written(target)
    try:
        for source, *other_places in places_read(target, prepared):
            check_destination(target, source, *other_places)
        has_put = built is not None and inventory_at(built) is not None  # it is looked at by that
        if built != target and filesystem.is_taken(target) and not has_put:
            _check_what_stands_at(target, force=force, goes_on=built is not None)
    except DestinationError as error:
        raise with_aftermath(_or_mixed(target, error)) from None
    refuse_misplaced(target, prepared)
    if force and filesystem.is_taken(target) and (old := set_aside_of(target)) is not None:
        raise DestinationError(
            f"'{old}' stands beside '{target}'",
            why="that is the name of what `--force` sets aside until it is done; is it still wanted?",
            fix=f"remove it, or give it another name: `mv {quote(str(old))} NAME`",
        )


def _refuse_inside_of_what_is_written(target: Path) -> None:
    """Refuse a place in a run, or a step, in a bucket that another run has, or has left: it would not last.

    What a dead run was to replace, and has not begun to, may get something all the same: its marks are there.

    Raises:
        DestinationError: so; it says whose that is, and what finishes or removes it.
    """
    around = target.parent
    if not isinstance(around, BucketPath) or not around.key or not filesystem.is_folder(around):
        return
    if (lock := lock_around(around, levels=2)) is None:
        return
    if (mixture := half_replaced(destination_of(lock))) is not None:
        raise DestinationError(mixture)
    with suppress(FileNotFoundError):
        is_over = claim_of(lock).state is State.DEAD
        steps = [around / name for name in filesystem.names(around) if step_name(name) is not None]
        if not is_over or not is_marked(around, *steps):
            raise claimed(lock)


def _or_mixed(target: Path, error: DestinationError) -> DestinationError:
    """What is wrong with a destination; of one that is half replaced, where the checkpoint is that is whole."""
    mixture = half_replaced(target)
    return error if mixture is None else DestinationError(mixture)


def _check_what_stands_at(target: Path, *, force: bool, goes_on: bool = False) -> None:
    """Refuse to replace it, but with ``force`` a checkpoint; ``goes_on``: who has the lock has put nothing there."""
    if not goes_on and (claim := being_written(target)):  # what that run has built
        raise claim
    reason = _kept_by_force(target, goes_on=goes_on)
    if not reason and is_stood_in(target):
        raise DestinationError(
            f"the destination '{target}' exists, and this command runs in it",
            why="once it is replaced, who is in it, as your shell, is in a directory that is gone",
            fix="name another place, or `cd` out of it first",
        )
    if not force and not reason:
        raise already_there(target, goes_on=goes_on)
    if reason:
        raise DestinationError(
            f"`--force` would remove '{target}', which is not one checkpoint that can be read"
            if force
            else f"the destination '{target}' exists, and is not one checkpoint that can be read",
            why=reason,
            fix=or_removed_first(target),
        )
    refuse_to_lose_others(target)


def _kept_by_force(target: Path, *, goes_on: bool = False) -> str:
    """Why not even ``--force`` replaces what stands there; an empty directory or a link may go."""
    if filesystem.is_link(target):
        return ""
    if filesystem.is_folder(target) and not filesystem.entries(target):
        return ""
    try:
        locate(str(filesystem.absolute(target)), staging=goes_on)  # the lock is this run's
    except (BeingWrittenError, LeftBehindError) as error:  # it, or an item in it
        raise DestinationError.of(_written(error)) from None
    except UnseenError:
        raise
    except SurgeryError as error:
        problem = error.problems[0]
        return problem.what + (f"; {problem.why}" if problem.why else "")
    if goes_on and is_unfinished(target):
        return "it is unfinished: something else may be saving there"
    return ""


def _written(error: CheckpointError) -> Sequence[Problem]:
    """What is said of a run that is writing something, or was; of what is half replaced, where the whole one is."""
    mixture = half_replaced(path_at(error.problems[0].path)) if error.problems[0].path else None
    return error.problems if mixture is None else [mixture]


def _is_checkpoint(path: Path) -> bool:
    try:
        locate(str(path), staging=True)
    except UnseenError:
        raise
    except SurgeryError:
        return False
    return True


def path_of(destination: str, *, may_renumber: bool = True) -> Path:
    """The path of the destination, at which is looked anew: where that takes requests, they are under way now.

    ``may_renumber``: the command has an ``--as-step``.

    Raises:
        DestinationError: it is empty, an address of elsewhere, or reads as a step of a run.
    """
    if not destination:  # an empty path would be the working directory
        raise DestinationError(
            "the path of the destination is empty", fix="name the directory that is to be made"
        )
    path = path_at(destination_address(destination, refusal=DestinationError))
    if isinstance(path, BucketPath) and not path.key:
        raise DestinationError(
            f"'{destination}' is a whole bucket",
            why="a result has a name of its own in one",
            fix=f"e.g. `{path.scheme}://{path.bucket.partition('@')[0]}/runs/new`",
        )
    refuse_step_of_run(str(path), may_renumber=may_renumber)
    _refuse_way_through_nothing(path)
    if path.name in ("", ".."):  # what stands beside it is called by its name
        path = filesystem.absolute(path)
    filesystem.forget(path, but_begun=True)
    filesystem.look_ahead(path)
    return path


def _refuse_way_through_nothing(path: Path) -> None:
    """Behind what is not there, `..` leads nowhere for the system, and elsewhere for who reads the words alone."""
    parts = path.parts
    if isinstance(path, BucketPath) or ".." not in parts:
        return
    ways = (Path(*parts[: at + 1]) for at, part in enumerate(parts) if part == "..")
    lost = next((way.parent for way in ways if not filesystem.is_folder(way)), None)
    if lost is not None:
        raise DestinationError(
            f"the way to '{path}' leads through '{lost}', which is no directory",
            why="`..` behind it leads nowhere",
            fix="name the destination without it, or make that directory first",
        )


def restore_set_aside(target: Path, prepared: Prepared, say: Say) -> Path | None:
    """Give back its name to what an interrupted ``--force`` set aside, and say so at once; to a checkpoint only."""
    set_aside = set_aside_of(target)
    sources = [filesystem.real(source.place_on_disk) for source in prepared.sources.values()]
    if set_aside is None or filesystem.real(set_aside) in sources or not _is_checkpoint(set_aside):
        return None
    restored = recover_old(target)
    if restored is not None:
        said = (
            f"restored '{restored}', which an interrupted run had set aside as '{set_aside.name}'"
        )
        say(Consequence(DocsPage.FORCE, said))
    return restored


def look_anew(prepared: Prepared) -> None:
    """What was seen of the sources is looked up again: where that takes requests, they are under way now."""
    for source in prepared.sources.values():
        filesystem.forget(source.place_on_disk)
        filesystem.look_ahead(source.place_on_disk, around=True)


def check_there(prepared: Prepared) -> None:
    """The source and every donor, as they were looked at, must stand where they stood when the draft was made.

    Raises:
        CheckpointError: one of them is gone: an old step that a training script has deleted, say.
    """
    for source in prepared.sources.values():
        is_tree = isinstance(source, Checkpoint)
        places = source.location.items.values() if is_tree else [source.place_on_disk]
        for place in places:
            if not filesystem.exists(place):
                raise CheckpointError(
                    f"'{place}' is gone",
                    why="it was removed or moved while it was read",
                    fix=worded("{}; put it back, or name another checkpoint or step", NOTHING_LEFT),
                )


def check_unchanged(prepared: Prepared, *, as_seen: bool = False) -> None:
    """The source and every donor, and every function of the user's, must be what they were when the draft was made.

    ``as_seen``: since the last byte of them was read, ``look_anew`` was called.

    Raises:
        CheckpointError: one of them is gone, or has changed.
    """
    if not as_seen:
        look_anew(prepared)
    check_there(prepared)
    prepared.functions.check_unchanged()
    for source in prepared.sources.values():
        _check_source(source)


def check_standing(prepared: Prepared, error: Exception) -> None:
    """Of a run that failed: what is gone, or another by now, may have been taken for damage.

    Where what was built is gone, whoever exchanged the run that is read has taken it along: a new step stands in it.
    Where the sources cannot be looked at any more, that tells nothing of them, and ``error`` is what is to be said.

    Raises:
        CheckpointError: a source is not what it was when the draft was made.
    """
    is_removed = isinstance(error, RemovedError | FileNotFoundError)
    with suppress(OSError):
        look_anew(prepared)
        check_there(prepared)
        for source in prepared.sources.values():
            if is_removed or isinstance(source.place_on_disk, BucketPath):
                _check_source(source)
            elif isinstance(source, Checkpoint) and source.has_changed():
                raise changed_while_read(source.place_on_disk)


def _check_source(source: Checkpoint | ArrayFile) -> None:
    if source.is_unchanged(as_seen=True):  # by `check_there`
        return
    replaced = ""
    if isinstance(source, Checkpoint):
        with suppress(OSError, SurgeryError):
            replaced = source.first_replaced()
    raise changed_while_read(source.place_on_disk, replaced)
