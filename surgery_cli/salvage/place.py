"""What a path that names something broken holds: a tree, or trees by the names of items."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from surgery_cli.errors import CheckpointError, PlanError
from surgery_cli.proof.damaged_text import json_object
from surgery_cli.proof.side_items import fault_text, item_faults, root_file_fault
from surgery_cli.proof.side_values import value_faults
from surgery_cli.proof.step_metadata_file import step_faults
from surgery_cli.salvage.file import format_of_broken
from surgery_cli.salvage.item import is_item
from surgery_cli.salvage.steps import (
    folders_in,
    is_empty,
    nothing_left,
    several,
    step_name_of,
    step_named,
    steps_in,
)
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.names import is_leftover, step_name, unfinished_name
from surgery_cli.store.filesystem.protocol import COMMIT_MARK
from surgery_cli.store.locate.items import (
    STEP_METADATA,
    STEP_SIDECARS,
    handler_kind,
    step_metadata,
)
from surgery_cli.store.locate.refusals import missing
from surgery_cli.store.locate.steps import SURE_PREFIXES
from surgery_cli.store.write.half_replaced import mixture_around
from surgery_cli.tree.paths import LeafPath


def fault_beside(file: Path) -> str:
    """What is wrong with a file about the step, or one that leads nowhere: readers are better off without it."""
    if not filesystem.exists(file):
        return "it leads nowhere"
    if not filesystem.is_file(file):
        return ""
    if file.name != STEP_METADATA:
        return root_file_fault(file)
    _, fault = json_object(file)
    return fault or next((why for name, why in step_faults(file.parent) if name == file.name), "")


class BrokenPlace(msgspec.Struct, frozen=True):
    """Where the trees of a broken checkpoint are, by the names of their items; '' for one without.

    ``others`` stand beside the trees: metrics, and files about the step. ``lost`` are items of which nothing is left,
    or no tree and not what its handler asks for, and why that is known. ``no_trees`` are on record as such. ``run`` is
    the directory of steps that was named, where the step itself was not.
    """

    root: Path
    items: dict[str, Path]
    others: list[Path] = []
    no_trees: frozenset[str] = frozenset()
    lost: dict[str, str] = {}
    run: Path | None = None

    @property
    def name(self) -> str:
        """What it was called, or would have been once its save was done."""
        return unfinished_name(self.root.name) or self.root.name

    @property
    def has_several_trees(self) -> bool:
        """True if a step has, or had, several: paths of leaves begin with the item's name then."""
        return len(self.items) + len(self.lost.keys() - self.no_trees) > 1

    def path(self, item: str, inner: LeafPath) -> LeafPath:
        """A leaf's path in the whole tree: if the step has, or had, several, from the item's name on."""
        return LeafPath((item, *inner)) if self.has_several_trees else inner


def find_broken(path: Path) -> BrokenPlace:
    """The trees that stand, or stood, at a path, under whatever name a save has left them; of a run its only step.

    Raises:
        PlanError: nothing stands there, or several steps do.
        CheckpointError: nothing is left of a tree, or it is of two; or a living run is making what is missing.
    """
    if not filesystem.is_taken(path):
        if (step := step_named(path)) is not None:
            return msgspec.structs.replace(find_broken(step), run=filesystem.real(step.parent))
        raise missing(filesystem.absolute(path))
    if not filesystem.is_folder(path):
        return _file(path)
    root = filesystem.real(path)
    _refuse_mixture(root)
    while is_leftover(root.name) and len(inside := folders_in(root)) == 1:
        root = inside[0]  # where surgery was building
    if is_item(root):
        own = [root / name for name in STEP_FILES if filesystem.is_file(root / name)]
        return BrokenPlace(root, {"": root}, own)
    sides = _no_trees(_handlers(root))
    around = [folder for folder in folders_in(root) if folder.name not in sides]
    trees = [folder for folder in around if is_item(folder)]
    alone = [folder for folder in trees if filesystem.is_file(folder / STEP_METADATA)]
    if len(alone) > 1 and not filesystem.is_file(root / STEP_METADATA):  # into a step they were put
        raise several(path, trees)
    for tree in trees:
        _refuse_mixture(tree)
    if trees and not _are_steps(root, trees):
        return _step(root, {unfinished_name(tree.name) or tree.name: tree for tree in trees})
    return _of_run(path, root, around, trees)


def _file(path: Path) -> BrokenPlace:
    """A file that may break off."""
    if filesystem.is_file(path) and format_of_broken(path) is not None:
        root = filesystem.real(path)
        return BrokenPlace(root, {"": root})
    if is_empty(path) and step_name(path.name) is not None:
        raise nothing_left(path)
    raise PlanError(
        f"'{path}' is no directory",
        fix="name what is left of a checkpoint: its directory, or a file of msgpack, safetensors or npz",
    )


