"""Which checkpoint an argument names: root, step, flat directory, item or file, and which step and items of it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from surgery_cli.errors import CheckpointError, PlanError
from surgery_cli.inputs.addresses import local_address
from surgery_cli.inputs.regular_files import refuse_special
from surgery_cli.store.filesystem.listing import (
    Listing,
    StepName,
    holds_pytree,
    starts_as_msgpack,
    step_name,
    unreadable,
)
from surgery_cli.store.locate import foreign_files, lfs_pointers, refusals
from surgery_cli.store.locate.items import (
    StepItems,
    foreign_in_item,
    item_handlers,
    step_items,
)
from surgery_cli.store.locate.steps import (
    Step,
    belongs_to_root,
    beside_steps,
    find_steps,
    pick,
    refuse_mixture,
    refuse_several,
)
from surgery_cli.tree.nearness import nearest

Shape = Literal["root", "step", "flat", "item", "file"]
"""``root``: steps side by side (CheckpointManager, v1, ``flax.training.checkpoints``). ``step``: one directory with
items. ``flat``: one directory with the tree at its root. ``item``: an item inside a step, named directly. ``file``:
Flax msgpack, or safetensors (also a directory of shards)."""


class Location(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint that was found. Nothing in it has been opened.

    ``root`` is the real path of what the argument names; ``step_directory`` the step (of a Flax root also the file)
    that was chosen. ``items`` are the trees to be edited, by item name; the name is '' where there is none.
    ``other_items`` come along unedited: metrics, JSON, random keys, and trees that ``--item`` did not choose.
    ``foreign`` are files and folders unknown to Orbax, in the root and in the step. ``root_files`` stand beside the
    steps and belong to the root. ``unfinished`` are names of interrupted saves in the root. ``chosen`` is a phrase.
    """

    argument: str
    root: Path
    shape: Shape
    step_directory: Path | None = None
    step: int | None = None
    steps: list[int] = []
    step_name: str | None = None
    items: dict[str, Path]
    other_items: dict[str, Path] = {}
    foreign: list[Path] = []
    root_files: list[Path] = []
    unfinished: list[str] = []
    prefix_items: bool = False
    """Several trees: the item's name is the first key of every path."""
    chosen: str


class _Wish(NamedTuple):
    """What the argument and the options ask for."""

    argument: str
    path: Path
    step: int | None
    item: str | None
    link: str
    """What to say of the argument's own symbolic link, or ''."""
    address: str
    """What stands before `@N`, if the argument names a step so, or ''."""


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
    text = local_address(text, refusal=CheckpointError)
    if not text:
        raise PlanError("the path is empty", fix="name a checkpoint's directory or file")
    try:
        path, step = _path_and_step(text, step)
        real = path.resolve()
        is_link, is_there = path.is_symlink(), real.exists()
    except OSError as error:
        raise unreadable(Path(text), error) from None
    except (ValueError, RuntimeError) as error:  # a null character; a circle of links
        raise PlanError(f"'{text}' is not a path", why=str(error)) from None
    if not is_there:
        raise refusals.missing(real if is_link else Path(os.path.abspath(path)))
    link = f"'{text}' → '{real}': " if is_link else ""
    if not staging:
        refusals.refuse_unfinished(real)
    address = text.rpartition("@")[0] if path != Path(text).expanduser() else ""
    wish = _Wish(text, real, step, item, link, address)
    refuse_special(path)
    if real.is_file():
        return _file(wish)
    listing = Listing.of(real)
    if holds_pytree(listing):
        return _tree(wish, listing)
    if listing.files & {"_CHECKPOINT_METADATA", "orbax.checkpoint"}:
        return _step(wish, listing)
    steps = find_steps(listing)
    inside = step_items(listing)
    if inside.pytrees and (not steps or _is_called_a_step(real.name, inside, steps)):
        refuse_several(listing)
        return _step(wish, listing)
    if steps:
        return _root(wish, listing, steps)
    listing.refuse_special()
    if any(name.endswith(".safetensors") for name in listing.files):
        return _flat(wish, "file", {"": real}, "safetensors shards")
    raise _no_checkpoint(wish, listing, inside)


def _is_called_a_step(name: str, inside: StepItems, steps: list[Step]) -> bool:
    """Whether the name makes a directory of trees one step, though they are called like steps themselves.

    Anybody may call a folder `run_3`: it is a root if nothing but steps stands in it. A plain number is a step.
    """
    own = step_name(name)
    if own is None:
        return False
    return not own.prefix or not set(inside.pytrees) <= {step.name for step in steps}


def _path_and_step(text: str, step: int | None) -> tuple[Path, int | None]:
    """Split ``CKPT@N`` unless a path of that very name exists."""
    path = Path(text).expanduser()
    found = re.fullmatch(r"(.+)@([0-9]{1,18})", text, re.DOTALL)
    if found is None or path.exists():
        return path, step
    named = int(found[2])
    if step is not None and step != named:
        raise PlanError(
            f"'{text}' and `--step {step}` name two different steps",
            why=f"'@{named}' already says step {named}",
            fix=f"say `{found[1]}@{step}`, or leave one of the two out",
        )
    return Path(found[1]).expanduser(), named


