"""Which checkpoint an argument names: root, step, flat directory, item or file, and which step and items of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from surgery_cli.errors import CheckpointError, PlanError
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import Listing, holds_pytree
from surgery_cli.store.filesystem.names import StepName, step_name
from surgery_cli.store.locate import foreign_files, lfs_pointers, refusals
from surgery_cli.store.locate.argument import Argument
from surgery_cli.store.locate.being_written import locks_first, refuse_locked
from surgery_cli.store.locate.chosen_items import (
    ChosenItems,
    chosen_items,
    no_tree,
    single_file,
    single_tree,
)
from surgery_cli.store.locate.file_formats import (
    FILE_PHRASES,
    FOLDER_PHRASES,
    FileFormat,
    format_of_file,
    format_of_folder,
)
from surgery_cli.store.locate.items import StepItems, item_handlers
from surgery_cli.store.locate.step_formats import formats_text, step_formats
from surgery_cli.store.locate.steps import (
    FILES_OF_A_STEP,
    Step,
    belongs_to_root,
    beside_steps,
    find_steps,
    is_called_a_step,
    items_among,
    pick,
    refuse_mixture,
    refuse_several,
)

Shape = Literal["root", "step", "flat", "item", "file"]
"""``root``: steps side by side (CheckpointManager, v1, ``flax.training.checkpoints``). ``step``: one directory with
items. ``flat``: one directory with the tree at its root. ``item``: an item inside a step, named directly. ``file``:
Flax msgpack, NumPy's npz; safetensors or PyTorch, also a directory of shards."""


