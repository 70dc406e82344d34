"""Which checkpoint an argument names: root, step, flat directory, item or file, and which step and items of it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from surgery_cli.errors import CheckpointError, PlanError
from surgery_cli.store import refusals
from surgery_cli.store.listing import (
    Listing,
    StepName,
    holds_pytree,
    is_leftover,
    starts_as_msgpack,
    step_name,
    unfinished_name,
)
from surgery_cli.store.step_items import (
    StepItems,
    foreign_in_item,
    is_step,
    item_handlers,
    step_items,
)
from surgery_cli.tree.paths import nearest

Shape = Literal["root", "step", "flat", "item", "file"]
"""``root``: steps side by side (CheckpointManager, v1, ``flax.training.checkpoints``). ``step``: one directory with
items. ``flat``: one directory with the tree at its root. ``item``: an item inside a step, named directly. ``file``:
Flax msgpack, or safetensors (also a directory of shards)."""

_ROOT_FOLDERS = frozenset({"metadata", "descriptor"})
_ROOT_FILES = frozenset({"_ROOT_METADATA", "surgery.json"})


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


class _Step(NamedTuple):
    name: str
    number: int
    prefix: str
    is_finished: bool


class _Wish(NamedTuple):
    """What the argument and the options ask for."""

    argument: str
    path: Path
    step: int | None
    item: str | None
    link: str
    """What to say of the argument's own symbolic link, or ''."""