def _of_run(path: Path, root: Path, around: Iterable[Path], trees: Iterable[Path]) -> BrokenPlace:
    """The only step of a run, or the only thing in a folder that is, or holds, a tree."""
    steps = [root / step.name for step in steps_in(root)]
    others = [one for one in around if one not in steps]
    steps += [one for one in others if one in trees or any(map(is_item, folders_in(one)))]
    if len(steps) == 1:
        found = find_broken(steps[0])
        return msgspec.structs.replace(found, run=root) if step_name(found.name) else found
    if steps:
        raise several(path, steps)
    if is_empty(root) and step_name(root.name) is not None:
        raise nothing_left(path)
    raise CheckpointError(
        f"nothing of a tree of leaves is left in '{path}'",
        why="no database, no folder of a leaf, and no metadata stands in it or one level below",
        fix="name the directory that a save, or a copy, has left",
    )


def _are_steps(root: Path, trees: Iterable[Path]) -> bool:
    """True of trees that are whole steps, and no items of one: by their names, where nothing says that of a step."""
    own = step_name_of(root)
    if (own is not None and not own.prefix) or any(
        filesystem.is_file(root / name) for name in STEP_FILES
    ):
        return False
    named = map(step_name_of, trees)
    return all(one is not None and one.prefix in SURE_PREFIXES for one in named)


def _refuse_mixture(place: Path) -> None:
    if (mixture := mixture_around(place)) is not None:
        raise CheckpointError(mixture)


def _step(root: Path, items: dict[str, Path]) -> BrokenPlace:
    """A step with these trees; what else stands in it, or should."""
    others, lost = [], {}
    handlers = _handlers(root)
    for name in filesystem.names(root):
        place = root / name
        is_known = place in items.values() or (
            name in STEP_SIDECARS and filesystem.is_folder(place)
        )
        if is_known or is_leftover(name):  # what runs of ours build, or have left, is no part of it
            continue
        if not filesystem.is_folder(place):
            others.append(place)
            continue
        files = [file for file in filesystem.files_below(place) if Path(file).name != COMMIT_MARK]
        empty = [file for file in files if not filesystem.size(file)]
        if unfinished_name(name) is not None:
            lost[unfinished_name(name) or name] = "its save was not finished, and it is no tree"
        elif not files or empty:
            lost[name] = f"'{Path(empty[0]).name}' is empty" if empty else "it holds no file"
        elif name in handlers and (faults := list(item_faults(place, handlers[name]))):
            lost[name] = fault_text(*faults[0])
        else:
            others.append(place)
    there = {*items, *lost, *(other.name for other in others)}
    for name in handlers:
        if name not in there:
            lost[name] = "it is on record, and nothing of it is there"
    return BrokenPlace(root, items, others, _no_trees(handlers), lost)


def _handlers(step: Path) -> dict[str, str]:
    """Which handler wrote each item, as far as that is on record and understood."""
    if not filesystem.is_file(step / STEP_METADATA):
        return {}
    handlers = step_metadata(step)[0].get("item_handlers")
    found = handlers if isinstance(handlers, dict) else {}
    return {str(name): str(handler) for name, handler in found.items()}


def _no_trees(handlers: Mapping[str, str]) -> frozenset[str]:
    return frozenset(name for name, one in handlers.items() if handler_kind(one) == "other")


def whole_beside(step: Path) -> list[str]:
    """The items of a step that are no trees, and hold what Orbax's handler of each reads, as far as metadata tell."""
    handlers = _handlers(step)
    return [
        name
        for name in sorted(_no_trees(handlers))
        if filesystem.is_folder(step / name) and not any(item_faults(step / name, handlers[name]))
    ]


def undecodable_beside(place: BrokenPlace, memory_bytes: int) -> dict[str, str]:
    """The items beside the trees of which an array does not decode, by name, and why."""
    handlers = _handlers(place.root)
    found: dict[str, str] = {}
    for other in place.others:
        if other.name in handlers and filesystem.is_folder(other):
            for fault in value_faults(other, handlers[other.name], memory_bytes):
                found.setdefault(other.name, fault_text(*fault))
    return found


STEP_FILES: Final = (STEP_METADATA, "orbax.checkpoint")
"""Files about a step that may stand in a tree's own directory."""


def fingerprint(root: Path) -> str:
    """A digest of the names, sizes and times of all files: it changes when somebody writes there."""
    record = hashlib.sha256()
    filesystem.forget(root)
    for file in sorted(filesystem.files_below(root)):
        status = filesystem.status(file)
        line = f"{file.removeprefix(f'{root}/')}\0{status.st_size}\0{status.st_mtime_ns}\n"
        record.update(line.encode(errors="surrogateescape"))
    return f"sha256:{record.hexdigest()}"
