"""Names that Orbax could not store, or would store as one: refused before anything is written."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache

from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import Problem, raise_all
from surgery_cli.tree import json_pointer
from surgery_cli.tree.nearness import nearest
from surgery_cli.tree.paths import LeafPath, stored_name
from surgery_cli.tree.specs import LeafKind


def refuse_unstorable(draft: Draft, items: Collection[str] = ()) -> None:
    """Check every path that the plan created or moved; paths of the source are as they are.

    ``items``: the names that the first key must be one of, if there are several items.

    Raises:
        PlanError: every such path: an empty key, one that leads elsewhere (``..``, a leading slash), a name that
            stands for another leaf as well.
    """
    fresh = [path for path in draft.leaves if path not in draft.source_tree]
    if draft.items.front:
        stands = {draft.standing(path) for path in draft.source_tree}
        fresh = [path for path in draft.leaves if path not in stands]
    if not fresh:
        return
    problems = [problem for path in fresh if (problem := _bad_key(path, draft))]
    problems += [_unaddressed(path) for path in fresh if _is_text_without_address(draft, path)]
    problems += _alike(draft, set(fresh))
    if LeafPath() in draft.leaves and len(draft.leaves) > 1:
        problems.append(
            Problem(
                "a bare leaf that is the whole tree has no place for others beside it",
                fix="move it below a key first: `rename … '**' --to a/key`",
                field="to",
            )
        )
    if items:
        problems += [_no_item(path, items) for path in fresh if str(path[0]) not in items]
    raise_all(problems)


def _bad_key(path: LeafPath, draft: Draft) -> Problem | None:
    """A key of the path that would be lost or lead out of the checkpoint's directory.

    Keys that a leaf brings along are as they are, unless its name as a whole would be worse than where it was.
    """
    origin = draft.leaves[path].home
    came_from = origin.path if origin is not None else LeafPath()
    is_worse = bool(_fault(stored_name(path))) and not _fault(stored_name(came_from))
    brought = 0 if is_worse else _shared_tail(path, came_from)
    for key in path[: len(path) - brought]:
        if reason := _fault(str(key)):
            return Problem(
                f"'{path}' cannot be stored",
                why=reason,
                fix="choose another name",
                path=str(path),
                field="to",
            )
    return None


def _shared_tail(one: LeafPath, other: LeafPath) -> int:
    """How many keys the two paths have in common, from the last one on."""
    count = 0
    while count < min(len(one), len(other)) and one[-1 - count] == other[-1 - count]:
        count += 1
    return count


def _is_text_without_address(draft: Draft, path: LeafPath) -> bool:
    is_text = draft.leaves[path].spec.kind is LeafKind.STRING
    return is_text and not json_pointer.is_addressable(path.text)


def _unaddressed(path: LeafPath) -> Problem:
    return Problem(
        f"the text '{path}' could not be restored",
        why="Orbax finds text leaves by JSON Pointer, in which a `~` must be followed by 0 or 1",
        fix="choose a name without `~`",
        path=str(path),
        field="to",
    )


@cache
def _fault(key: str) -> str:
    """Why a key cannot be stored; empty if it can."""
    if not key:
        return "a key is empty"
    if key.startswith("/"):
        return f"the key '{key}' is absolute: Orbax would write outside of the checkpoint"
    if any(part in ("", ".", "..") for part in key.split("/")):
        return f"the key '{key}' would lead to another directory"
    return "a key contains a null character" if "\0" in key else ""


def _alike(draft: Draft, fresh: Collection[LeafPath]) -> list[Problem]:
    """Orbax joins keys with dots, and a slash in a key is a directory: two leaves may get one place."""
    stored: dict[str, LeafPath] = {}
    problems: list[Problem] = []
    for path in draft.leaves:
        name = stored_name(path)
        other = stored.setdefault(name, path)
        if other is not path and (path in fresh or other in fresh):
            why = f"Orbax joins keys with dots, so both are '{name}', and one value would be lost"
            problems.append(_twice(path, other, why))
    for name, path in stored.items():
        directory = name
        while "/" in directory:
            directory = directory.rpartition("/")[0]
            outer = stored.get(directory)
            if outer is not None and (path in fresh or outer in fresh):
                why = f"'{name}' would lie inside of the directory of '{directory}'"
                problems.append(_twice(path, outer, why))
    return problems


def _twice(path: LeafPath, other: LeafPath, why: str) -> Problem:
    return Problem(
        f"'{path.spelling}' and '{other.spelling}' cannot stand side by side",
        why=why,
        fix="choose another name for one of them",
        path=str(path),
        field="to",
    )


def _no_item(path: LeafPath, items: Collection[str]) -> Problem:
    close = nearest(str(path[0]), items, 1)
    return Problem(
        f"'{path}' belongs to no item",
        why=f"the first key names an item of the step: {', '.join(sorted(items))}",
        fix=f"write `{close[0] if close else min(items)}/…`",
        path=str(path),
        field="to",
    )
