"""What becomes of a result that is written into another checkpoint: an item of a step, or nothing that is read."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from shlex import quote

from surgery_cli.errors import CheckpointError
from surgery_cli.proof.surgery_json import decoded
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import RECORD, Listing, holds_pytree, reading, step_name
from surgery_cli.store.filesystem.small_files import read_small
from surgery_cli.store.locate.items import item_handlers, step_items
from surgery_cli.store.locate.steps import FILES_OF_A_STEP
from surgery_cli.surgery.preparation import Prepared
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage


def put_into_notes(target: Path, prepared: Prepared) -> list[Consequence]:
    """What a destination inside another checkpoint means for who reads either."""
    around = target.absolute().parent
    if prepared.output is not None or not filesystem.is_folder(around):
        return []
    with reading(around):
        listing = Listing.of(around)
        is_tree = holds_pytree(listing)
        if not is_tree and not _is_step(listing):
            return []
    name = target.name
    if is_tree:
        said = f"'{around}' is a tree itself: '{name}' becomes a folder in it that is no part of it"
    elif prepared.draft.items.names:
        said = (
            f"'{around}' is a step, and the result is one, too, with its trees a folder deeper: '{name}'"
            f" will be no item of it, and Orbax restores nothing of it from there; {_one_tree(prepared)}"
        )
    else:
        said = f"'{around}' is a step: '{name}' becomes an item of it"
        handlers = item_handlers(listing)
        if isinstance(handlers, dict) and handlers and name not in handlers:
            said += ", which its metadata do not name: Orbax restores the step only with arguments for each item"
    if _is_sealed(around):
        said += (
            "; it is sealed, and what is put into it is not: `verify` finds these files added"
            f" until `surgery seal {quote(str(around))}`"
        )
    return [Consequence(DocsPage.ITEM_PUT_IN, said)]


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
