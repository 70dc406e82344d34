"""Which trees of a step are edited, and what comes along."""

from __future__ import annotations

from pathlib import Path

import msgspec

from surgery_cli.errors import CheckpointError, PlanError
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import Listing
from surgery_cli.store.filesystem.names import is_leftover
from surgery_cli.store.locate import lfs_pointers, refusals
from surgery_cli.store.locate.argument import Argument
from surgery_cli.store.locate.items import StepItems, foreign_in_item, item_handlers, step_items
from surgery_cli.tree.nearness import nearest


class ChosenItems(msgspec.Struct, frozen=True):
    """The trees to be edited, by item name ('' where there is none).

    ``others`` come along unedited, ``foreign`` is unknown to Orbax, ``phrase`` names the trees. ``in_step`` are names:
    all that stands in the step, what runs have there or left there apart.
    """

    items: dict[str, Path]
    phrase: str
    others: dict[str, Path] = {}
    foreign: list[Path] = []
    in_step: frozenset[str] = frozenset()


def chosen_items(argument: Argument, step: Listing) -> ChosenItems:
    """The trees of a step with items: all, or the one that ``argument`` names.

    Raises:
        PlanError: no tree has the name that was asked for.
        CheckpointError: the step is unfinished, holds no tree, or something in it cannot be read.
    """
    refusals.refuse_unfinished(step.path, below=argument.path)
    step.refuse_special()
    inside = step_items(step)
    if inside.unfinished and argument.item not in inside.pytrees:
        whole = f"; or choose a whole one: `--item {next(iter(inside.pytrees), '')}`"
        raise CheckpointError(
            f"'{step.path}' holds an unfinished save: '{inside.unfinished[0]}'",
            why="one of its items was never written whole",
            fix="use an earlier step" + whole * bool(inside.pytrees),
        )
    if not inside.pytrees:
        raise no_tree(step, inside)
    items = dict(inside.pytrees)
    if argument.item is not None:
        if argument.item not in items:
            refusals.refuse_built(step.path / argument.item)
            raise _no_item(argument.text, argument.item, inside)
        items = {argument.item: items[argument.item]}
    others = {name: path for name, path in inside.pytrees.items() if name not in items}
    foreign = list(inside.foreign)
    for path in items.values():
        foreign += _foreign_in_readable(Listing.of(path))
    phrase = f"item{'s' if len(items) > 1 else ''} {', '.join(map(repr, items))}"
    if inside.unfinished:
        phrase += f"; unfinished: {', '.join(map(repr, inside.unfinished))}"
    if inside.absent:
        phrase += f"; recorded but not there: {', '.join(map(repr, inside.absent))}"
    in_step = frozenset(n for n in step.files | step.folders if not is_leftover(n))
    return ChosenItems(items, phrase, inside.others | others, foreign, in_step)


def single_tree(tree: Listing) -> ChosenItems:
    """A tree without a name: the whole of a directory."""
    return ChosenItems({"": tree.path}, "one tree", foreign=_foreign_in_readable(tree))


def single_file(path: Path) -> ChosenItems:
    """A Flax msgpack file.

    Raises:
        CheckpointError: it is one of Flax's old multi-host saves, which put arrays into ``<file>_gda``; the file has
            only their names.
    """
    arrays = path.with_name(path.name + "_gda")
    if filesystem.exists(arrays):
        raise CheckpointError(
            f"'{path}' was saved by several hosts: its arrays stand in '{arrays.name}'",
            why="surgery reads Flax files that hold their arrays",
            fix="restore it with `flax.training.checkpoints` on its mesh and save it with Orbax",
        )
    return ChosenItems({"": path}, "a Flax msgpack file")


def no_tree(step: Listing, inside: StepItems) -> CheckpointError:
    """The error for a step in which nothing is a tree."""
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


def _foreign_in_readable(tree: Listing) -> list[Path]:
    tree.refuse_special()
    lfs_pointers.refuse_pointers(tree.path)
    return foreign_in_item(tree)


def _no_item(text: str, wanted: str, inside: StepItems) -> PlanError:
    near = nearest(wanted, inside.pytrees) or list(inside.pytrees)
    why = f"its trees are {', '.join(map(repr, inside.pytrees))}"
    if wanted in inside.others:
        why = f"'{wanted}' is there, but it is not a tree; {why}"
    return PlanError(f"there is no tree '{wanted}' in '{text}'", why=why, fix=f"`--item {near[0]}`")