def locate(
    text: str, *, step: int | None = None, item: str | None = None, staging: bool = False
) -> Location:
    """Find the checkpoint that ``text`` names: a directory or file, or ``CKPT@N`` for step N of a root.

    An existing path wins over the reading ``@N``. ``step`` and ``item`` are the options of those names. ``staging``
    opens a directory in which surgery itself is building.

    Raises:
        PlanError: nothing stands there; there is no such step or item; ``step`` and ``@N`` disagree.
        CheckpointError: what stands there is not a checkpoint, or an unfinished one.
    """
    refusals.refuse_address(text)
    path, step = _path_and_step(text, step)
    link = ""
    if path.is_symlink():
        link = f"'{text}' → '{path.resolve()}': "
    real = path.resolve()
    if not real.exists():
        raise refusals.missing(real if path.is_symlink() else Path(os.path.abspath(path)))
    if not staging:
        refusals.refuse_unfinished(real)
    wish = _Wish(text, real, step, item, link)
    if real.is_file():
        return _file(wish)
    listing = Listing.of(real)
    if holds_pytree(listing):
        return _tree(wish, listing)
    if listing.files & {"_CHECKPOINT_METADATA", "orbax.checkpoint"}:
        return _step(wish, listing)
    steps = _steps(listing)
    inside = step_items(listing)
    if inside.pytrees and (not steps or step_name(real.name) is not None):
        return _step(wish, listing)
    if steps:
        return _root(wish, listing, steps)
    if any(name.endswith(".safetensors") for name in listing.files):
        return _flat(wish, "file", {"": real}, "safetensors shards")
    raise _no_checkpoint(wish, listing, inside)


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
    if path.suffix == ".safetensors" and not refusals.is_pointer(path):
        return _flat(wish, "file", {"": path}, "a safetensors file")
    if not starts_as_msgpack(path):
        raise refusals.describe_file(path)
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
    refusals.refuse_pointers(wish.path)
    parent = Listing.of(wish.path.parent)
    handlers = item_handlers(parent)
    is_item = isinstance(handlers, dict) and not holds_pytree(parent)
    if handlers is None and step_name(wish.path.name) is None:
        # Orbax up to 0.5.10 leaves nothing in a step but its items: its own name then tells.
        is_item = step_name(wish.path.parent.name) is not None and not holds_pytree(parent)
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
    refusals.refuse_unfinished(step.path)
    inside = step_items(step)
    if inside.unfinished:
        raise CheckpointError(
            f"'{step.path}' holds an unfinished save: '{inside.unfinished[0]}'",
            why="one of its items was never written whole",
            fix="use an earlier step",
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
        refusals.refuse_pointers(path)
    names = ", ".join(f"'{name}'" for name in items)
    phrase = f"item{'s' if len(items) > 1 else ''} {names}"
    return inside, items, others, phrase


def _foreign_in(items: dict[str, Path]) -> list[Path]:
    return [found for path in items.values() for found in foreign_in_item(Listing.of(path))]


def _no_tree(step: Listing, inside: StepItems) -> CheckpointError:
    held = ", ".join(f"'{name}'" for name in inside.others)
    return CheckpointError(
        f"'{step.path}' holds no tree of arrays",
        why=f"it holds only {held}" if held else "it names items, but none of them is there",
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


def _steps(listing: Listing) -> list[_Step]:
    """The steps in a directory, by number; unfinished ones too."""
    found = []
    for name in listing.folders | listing.files:
        intended = unfinished_name(name) or name
        named = step_name(intended)
        if named is None or is_leftover(name):
            continue
        is_finished = intended == name
        path = listing.path / name
        if is_finished and name in listing.files:
            if not starts_as_msgpack(path):
                continue
        elif is_finished:
            inside = Listing.of(path)
            if not is_step(inside):
                continue
            is_finished = not inside.unfinished() and "_CHECKPOINT_DELETION" not in inside.files
        found.append(_Step(name, named.number, named.prefix, is_finished))
    return sorted(found, key=lambda s: (s.number, s.name))


def _root(wish: _Wish, listing: Listing, steps: list[_Step]) -> Location:
    """A directory of steps: the one asked for, or the newest finished."""
    picked, why = _picked(wish, steps)
    path = listing.path / picked.name
    base = wish._replace(argument=f"{wish.path}@{picked.number}")
    inside = StepItems({}, {}, [], [])
    others: dict[str, Path] = {}
    if path.is_file():
        _refuse_item(base._replace(item=wish.item))
        _refuse_multihost_flax(path)
        items, phrase, foreign = {"": path}, "a Flax msgpack file", []
    elif holds_pytree(within := Listing.of(path)):
        _refuse_item(base._replace(item=wish.item))
        refusals.refuse_unfinished(path)
        refusals.refuse_pointers(path)
        items, phrase, foreign = {"": path}, "one tree", foreign_in_item(within)
    else:
        inside, items, others, phrase = _chosen_items(base, within)
        foreign = inside.foreign + _foreign_in(items)
    beside = _beside_steps(listing, steps)
    finished = [s.number for s in steps if s.is_finished]
    unfinished = [s.name for s in steps if not s.is_finished]
    skipped = f"; unfinished and skipped: {', '.join(map(repr, unfinished))}" if unfinished else ""
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
        foreign=foreign + [p for p in beside if not _belongs_to_root(p)],
        root_files=[p for p in beside if _belongs_to_root(p)],
        unfinished=unfinished,
        prefix_items=len(items) > 1,
        chosen=f"{wish.link}step {picked.number} ({why} of {len(finished)}), {phrase}{skipped}",
    )


def _belongs_to_root(path: Path) -> bool:
    return path.name in (_ROOT_FOLDERS if path.is_dir() else _ROOT_FILES)


def _beside_steps(listing: Listing, steps: list[_Step]) -> list[Path]:
    """What stands beside the steps; neither leftovers, nor unfinished saves, nor links to a step (`latest`)."""
    names = {s.name for s in steps}
    targets = {listing.path / name for name in names}
    found = []
    for name in sorted((listing.files | listing.folders) - names):
        path = listing.path / name
        if is_leftover(name) or unfinished_name(name) is not None:
            continue
        if path.is_symlink() and path.resolve() in targets:
            continue
        found.append(path)
    return found


def _picked(wish: _Wish, steps: list[_Step]) -> tuple[_Step, str]:
    """The step to open, and why that one."""
    finished = [s for s in steps if s.is_finished]
    if wish.step is None:
        if not finished:
            names = ", ".join(f"'{s.name}'" for s in steps[-3:])
            raise CheckpointError(
                f"'{wish.path}' has no finished step",
                why=f"every save in it was interrupted: {names}",
                fix="use another root",
            )
        prefixes = sorted({s.prefix for s in finished if s.prefix})
        if len(prefixes) > 1:
            last = [max(s for s in finished if s.prefix == p).name for p in prefixes]
            raise PlanError(
                f"'{wish.path}' holds steps of {len(prefixes)} kinds: "
                + ", ".join(f"'{name}'" for name in last[:4]),
                why="which of them is the newest cannot be told from their numbers",
                fix=f"name one: '{wish.path / last[0]}'",
            )
        wanted, why = finished[-1].number, "newest finished"
    else:
        wanted, why = wish.step, "as asked"
    found = [s for s in finished if s.number == wanted]
    if len(found) > 1:
        raise PlanError(
            f"'{wish.path}' has {len(found)} directories for step {wanted}: "
            + ", ".join(f"'{s.name}'" for s in found),
            why="they may differ",
            fix=f"name one: '{wish.path / found[0].name}'",
        )
    if found:
        return found[0], why
    for other in steps:
        if other.number == wanted:
            raise CheckpointError(
                f"step {wanted} in '{wish.path}' is unfinished: '{other.name}'",
                why="its save, or a deletion in it, was interrupted before it was done",
                fix=f"use a finished step: {_some(finished) or 'there is none here'}",
            )
    raise PlanError(
        f"there is no step {wanted} in '{wish.path}'",
        why=f"finished steps: {_some(finished) or 'none'}",
        fix=f"`--step {min(finished, key=lambda s: abs(s.number - wanted)).number}` is the nearest"
        if finished
        else "",
    )


def _some(steps: list[_Step]) -> str:
    """The last few step numbers."""
    numbers = ", ".join(str(s.number) for s in steps[-8:])
    return f"…, {numbers}" if len(steps) > 8 else numbers


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