def _file(wish: _Wish) -> Location:
    path = wish.path
    if path.name == "checkpoint" and holds_pytree(Listing.of(path.parent)):
        raise CheckpointError(
            f"'{path}' is one file of a checkpoint",
            why="the directory that it stands in is the checkpoint",
            fix=f"name '{path.parent}'",
        )
    if path.suffix == ".safetensors" and not lfs_pointers.is_pointer(path):
        return _flat(wish, "file", {"": path}, "a safetensors file")
    if not starts_as_msgpack(path):
        raise foreign_files.describe_file(path)
    _refuse_multihost_flax(path)
    return _flat(wish, "file", {"": path}, "a Flax msgpack file")


def _refuse_multihost_flax(path: Path) -> None:
    """Flax's old multi-host saves put arrays into ``<file>_gda``; the file has only their names."""
    arrays = path.with_name(path.name + "_gda")
    if arrays.exists():
        raise CheckpointError(
            f"'{path}' was saved by several hosts: its arrays stand in '{arrays.name}'",
            why="surgery reads Flax files that hold their arrays",
            fix="restore it with `flax.training.checkpoints` on its mesh and save it with Orbax",
        )


def _tree(wish: _Wish, listing: Listing) -> Location:
    """A tree at the root of the directory: a flat checkpoint, or an item inside a step."""
    listing.refuse_special()
    lfs_pointers.refuse_pointers(wish.path)
    parent = Listing.of(wish.path.parent)
    handlers = item_handlers(parent)
    is_item = isinstance(handlers, dict) and not holds_pytree(parent)
    is_checkpoint = "_CHECKPOINT_METADATA" in listing.files
    if handlers is None and step_name(wish.path.name) is None and not is_checkpoint:
        # Orbax up to 0.5.10 leaves nothing in a step but its items: the step's own name then tells.
        # Anybody may call a folder `run_3`: only steps of plain numbers are told from it.
        named = step_name(wish.path.parent.name)
        is_item = named is not None and not named.prefix and not holds_pytree(parent)
    if not is_item:
        return _flat(wish, "flat", {"": wish.path}, "one tree", foreign_in_item(listing))
    name, step = wish.path.name, step_name(wish.path.parent.name)
    if wish.item not in (None, name):
        raise PlanError(
            f"'{wish.argument}' is the item '{name}', and `--item {wish.item}` names another",
            fix=f"leave `--item` out, or name the step: '{wish.path.parent}'",
        )
    _agree(wish, step)
    of_step = f" of step {step.number}" if step else ""
    return Location(
        argument=wish.argument,
        root=wish.path,
        shape="item",
        step_directory=wish.path.parent,
        step=step.number if step else None,
        step_name=wish.path.parent.name if step else None,
        items={name: wish.path},
        foreign=foreign_in_item(listing),
        chosen=f"{wish.link}item '{name}'{of_step}",
    )


def _flat(
    wish: _Wish, shape: Shape, items: dict[str, Path], what: str, foreign: list[Path] | None = None
) -> Location:
    """A checkpoint without named items, named directly."""
    _refuse_item(wish)
    named = step_name(wish.path.name)
    step = named if named and named.prefix in ("", "checkpoint") else None
    _agree(wish, step)
    return Location(
        argument=wish.argument,
        root=wish.path,
        shape=shape,
        step_directory=wish.path,
        step=step.number if step else None,
        step_name=wish.path.name if step else None,
        items=items,
        foreign=foreign or [],
        chosen=f"{wish.link}{what}",
    )


def _agree(wish: _Wish, step: StepName | None) -> None:
    if wish.step is not None and (step is None or step.number != wish.step):
        raise PlanError(
            f"'{wish.argument}' does not hold step {wish.step}",
            why=f"it is step {step.number} itself"
            if step
            else "it is one checkpoint, without steps",
            fix="leave the step out, or name the directory that holds the steps",
        )


def _refuse_item(wish: _Wish) -> None:
    if wish.item is not None:
        raise PlanError(
            f"there is no item '{wish.item}' in '{wish.argument}'",
            why="it holds one tree without a name",
            fix="leave `--item` out",
        )


def _step(wish: _Wish, listing: Listing) -> Location:
    """One step directory with items, named directly."""
    step = step_name(wish.path.name)
    _agree(wish, step)
    inside, items, others, phrase = _chosen_items(wish, listing)
    said = f"step {step.number}" if step else "one step"
    return Location(
        argument=wish.argument,
        root=wish.path,
        shape="step",
        step_directory=wish.path,
        step=step.number if step else None,
        step_name=wish.path.name if step else None,
        items=items,
        other_items=others,
        foreign=inside.foreign + _foreign_in(items),
        prefix_items=len(items) > 1,
        chosen=f"{wish.link}{said}, {phrase}",
    )