class Location(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint that was found. Nothing in it has been opened.

    ``root`` is the real path of what the argument names; ``step_directory`` the step (of a Flax root also the file)
    that was chosen, ``steps`` and ``step_names`` all that are finished. ``items`` are the trees to be edited, by item
    name; the name is '' where there is none. ``other_items`` come along unedited: metrics, JSON, random keys, and
    trees that ``--item`` did not choose. ``foreign`` are files and folders unknown to Orbax, in the root and in the
    step. ``in_step`` are the names of all that stood in the step, where items do. ``root_files`` stand beside the steps
    and belong to the root. ``unfinished`` are names of interrupted saves in the root. ``chosen`` is a phrase.
    """

    argument: str
    root: Path
    shape: Shape
    step_directory: Path | None = None
    step: int | None = None
    named_step: int | msgspec.UnsetType = msgspec.UNSET
    """The step of a root, where it was named, and is not the newest that there happens to be."""
    steps: list[int] = []
    step_names: list[str] = []
    step_name: str | None = None
    items: dict[str, Path]
    other_items: dict[str, Path] = {}
    foreign: list[Path] = []
    in_step: frozenset[str] = frozenset()
    root_files: list[Path] = []
    unfinished: list[str] = []
    prefix_items: bool = False
    """Several trees: the item's name is the first key of every path."""
    chosen: str

    @property
    def folder_of_items(self) -> Path | None:
        """The step's directory, where items are directories in it; None where the step itself is the one tree."""
        is_step = self.shape in ("root", "step") and self.step_directory not in self.items.values()
        return self.step_directory if is_step else None

    @property
    def address(self) -> str:
        """Text that opens it again: an absolute path, `ROOT@N` for a step of a root."""
        is_root = self.shape == "root" and self.step is not None
        return f"{self.root}@{self.step}" if is_root else str(self.root)

    @property
    def place_on_disk(self) -> Path:
        """The directory or file in which nothing may be written."""
        if self.shape == "item" and self.step_directory is not None:
            return self.step_directory
        return self.root


def locate(
    text: str, *, step: int | None = None, item: str | None = None, staging: bool = False
) -> Location:
    """Find the checkpoint that ``text`` names: a directory or file, or ``CKPT@N`` for step N of a root.

    An existing path wins over the reading ``@N``. ``step`` and ``item`` are the options of those names. ``staging``
    opens a directory in which surgery itself is building.

    Raises:
        PlanError: nothing stands there; there is no such step or item; ``step`` and ``@N`` disagree.
        CheckpointError: what stands there is not a checkpoint, or an unfinished one; or it is an address of elsewhere.
    """
    argument = Argument.read(text, step, item, is_staged=staging)
    if staging:
        return _located(argument)
    refusals.refuse_unfinished(argument.path)
    with locks_first(argument.path):
        location = _located(argument)
    match location.shape:
        case "file":  # which has no mark
            refuse_locked(location.root)
        case "item":
            refusals.refuse_uncommitted(location.root, location.root.parent)
        case _:  # of a root, finished steps alone are opened
            refusals.refuse_uncommitted(location.step_directory or location.root)
    return location


def _located(argument: Argument) -> Location:
    """What stands at the path of an argument."""
    path = argument.path
    if filesystem.is_file(path):
        return _file(argument)
    listing = Listing.of(path)
    if holds_pytree(listing):
        return _tree(argument, listing)
    if listing.files & FILES_OF_A_STEP:
        return _step(argument, listing)
    steps = find_steps(listing, is_staged=argument.is_staged)
    if steps and not is_called_a_step(listing, steps):
        return _root(argument, listing, steps)
    inside = items_among(listing, steps)
    if inside.pytrees:
        refuse_several(listing)
        return _step(argument, listing)
    listing.refuse_special()
    if (shards := format_of_folder(listing.files)) is not None:
        return _flat(argument, "file", ChosenItems({"": path}, FOLDER_PHRASES[shards]))
    raise _no_checkpoint(listing, inside)


def _file(argument: Argument) -> Location:
    path = argument.path
    if path.name == "checkpoint" and holds_pytree(Listing.of(path.parent)):
        raise refusals.one_of_many(path)
    found = format_of_file(path)
    if found is None or (found is FileFormat.SAFETENSORS and lfs_pointers.is_pointer(path)):
        raise foreign_files.describe_file(path)
    if found is FileFormat.FLAX:
        return _flat(argument, "file", single_file(path))
    return _flat(argument, "file", ChosenItems({"": path}, FILE_PHRASES[found]))


def _tree(argument: Argument, listing: Listing) -> Location:
    """A tree at the root of the directory: a flat checkpoint, or an item inside a step."""
    tree, path = single_tree(listing), argument.path
    parent = Listing.of(path.parent)
    handlers = item_handlers(parent)
    is_item = isinstance(handlers, dict) and not holds_pytree(parent)
    is_checkpoint = "_CHECKPOINT_METADATA" in listing.files
    if handlers is None and step_name(path.name) is None and not is_checkpoint:
        # Orbax up to 0.5.10 leaves nothing in a step but its items: the step's own name then tells.
        # Anybody may call a folder `run_3`: only steps of plain numbers are told from it.
        named = step_name(path.parent.name)
        is_item = named is not None and not named.prefix and not holds_pytree(parent)
    if argument.is_staged or not is_item:  # marks and records around what is built are not its own
        return _flat(argument, "flat", tree)
    name, step = path.name, step_name(path.parent.name)
    if argument.item not in (None, name):
        raise PlanError(
            f"'{argument.text}' is the item '{name}', and `--item {argument.item}` names another",
            fix=f"leave `--item` out, or name the step: '{path.parent}'",
        )
    phrase = f"item '{name}'" + (f" of step {step.number}" if step else "")
    chosen = replace(tree, items={name: path}, phrase=phrase)
    return _direct(argument, "item", path.parent, step, chosen)


def _flat(argument: Argument, shape: Shape, tree: ChosenItems) -> Location:
    """A checkpoint without named items, named directly."""
    argument.refuse_item()
    step = step_name(argument.path.name)
    is_step = step is not None and step.prefix in ("", "checkpoint")
    return _direct(argument, shape, argument.path, step if is_step else None, tree)


def _step(argument: Argument, listing: Listing) -> Location:
    """One step directory with items, named directly."""
    step = step_name(argument.path.name)
    chosen = chosen_items(argument, listing)
    phrase = f"{f'step {step.number}' if step else 'one step'}, {chosen.phrase}"
    return _direct(argument, "step", argument.path, step, replace(chosen, phrase=phrase))


def _direct(
    argument: Argument, shape: Shape, directory: Path, step: StepName | None, chosen: ChosenItems
) -> Location:
    """A checkpoint that the argument itself names, not by a root; ``directory`` is the step's."""
    argument.refuse_another_step(step)
    return _location(
        argument,
        shape,
        chosen,
        step_directory=directory,
        step=step.number if step else None,
        step_name=directory.name if step else None,
    )


def _root(argument: Argument, listing: Listing, steps: list[Step]) -> Location:
    """A directory of steps: the one asked for, or the newest finished."""
    if argument.step is None:
        refuse_mixture(listing, steps)
    picked, why = pick(argument.path, argument.step, steps, address=argument.address)
    path = listing.path / picked.name
    chosen = _in_root(argument._replace(text=f"{argument.path}@{picked.number}"), path)
    beside = beside_steps(listing, steps)
    finished = [s for s in steps if s.is_finished]
    unfinished = [s.name for s in steps if not s.is_finished]
    phrase = f"step {picked.number} ({why} of {len(finished)}), {chosen.phrase}"
    if unfinished:
        phrase += f"; unfinished and skipped: {', '.join(map(repr, unfinished))}"
    if unread := [s.name for s in steps if s.fault is not None]:
        phrase += f"; cannot be read: {', '.join(map(repr, unread))}"
    if len(formats := step_formats(s.name for s in finished)) > 1:
        phrase += f"; named in {len(formats)} formats: {formats_text(formats)}"
    foreign = chosen.foreign + [p for p in beside if not belongs_to_root(p)]
    return _location(
        argument,
        "root",
        replace(chosen, phrase=phrase, foreign=foreign),
        step_directory=path,
        step=picked.number,
        named_step=msgspec.UNSET if argument.step is None else argument.step,
        steps=[s.number for s in finished],
        step_names=[s.name for s in finished],
        step_name=picked.name,
        root_files=[p for p in beside if belongs_to_root(p)],
        unfinished=unfinished,
    )


def _in_root(argument: Argument, step: Path) -> ChosenItems:
    """The trees of a step of a root: of Flax a file, of flat saves one tree, else items."""
    if filesystem.is_file(step):
        argument.refuse_item()
        return single_file(step)
    listing = Listing.of(step)
    if not holds_pytree(listing):
        return chosen_items(argument, listing)
    argument.refuse_item()
    refusals.refuse_unfinished(step, below=argument.path)
    return single_tree(listing)


def _location(argument: Argument, shape: Shape, chosen: ChosenItems, **of_step: Any) -> Location:
    return Location(
        argument=argument.text,
        root=argument.path,
        shape=shape,
        items=chosen.items,
        other_items=chosen.others,
        foreign=chosen.foreign,
        in_step=chosen.in_step,
        prefix_items=len(chosen.items) > 1,
        chosen=argument.link + chosen.phrase,
        **of_step,
    )


def _no_checkpoint(listing: Listing, inside: StepItems) -> CheckpointError:
    if inside.others:
        return no_tree(listing, inside)
    unfinished = listing.unfinished()
    if unfinished:
        return CheckpointError(
            f"'{listing.path}' holds only an unfinished save: '{unfinished[0]}'",
            why="the save that wrote it was interrupted before it was whole",
            fix="use another checkpoint",
        )
    return refusals.describe_directory(listing)
