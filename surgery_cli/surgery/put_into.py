"""What becomes of a result that is written into another checkpoint: an item of a step, or nothing that is read."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from surgery_cli.errors import CheckpointError, DestinationError, UnseenError
from surgery_cli.proof.on_record import record_at
from surgery_cli.proof.step_metadata_file import WITH_HANDLERS
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import Listing, holds_pytree
from surgery_cli.store.filesystem.names import RECORD, step_name
from surgery_cli.store.filesystem.protocol import COMMIT_MARK
from surgery_cli.store.locate.items import item_handlers, step_items
from surgery_cli.store.locate.steps import find_steps
from surgery_cli.store.locate.surroundings import checkpoint_at, folders_above
from surgery_cli.surgery.preparation import Prepared
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage


def put_into_notes(
    target: Path, prepared: Prepared, *, is_sealed: bool = False
) -> list[Consequence]:
    """What a destination inside another checkpoint means for who reads either; ``is_sealed``: the result is."""
    if prepared.output is not None:
        return []
    above = folders_above(target)
    found = next(filter(None, map(checkpoint_at, above)), None)
    sealed = next(filter(_is_sealed, above), None)
    if found is None:
        lone = _unmarked(target.parent) if _is_step_of_items(target, prepared) else []
        return _unlike_steps(filesystem.absolute(target), prepared) + lone
    around, name = found.path, str(filesystem.absolute(target).relative_to(found.path))
    is_item = False
    if holds_pytree(found):
        said = f"'{around}' is a tree itself: '{name}' becomes a folder in it that is no part of it"
    elif "/" in name:
        said = f"'{around}' is a step: '{name}' becomes a folder in it that is none of its items"
    else:
        is_item = True  # whose own seal is held beside the step's
        said = (
            f"'{around}' is a step: '{name}' becomes an item of it{_as_metadata_say(found, name)}"
        )
    if sealed is not None and not (is_sealed and is_item):
        said += f"; {_unsealed(sealed, is_replaced=filesystem.exists(target))}"
    return [Consequence(DocsPage.ITEM_PUT_IN, said), *(_unmarked(around) if is_item else [])]


def refuse_misplaced(target: Path, prepared: Prepared) -> None:
    """Refuse several trees in the place of an item, and a run in that of a step. Raises DestinationError."""
    if prepared.output is None:
        _refuse_step_in_step(target, prepared)
        _refuse_run_as_step(target, prepared)


def _refuse_step_in_step(target: Path, prepared: Prepared) -> None:
    """Refuse to put several trees into a step, in the place of an item.

    Raises:
        DestinationError: so; Orbax would take them for one item, which it cannot restore, nor the step with it.
    """
    if not prepared.draft.items.names:
        return
    around = filesystem.absolute(target).parent
    found = checkpoint_at(around) if filesystem.is_folder(around) else None
    if found is None or holds_pytree(found):
        return
    raise DestinationError(
        f"'{around}' is a step, and '{target.name}' would be one, too: several trees are no item",
        why="Orbax would take them for an item that it cannot restore, and then restores nothing of the step by itself",
        fix=f"name a tree of the source, as '{next(iter(prepared.checkpoint.location.items.values()))}', or another"
        " place for the result",
    )


def _refuse_run_as_step(target: Path, prepared: Prepared) -> None:
    """Refuse to put a run where a step of another run belongs.

    Raises:
        DestinationError: so; whoever restores that run takes it for a step, and does not find one in it.
    """
    location, own = prepared.checkpoint.location, step_name(target.name)
    if location.shape != "root" or own is None:
        return
    around = filesystem.absolute(target).parent
    if around == location.root or not filesystem.is_folder(around):
        return
    steps = find_steps(Listing.of(around))
    if any(step.is_finished and step.prefix == own.prefix for step in steps):
        raise DestinationError(
            f"'{target}' would be a step of the run '{around}', and the result is a run itself",
            why="whoever restores that run takes it for a step, and finds none in it",
            fix=f"name the step that is read by its path, '{location.root / (location.step_name or '')}', or another"
            " place for the result",
        )


def _is_step_of_items(target: Path, prepared: Prepared) -> bool:
    """True if the folder of a destination is called a step, and the result is one tree, as its items are."""
    around = step_name(target.parent.name)
    return around is not None and not around.prefix and not prepared.draft.items.names


def _unmarked(step: Path) -> list[Consequence]:
    """That a step is unfinished for Orbax, where that asks for marks, whatever its items are."""
    if not filesystem.needs_commit_mark(step) or filesystem.is_file(step / COMMIT_MARK):
        return []
    said = (
        f"'{step}' has no `{COMMIT_MARK}`: as a step it is unfinished, to Orbax too, until an empty"
    )
    said += " file of that name stands there; put it there once all items are"
    return [Consequence(DocsPage.ITEM_PUT_IN, said)]


def checkpoint_around(target: Path) -> Path | None:
    """The checkpoint of which something is a part, be it an item; None for what lies in none."""
    found = next(filter(None, map(checkpoint_at, folders_above(target))), None)
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
            and (seen := checkpoint_at(like)) is not None
            and not holds_pytree(seen)
        ):
            items = quoted(step_items(seen).pytrees, 3)
            said = (
                f"'{name}' in '{target.parent}' holds items ({items}), and the result is one tree without any: who asks"
                " that run for items does not get them of it"
            )
            return [Consequence(DocsPage.ITEM_PUT_IN, said)]
    return []


def _as_metadata_say(step: Listing, name: str) -> str:
    handlers = item_handlers(step)
    if not isinstance(handlers, dict) or not handlers or name in handlers:
        return ""
    return f", which its metadata do not name: {WITH_HANDLERS}"


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


def _is_sealed(around: Path) -> bool:
    file = around / RECORD
    try:
        record = record_at(file)
    except UnseenError:
        raise
    except CheckpointError:  # a damaged one seals nothing
        return False
    return record is not None and bool(record.files)