def _chosen_items(
    wish: _Wish, step: Listing
) -> tuple[StepItems, dict[str, Path], dict[str, Path], str]:
    """What is in the step, the trees to be edited, everything else, and a phrase that names the trees."""
    refusals.refuse_unfinished(step.path, below=wish.path)
    step.refuse_special()
    inside = step_items(step)
    is_asked = wish.item in inside.pytrees
    if inside.unfinished and not is_asked:
        whole = f"; or choose a whole one: `--item {next(iter(inside.pytrees), '')}`"
        raise CheckpointError(
            f"'{step.path}' holds an unfinished save: '{inside.unfinished[0]}'",
            why="one of its items was never written whole",
            fix="use an earlier step" + whole * bool(inside.pytrees),
        )
    if not inside.pytrees:
        raise _no_tree(step, inside)
    items, others = dict(inside.pytrees), dict(inside.others)
    if wish.item is not None:
        if wish.item not in items:
            raise _no_item(wish, inside)
        others |= {name: path for name, path in items.items() if name != wish.item}
        items = {wish.item: items[wish.item]}
    for path in items.values():
        Listing.of(path).refuse_special()
        lfs_pointers.refuse_pointers(path)
    names = ", ".join(f"'{name}'" for name in items)
    phrase = f"item{'s' if len(items) > 1 else ''} {names}"
    if inside.unfinished:
        phrase += f"; unfinished: {', '.join(map(repr, inside.unfinished))}"
    if inside.absent:
        phrase += f"; recorded but not there: {', '.join(map(repr, inside.absent))}"
    return inside, items, others, phrase


def _foreign_in(items: dict[str, Path]) -> list[Path]:
    return [found for path in items.values() for found in foreign_in_item(Listing.of(path))]


def _no_tree(step: Listing, inside: StepItems) -> CheckpointError:
    held = ", ".join(f"'{name}'" for name in inside.others)
    handler = item_handlers(step)
    if held:
        why = f"it holds only {held}"
    elif isinstance(handler, str):
        why = f"it was saved by {handler.rsplit('.', 1)[-1]}"
    else:
        why = "it names items, but none of them is there"
    return CheckpointError(
        f"'{step.path}' holds no tree of arrays",
        why=why,
        fix="name a step with a pytree item",
    )


def _no_item(wish: _Wish, inside: StepItems) -> PlanError:
    near = nearest(wish.item or "", inside.pytrees) or list(inside.pytrees)
    why = f"its trees are {', '.join(map(repr, inside.pytrees))}"
    if wish.item in inside.others:
        why = f"'{wish.item}' is there, but it is not a tree; {why}"
    return PlanError(
        f"there is no tree '{wish.item}' in '{wish.argument}'", why=why, fix=f"`--item {near[0]}`"
    )


def _root(wish: _Wish, listing: Listing, steps: list[Step]) -> Location:
    """A directory of steps: the one asked for, or the newest finished."""
    if wish.step is None:
        refuse_mixture(listing, steps)
    picked, why = pick(wish.path, wish.step, steps, address=wish.address)
    path = listing.path / picked.name
    base = wish._replace(argument=f"{wish.path}@{picked.number}")
    inside = StepItems({}, {}, [], [], [])
    others: dict[str, Path] = {}
    if path.is_file():
        _refuse_item(base._replace(item=wish.item))
        _refuse_multihost_flax(path)
        items, phrase, foreign = {"": path}, "a Flax msgpack file", []
    elif holds_pytree(within := Listing.of(path)):
        _refuse_item(base._replace(item=wish.item))
        refusals.refuse_unfinished(path, below=wish.path)
        within.refuse_special()
        lfs_pointers.refuse_pointers(path)
        items, phrase, foreign = {"": path}, "one tree", foreign_in_item(within)
    else:
        inside, items, others, phrase = _chosen_items(base, within)
        foreign = inside.foreign + _foreign_in(items)
    beside = beside_steps(listing, steps)
    finished = [s.number for s in steps if s.is_finished]
    unfinished = [s.name for s in steps if not s.is_finished]
    skipped = f"; unfinished and skipped: {', '.join(map(repr, unfinished))}" if unfinished else ""
    unread = [s.name for s in steps if s.fault is not None]
    skipped += f"; cannot be read: {', '.join(map(repr, unread))}" if unread else ""
    return Location(
        argument=wish.argument,
        root=wish.path,
        shape="root",
        step_directory=path,
        step=picked.number,
        steps=finished,
        step_name=picked.name,
        items=items,
        other_items=others,
        foreign=foreign + [p for p in beside if not belongs_to_root(p)],
        root_files=[p for p in beside if belongs_to_root(p)],
        unfinished=unfinished,
        prefix_items=len(items) > 1,
        chosen=f"{wish.link}step {picked.number} ({why} of {len(finished)}), {phrase}{skipped}",
    )


def _no_checkpoint(wish: _Wish, listing: Listing, inside: StepItems) -> CheckpointError:
    if inside.others:
        return _no_tree(listing, inside)
    unfinished = listing.unfinished()
    if unfinished:
        return CheckpointError(
            f"'{wish.path}' holds only an unfinished save: '{unfinished[0]}'",
            why="the save that wrote it was interrupted before it was whole",
            fix="use another checkpoint",
        )
    return refusals.describe_directory(listing)
