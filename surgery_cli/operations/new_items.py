"""Items that a step gets: which names they may have, and what is said of them."""

from __future__ import annotations

import re

import msgspec

from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import PlanError
from surgery_cli.words.advice import worded
from surgery_cli.words.notes import Consequence, Note, Remark
from surgery_cli.words.pages import DocsPage

_UNNAMED = "default"
"""The item of a manager that saves one tree without a name; a step that has it is taken to have no others."""

_TREES = "the step has the trees"
_BESIDE = f"beside '{_UNNAMED}'"

_ITEM_NAME = re.compile(r"[A-Za-z_][\w.-]*")


def check_item_name(name: str) -> None:
    """Raise PlanError unless an item may be called so, in any step."""
    if not _ITEM_NAME.fullmatch(name) or ".orbax" in name:
        raise PlanError(
            f"'{name}' cannot be the name of an item",
            why="an item is a directory of the step; names begin with a letter and have no slash",
            fix=worded("choose one with {as}"),
            field="as",
        )


def check_name(name: str, draft: Draft) -> None:
    """See that a step may have a further item of this name: one that was emptied may come back.

    Raises:
        PlanError: it may not, or trees of the step stand outside of the draft.
    """
    if draft.items.is_partial:
        raise PlanError(
            "the step has more trees than the one that `--item` chose",
            why="a new item stands beside all of them",
            fix="leave `--item` out, and begin paths with the item's name",
        )
    check_item_name(name)
    known = {*draft.items.names, *draft.items.made}
    is_emptied = draft.items.is_prefixed and not any(path[:1] == (name,) for path in draft.leaves)
    if name in draft.items.taken | known and not (name in known and is_emptied):
        raise PlanError(
            f"the step holds '{name}' already",
            why="everything in a step has a name of its own",
            fix=worded("choose another name with {as}"),
            field="as",
        )


def with_item(draft: Draft, name: str, like: str) -> tuple[Draft, list[Note]]:
    """The draft with an item whose leaves are there already, in the layout of another; and what is said of it."""
    items = draft.items
    made = dict(items.made)
    if name not in items.names:
        made[name] = items.made.get(like, like)
    told = tuple(note for note in draft.notes if not note.startswith((_TREES, _BESIDE)))
    after = draft.replaced(items=msgspec.structs.replace(items, made=made), notes=told)
    keys = ", ".join(f"'{key}'" for key in after.items.first_keys)
    notes: list[Note] = [
        Remark(DocsPage.EXTRACT_ITEM, f"{_TREES} {keys}: paths begin with their names")
    ]
    if _UNNAMED in after.items.first_keys:
        notes.append(
            Consequence(
                DocsPage.EXTRACT_ITEM,
                f"{_BESIDE}, a `CheckpointManager` restores other items only if it is made with"
                f" `item_names=({keys})`",
            )
        )
    return after, notes
