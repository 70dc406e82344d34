"""What a rescue would find of what is not whole, and how it is asked for."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import Final

import msgspec

from surgery_cli.errors import CheckpointError
from surgery_cli.examination.states import Condition
from surgery_cli.examination.temporary_names import is_copy
from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.salvage.glance import glance
from surgery_cli.salvage.place import whole_beside
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.names import step_name, unfinished_name
from surgery_cli.words.lists import quoted


def with_rescue(found: Condition, *, is_save: bool = False) -> Condition:
    """The same with what a rescue would find, and how it is asked for."""
    path = found.place.path
    left = None if isinstance(path, BucketPath) else glance(path)
    copies = sorted({of for of, _ in found.seen.unnamed.values() if is_copy(of)})
    why, of = list(found.why), found.of
    if copies:
        of = ", ".join(copies)
        why.append(f"files in it have names that {of} gives until they are whole")
    if isinstance(path, BucketPath) or (left is not None and not left.whole and left.is_least):
        todo = f"`surgery rescue {quote(str(path))}` reads all of it, and shows what is whole{NOT_SEARCHED}"
        left = left if left is not None and left.leaves else None
    elif left is None or not left.whole:
        todo = (_NEVER_WHOLE if is_save else NOTHING_WHOLE) + beside(path)
        left = left if left is not None and left.leaves else None
    elif left.whole == left.leaves and left.lost:
        without = quoted(left.lost, 4, word="and")
        todo = f"{_rescue(path)} --allow-partial` writes a checkpoint of all of them, without {without}"
        if gone := [name for name in left.lost if left.place and name not in left.place.no_trees]:
            todo = f"copy {quoted(gone, 4, word='and')} again from where it is whole, with its leaves; else {todo}"
    elif left.whole == left.leaves and not found.lost_items:
        partial = "" if left.has_structure else " --allow-partial"
        named = "" if left.has_structure else _BY_NAMES
        todo = f"{_rescue(path)}{partial}` writes a checkpoint of all of them{named}"
    else:
        todo = f"`surgery rescue {quote(str(path))}` shows what is left, leaf by leaf"
    if left is not None and not left.is_sure_of_none and is_save:
        todo += "; before the job starts again, which may remove it"
    if copies:
        todo = f"do the copy again; else {todo}"
    todo = f"{found.todo}; {todo}" if found.todo else todo
    return msgspec.structs.replace(found, left=left, why=why, of=of, todo=todo)


def beside(path: Path) -> str:
    """What of a step without a whole leaf is whole nevertheless, in words."""
    whole: list[str] = []
    if filesystem.is_folder(path):
        with suppress(CheckpointError, OSError):
            whole = whole_beside(path)
    are = "is" if len(whole) == 1 else "are"
    said = f"; {quoted(whole, 6, word='and')} beside it {are} whole, as far as metadata tell"
    return said if whole else ""


def with_structure(found: Condition, whole: Path) -> Condition:
    """The same where names of arrays alone tell what the tree was, and ``whole`` is a step of the same run."""
    command = _rescue(found.place.path)
    like, todo = f"{command} --like {quote(str(whole))}", found.todo
    if found.left is not None and not found.left.lost:  # the other step gives what was lacking
        todo = todo.replace(f"{command} --allow-partial`", f"{command}`").replace(_BY_NAMES, "")
    return msgspec.structs.replace(found, todo=todo.replace(command, like))


def _rescue(path: Path) -> str:
    return f"`surgery rescue {quote(str(path))} {new_place(path)}"


def new_place(path: Path) -> str:
    """Where a command may write what becomes of a step, or of another checkpoint: NEW is a run, if it is a step.

    Of a step that is a file a record stands beside it, which Flax would take for one of the run.
    """
    name = unfinished_name(path.name) or path.name
    is_step = step_name(name) is not None and not filesystem.is_file(path)
    return f"NEW/{quote(name)}" if is_step else "NEW"


_BY_NAMES: Final = ", in the tree that their names tell"
_NEVER_WHOLE: Final = (
    "no whole leaf was found in it, and it never was whole: it may go once no job is at work there"
)
NOTHING_WHOLE: Final = "copy it again from where it is whole: no whole leaf was found in it"
NOT_SEARCHED: Final = "; not everything in it was searched yet"
"""Said as long as it is so: nothing of what stands there may be called lost."""
