"""What becomes of a result that is written into another checkpoint: an item of a step, or nothing that is read."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import Final

from surgery_cli.errors import CheckpointError
from surgery_cli.proof.step_metadata_file import ONLY_WITH_ARGUMENTS
from surgery_cli.proof.surgery_json import decoded
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import RECORD, Listing, holds_pytree, reading, step_name
from surgery_cli.store.filesystem.small_files import read_small
from surgery_cli.store.locate.items import item_handlers, step_items
from surgery_cli.store.locate.steps import FILES_OF_A_STEP
from surgery_cli.surgery.preparation import Prepared
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage

_LEVELS: Final = 3
"""Of folders above a destination: an item lies in a step, and a folder may lie in that."""


def put_into_notes(target: Path, prepared: Prepared) -> list[Consequence]:
    """What a destination inside another checkpoint means for who reads either."""
    if prepared.output is not None:
        return []
    above = [
        folder for folder in target.absolute().parents[:_LEVELS] if filesystem.is_folder(folder)
    ]
    found = next(filter(None, map(_seen, above)), None)
    sealed = next(filter(_is_sealed, above), None)
    if found is None:
        return _unlike_steps(target.absolute(), prepared)
    around, name = found.path, str(target.absolute().relative_to(found.path))
    if holds_pytree(found):
        said = f"'{around}' is a tree itself: '{name}' becomes a folder in it that is no part of it"
    elif "/" in name:
        said = f"'{around}' is a step: '{name}' becomes a folder in it that is none of its items"
    elif prepared.draft.items.names:
        said = (
            f"'{around}' is a step, and the result is one, too, with its trees a folder deeper: '{name}'"
            f" will be no item of it, and Orbax restores nothing of it from there; {_one_tree(prepared)}"
        )
    else:
        said = (
            f"'{around}' is a step: '{name}' becomes an item of it{_as_metadata_say(found, name)}"
        )
    if sealed is not None:
        said += f"; {_unsealed(sealed, is_replaced=filesystem.exists(target))}"
    return [Consequence(DocsPage.ITEM_PUT_IN, said)]


def checkpoint_around(target: Path) -> Path | None:
    """The checkpoint of which something is a part, be it an item; None for what lies in none."""
    above = (
        folder for folder in target.absolute().parents[:_LEVELS] if filesystem.is_folder(folder)
    )
    found = next(filter(None, map(_seen, above)), None)
    return None if found is None else found.path


def _unlike_steps(target: Path, prepared: Prepared) -> list[Consequence]:
    """That a run whose steps hold items gets one that is a bare tree: by the step that goes, or the last one."""
    if prepared.draft.items.names or step_name(target.name) is None:
        return []
    if not filesystem.is_folder(target.parent):
        return []
    named = {name: step_name(name) for name in filesystem.names(target.parent)}
    steps = sorted((step.number, name) for name, step in named.items() if step is not None)
    others = [target.name] if target.name in named else [name for _, name in steps[-1:]]
    for name in others:
        like = target.with_name(name)
        if (
            filesystem.is_folder(like)
            and (seen := _seen(like)) is not None
            and not holds_pytree(seen)
        ):
            items = quoted(step_items(seen).pytrees, 3)
            said = (
                f"'{name}' in '{target.parent}' holds items ({items}), and the result is one tree without any: who asks"
                " that run for items does not get them of it"
            )
            return [Consequence(DocsPage.ITEM_PUT_IN, said)]
    return []


def _seen(folder: Path) -> Listing | None:
    """A folder that is a tree or a step; None for another."""
    with reading(folder):
        listing = Listing.of(folder)
        return listing if holds_pytree(listing) or _is_step(listing) else None


def _as_metadata_say(step: Listing, name: str) -> str:
    handlers = item_handlers(step)
    if not isinstance(handlers, dict) or not handlers or name in handlers:
        return ""
    return f", which its metadata do not name: {ONLY_WITH_ARGUMENTS}"


def _unsealed(sealed: Path, *, is_replaced: bool) -> str:
    """What becomes of a seal."""
    command = f"surgery seal {quote(str(sealed))}"
    if is_replaced:
        return (
            f"'{sealed}' is sealed, and what is replaced in it is not what was: `verify` finds it changed, and edits of"
            f" it are refused, until `{command} --anew`"
        )
    return (
        f"'{sealed}' is sealed, and what is put into it is not: `verify` finds these files added, and edits of it are"
        f" refused, until `{command}`"
    )


def _is_step(listing: Listing) -> bool:
    """True if a folder holds items: by its files, or its name, where Orbax up to 0.5.10 left nothing else."""
    if listing.files & FILES_OF_A_STEP:
        return True
    named = step_name(listing.path.name)
    return named is not None and not named.prefix and bool(step_items(listing).pytrees)


def _one_tree(prepared: Prepared) -> str:
    """How one of several trees is named, which becomes an item."""
    items = prepared.checkpoint.location.items
    return f"a tree is named as '{next(iter(items.values()))}'"


def _is_sealed(around: Path) -> bool:
    file = around / RECORD
    with suppress(CheckpointError, OSError):
        return filesystem.is_file(file) and bool(decoded(read_small(file), file).files)
    return False
