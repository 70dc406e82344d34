"""What a path that names something broken holds: a tree, or trees by the names of items."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from surgery_cli.errors import CheckpointError, PlanError
from surgery_cli.inputs.json_decoding import decode_json
from surgery_cli.salvage.file import format_of_broken
from surgery_cli.salvage.item import is_item
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import is_leftover, step_name, unfinished_name
from surgery_cli.store.filesystem.small_files import read_small
from surgery_cli.store.locate.items import STEP_METADATA, step_metadata
from surgery_cli.words.lists import quoted


def is_understood(file: Path) -> bool:
    """True unless it is a file about the step that breaks off: readers are better off without it."""
    if file.name != STEP_METADATA or not filesystem.is_file(file):
        return True
    try:
        return isinstance(decode_json(read_small(file)), dict)
    except (msgspec.MsgspecError, ValueError):
        return False


class BrokenPlace(msgspec.Struct, frozen=True):
    """Where the trees of a broken checkpoint are, by the names of their items; '' for one without.

    ``others`` stand beside the trees: metrics, and files about the step. ``lost`` are items of which nothing is left,
    and why that is known.
    """

    root: Path
    items: dict[str, Path]
    others: list[Path] = []
    lost: dict[str, str] = {}


def find_broken(path: Path) -> BrokenPlace:
    """The trees that stand, or stood, at a path, under whatever name a save has left them.

    Raises:
        PlanError: nothing stands there, or several steps do.
        CheckpointError: nothing is left of a tree.
    """
    if not filesystem.exists(path) and (step := _step_of(path)) is not None:
        return find_broken(step)
    if filesystem.is_file(path) and format_of_broken(path) is not None:
        root = filesystem.real(path)
        return BrokenPlace(root, {"": root})
    if not filesystem.is_folder(path):
        what = "is no directory" if filesystem.exists(path) else "does not exist"
        raise PlanError(
            f"'{path}' {what}",
            fix="name what is left of a checkpoint: its directory, or a file of msgpack, safetensors or npz",
        )
    root = filesystem.real(path)
    while is_leftover(root.name) and len(inside := _folders(root)) == 1:
        root = inside[0]  # where surgery was building
    if is_item(root):
        own = [root / name for name in _STEP_FILES if filesystem.is_file(root / name)]
        return BrokenPlace(root, {"": root}, own)
    trees = [folder for folder in _folders(root) if is_item(folder)]
    if len([folder for folder in trees if filesystem.is_file(folder / STEP_METADATA)]) > 1:
        raise _several(path, trees)
    if trees:
        return _step(root, {unfinished_name(tree.name) or tree.name: tree for tree in trees})
    steps = [folder for folder in _folders(root) if any(map(is_item, _folders(folder)))]
    if len(steps) == 1:
        return find_broken(steps[0])
    if steps:
        raise _several(path, steps)
    raise CheckpointError(
        f"nothing of a tree of leaves is left in '{path}'",
        why="no database, no folder of a leaf, and no metadata stands in it or one level below",
        fix="name the directory that a save, or a copy, has left",
    )


def _several(path: Path, places: list[Path]) -> PlanError:
    return PlanError(
        f"'{path}' is no one checkpoint",
        why=f"trees stand in {quoted((place.name for place in places), 4, word='and')}",
        fix=f"name one of them, as '{places[-1]}'",
    )


def _step_of(path: Path) -> Path | None:
    """The step that `ROOT@N` names, finished or not."""
    front, at, number = path.name.rpartition("@")
    root = path.with_name(front) if front else path
    if not at or not number.isdecimal() or not filesystem.is_folder(root):
        return None
    for folder in _folders(root):
        step = step_name(unfinished_name(folder.name) or folder.name)
        if step is not None and step.number == int(number):
            return folder
    return None


def _step(root: Path, items: dict[str, Path]) -> BrokenPlace:
    """A step with these trees; what else stands in it, or should."""
    others, lost = [], {}
    for name in filesystem.names(root):
        place = root / name
        if place in items.values():
            continue
        if not filesystem.is_folder(place):
            others.append(place)
            continue
        files = filesystem.files_below(place)
        empty = [file for file in files if not filesystem.size(file)]
        if unfinished_name(name) is not None:
            lost[unfinished_name(name) or name] = "its save was not finished, and it is no tree"
        elif not files or empty:
            what = f"'{Path(empty[0]).name}' is" if empty else "its folder is"
            lost[name] = f"{what} empty"
        else:
            others.append(place)
    there = {*items, *lost, *(other.name for other in others)}
    recorded, _ = step_metadata(root) if filesystem.is_file(root / STEP_METADATA) else ({}, "")
    handlers = (recorded or {}).get("item_handlers")
    for name in handlers if isinstance(handlers, dict) else ():
        if name not in there:
            lost[name] = "it is on record, and nothing of it is there"
    return BrokenPlace(root, items, others, lost)


_STEP_FILES = (STEP_METADATA, "orbax.checkpoint")


def _folders(folder: Path) -> list[Path]:
    return [folder / entry.name for entry in filesystem.entries_if_any(folder) if entry.is_folder]


def fingerprint(root: Path) -> str:
    """A digest of the names, sizes and times of all files: it changes when somebody writes there."""
    record = hashlib.sha256()
    filesystem.forget(root)
    for file in sorted(filesystem.files_below(root)):
        status = filesystem.status(file)
        line = f"{file.removeprefix(f'{root}/')}\0{status.st_size}\0{status.st_mtime_ns}\n"
        record.update(line.encode(errors="surrogateescape"))
    return f"sha256:{record.hexdigest()}"
