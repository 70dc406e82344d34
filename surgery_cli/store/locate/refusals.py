"""What is not a checkpoint, or not a whole one: an error of three lines that says what it is.

Everything here is told from names and first bytes; nothing is ever unpickled.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from shlex import quote
from typing import Final

from surgery_cli.errors import CheckpointError, LeftBehindError, MissingError, SurgeryError
from surgery_cli.inputs.suffixes import PICKLE_SUFFIXES
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import Listing, holds_pytree, holds_t5x, removal_of
from surgery_cli.store.filesystem.names import (
    SET_ASIDE_SUFFIX,
    STAGING_MARK,
    destination_of,
    is_leftover,
    step_name,
    unfinished_name,
)
from surgery_cli.store.filesystem.processes import State
from surgery_cli.store.filesystem.protocol import COMMIT_MARK
from surgery_cli.store.locate.being_written import (
    claim_in,
    claim_on,
    claimed,
    is_built_in,
    is_marked,
    refuse_locked,
    refuse_locked_in,
    refuse_moving,
    seen_before,
)
from surgery_cli.store.locate.file_formats import is_torch_archive
from surgery_cli.store.locate.foreign_files import (
    READ_FORMATS,
    TENSORFLOW_HELP,
    describe_file,
)
from surgery_cli.store.locate.lfs_pointers import is_pointer, pointer
from surgery_cli.store.locate.steps import checkpoints_in
from surgery_cli.store.orbax.sidecars import AGGREGATE
from surgery_cli.store.orbax.unmerged import holds_data, unmerged
from surgery_cli.tree.nearness import nearest
from surgery_cli.words.lists import quoted

_DELETION_RECORD: Final = "_CHECKPOINT_DELETION"


def missing(path: Path) -> SurgeryError:
    """The error for a path at which nothing stands: names what is there instead."""
    parent = path.parent
    while not filesystem.is_folder(parent) and parent != parent.parent:
        parent = parent.parent
    try:
        names = filesystem.names(parent)
    except OSError:
        names = []
    lost = parent / path.relative_to(parent).parts[0]  # it, or what it would lie in
    set_aside = lost.name + SET_ASIDE_SUFFIX
    if set_aside in names:
        return CheckpointError(
            f"'{lost}' is not there, but '{set_aside}' is",
            why="a run that was to replace it was interrupted between setting the old one aside and moving the "
            "new one in",
            fix=f"`mv '{lost}{SET_ASIDE_SUFFIX}' '{lost}'` brings the old one back",
        )
    if built := _built_at(lost, names):
        return _interrupted(lost, built)
    unfinished = [name for name in names if unfinished_name(name) == lost.name]
    if unfinished:
        return CheckpointError(
            f"'{lost}' was never finished: only '{unfinished[0]}' is there",
            why="the save that wrote it was interrupted before it was whole",
            fix=f"see which leaves of it are whole: `surgery rescue {quote(str(parent / unfinished[0]))}`",
        )
    run, at, _ = path.name.rpartition("@")
    if at and run in names:
        return MissingError(
            f"'{path}' does not exist",
            why="what stands behind `@` names no step",
            fix=f"a step is named by its number, `{quote(str(parent / run))}@N`, and the newest by `@latest`",
        )
    visible = [name for name in names if not name.startswith(".")]
    close = nearest(lost.name, visible) or sorted(visible)[:3]
    said = ", ".join(f"'{parent / name}'" for name in close)
    return MissingError(
        f"'{path}' does not exist",
        why=f"'{parent}' is the last part of it that does" if parent != path.parent else "",
        fix=f"near it: {said}" if said else f"'{parent}' is empty",
    )


def _built_at(path: Path, names: Iterable[str]) -> list[Path]:
    """Of the names beside a path, what runs of ours build there, or have left."""
    return [path.with_name(n) for n in names if n.startswith(f".{path.name}{STAGING_MARK}")]


def refuse_built(path: Path) -> None:
    """Refuse what is not there yet, or never came, as a run of ours is to write it.

    Raises:
        SurgeryError: so.
    """
    if built := _built_at(path, (one.name for one in filesystem.entries_if_any(path.parent))):
        raise _interrupted(path, built)


def _refuse_built_in(folder: Path) -> None:
    """The same for all that is to be written into a folder."""
    for name in filesystem.names(folder):
        new = destination_of(folder / name)
        if new.name != name and not is_marked(new):
            refuse_built(new)


def _interrupted(path: Path, built: Sequence[Path]) -> SurgeryError:
    """The error for a destination at which nothing stands, while something beside it is of a run that was to."""
    claim = claim_on(path, built)
    if claim is not None and claim.state is not State.DEAD:
        return claimed(claim)
    what = f"'{path}' does not exist: the run that was to write it did not end"
    if claim is not None and not filesystem.renames(path):  # its lock keeps others away
        return MissingError(what, why=claim.why, fix=f"{claim.fix}; then run it again")
    return MissingError(
        what,
        why=f"beside it stands what that run had made, '{built[0].name}'; it was never verified",
        fix=f"run it again; `surgery clean {quote(str(path))} --dry-run` says what can be gone on from",
    )


def refuse_unfinished(path: Path, *, below: Path | None = None) -> None:
    """Refuse what was never finished, by the names on the way to it and the records inside.

    In ``refuse_uncommitted`` what stands inside tells, where Orbax asks for it. With ``below``, the names on the way to
    that directory have been judged already.

    Raises:
        CheckpointError: the path lies in an unfinished save or in a leftover of surgery, or a deletion in it was
            interrupted.
    """
    judged = () if below is None else (below, *below.parents)
    for part in (path, *path.parents):
        if part in judged:
            break
        if unfinished_name(part.name) is not None:
            raise CheckpointError(
                f"'{part}' is an unfinished save",
                why="Orbax takes the suffix away once everything is written; what is inside may be incomplete",
                fix=f"use an earlier step, or see what is whole: `surgery rescue {quote(str(part))}`",
            )
        if is_built_in(part):
            claim = claim_in(part)
            if claim is not None and claim.state is not State.DEAD:
                raise claimed(claim, path)
            raise LeftBehindError(
                f"'{part}' is where an interrupted run of surgery was building",
                why="it was never verified or moved into place",
                fix=f"run the edit again; `surgery clean {quote(str(part))}` removes it if no run is still going;"
                f" {seen_before(part)}",
            )
        if part.name.endswith(SET_ASIDE_SUFFIX):
            whole = part.with_name(part.name.removesuffix(SET_ASIDE_SUFFIX))
            raise CheckpointError(
                f"'{part}' was set aside by a run of surgery",
                why=f"it is the checkpoint that '{whole.name}' was to replace, or what else came to that",
                fix=f"`{removal_of(part)}` if '{whole.name}' is good, else `mv` it to a name of its own"
                if filesystem.exists(whole)
                else f"`mv '{part}' '{whole}'` brings it back",
            )
    for folder in (path, path.parent):
        if filesystem.is_file(folder / _DELETION_RECORD):
            raise CheckpointError(
                f"deleting an item of '{folder}' was interrupted",
                why=f"its record '{_DELETION_RECORD}' is still there, so items and metadata may disagree",
                fix="finish the deletion with Orbax (`orbax.checkpoint.v1.delete`), or use another step",
            )


def refuse_uncommitted(path: Path, *others: Path) -> None:
    """Refuse what Orbax takes for unfinished on services that know no renaming: none of the folders has the mark.

    Where it asks for none, refuse what a run of ours is writing.

    Raises:
        CheckpointError: so.
    """
    if filesystem.renames(path):
        return
    refuse_locked(path, *others)
    if filesystem.is_file(
        path
    ):  # the step of a Flax run: it comes whole, and nothing can stand in it
        return
    refuse_locked_in(path)  # items of it, which its own mark says nothing of
    if is_marked(path, *others):
        return
    if filesystem.needs_commit_mark(path) and not holds_t5x(path):
        refuse_moving(path, *others)
        raise CheckpointError(
            f"'{path}' is an unfinished save",
            why=f"Orbax writes '{COMMIT_MARK}' last into what it saves there, and it is missing",
            fix="use an earlier step; if this is a whole copy of a finished checkpoint, put an empty file of that"
            " name into it: Orbax needs it, too",
        )


def one_of_many(file: Path) -> CheckpointError:
    """The error for a file of a checkpoint that is a directory."""
    return CheckpointError(
        f"'{file}' is one file of a checkpoint",
        why="the directory that it stands in is the checkpoint",
        fix=f"name '{file.parent}'",
    )


def describe_directory(listing: Listing) -> CheckpointError:
    """The error for a directory in which no checkpoint was found, told from its names."""
    path, files = listing.path, listing.files
    _refuse_built_in(path)
    for name in sorted(files)[:1000]:
        if is_pointer(path / name):
            return pointer(path / name, path)
    what, why, fix = f"'{path}' is not a checkpoint", "", ""
    if listing.is_empty:
        what, fix = f"'{path}' is empty", "name the directory that holds the checkpoint"
    elif "saved_model.pb" in files or any(n.endswith(".index") or ".data-0" in n for n in files):
        what = f"'{path}' is a TensorFlow {'SavedModel' if 'saved_model.pb' in files else 'checkpoint'}"
        why = READ_FORMATS
        fix = TENSORFLOW_HELP
    elif holds_data(listing):
        if (error := unmerged(path)) is not None:
            return error
        what = f"'{path}' holds a store's data without its 'manifest.ocdbt'"
        why = "the store is unfinished or was copied in part"
        fix = "copy it again from where it is whole, or use another step"
    elif AGGREGATE in files and not filesystem.size(path / AGGREGATE):
        what = f"'{path / AGGREGATE}' is empty"
        why = "older releases of Orbax and Flax keep the values in this file"
        fix = "copy it again from where it is whole, or use another step"
    elif holds_pytree(Listing.of(path.parent)):
        what = f"'{path}' is one part of a checkpoint"
        why, fix = "the directory that it stands in is the checkpoint", f"name '{path.parent}'"
    else:
        if (error := _holds_file(path, files)) is not None:
            return error
        telling = sorted(n for n in files if Path(n).suffix in (*PICKLE_SUFFIXES, ".h5", ".keras"))
        if telling:
            inside = describe_file(path / telling[0])
            return CheckpointError(
                f"'{path}' is not an Orbax checkpoint: {inside.problems[0].what}",
                why=inside.problems[0].why,
                fix=inside.problems[0].fix,
            )
        below = _checkpoints_below(listing)
        why = "it has no step, no item and no tree that Orbax or Flax would know"
        if below:
            why = "it holds checkpoints: " + quoted((path / name for name in below), 3)
        fix = "name one of them" if below else "name a checkpoint, a step or an item"
    return CheckpointError(what, why=why, fix=fix)


def _holds_file(path: Path, files: Collection[str]) -> CheckpointError | None:
    """The error for a directory that holds a file which is a checkpoint of its own."""
    for name in sorted(files):
        if name.endswith(".msgpack"):
            kind = "a Flax msgpack file"
        elif Path(name).suffix in PICKLE_SUFFIXES and is_torch_archive(path / name):
            kind = "a PyTorch file"
        else:
            continue
        return CheckpointError(
            f"'{path}' is not an Orbax checkpoint, but holds '{name}'",
            why=f"{kind} is a checkpoint of its own",
            fix=f"name '{path / name}'",
        )
    return None


def _checkpoints_below(listing: Listing) -> list[str]:
    """Folders that are checkpoints, or hold some."""
    found = []
    for name in sorted(listing.folders)[:200]:
        if is_leftover(name) or unfinished_name(name) is not None:
            continue
        inside = Listing.of(listing.path / name)
        has_steps = any(step_name(n) for n in inside.folders)
        is_one = "_CHECKPOINT_METADATA" in inside.files or holds_pytree(inside)
        if has_steps or is_one or checkpoints_in(inside):
            found.append(name)
    return found
