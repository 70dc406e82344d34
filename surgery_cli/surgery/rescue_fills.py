"""What stands in the result of a rescue for what is lost: of an older step, or as the training script begins."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final, Literal, NamedTuple

from surgery_cli.engine.progress import Listener
from surgery_cli.errors import CheckpointError, PlanError, UnseenError
from surgery_cli.salvage.decoded_arrays import spec_of
from surgery_cli.salvage.file import format_of_broken
from surgery_cli.salvage.filling import Fill, FillBy, fills_of, fills_of_script
from surgery_cli.salvage.likeness import (
    Alike,
    like_checkpoint,
    like_nothing,
    like_script,
    refuse_unlike,
)
from surgery_cli.salvage.older_steps import like, standing_for
from surgery_cli.salvage.place import BrokenPlace
from surgery_cli.salvage.survey import Survey
from surgery_cli.salvage.survey import survey as survey_of
from surgery_cli.script.function import Script, read_script
from surgery_cli.script.initial_values import initial_values
from surgery_cli.script.items import aligned
from surgery_cli.script.user_code import Say
from surgery_cli.store import filesystem
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.open.file_item import FileItem
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec, TreeSpec

_UNKNOWN: Final = LeafSpec(kind=LeafKind.EMPTY, empty="None")
"""Of leaves of which nothing is left that describes them."""


class Asked(NamedTuple):
    """What may stand for what is lost: of the structure, and of values; see ``surgery.rescue``."""

    like: str | None
    like_init: str | None
    fill_from: str | None
    fill: Literal["init"] | None
    fill_by: FillBy

    def check(self) -> None:
        """Refuse what contradicts itself, or lacks what it needs.

        Raises:
            PlanError: so.
        """
        if self.fill is not None and self.fill_from is not None:
            raise PlanError(
                "`--fill` and `--fill-from` both say what stands for what is lost",
                fix="give one of them",
            )
        if self.fill is not None and self.like_init is None:
            raise PlanError(
                "`--fill init` needs the function that makes the state",
                fix="add `--like-init`, e.g. `--like-init train.py:create_state`",
            )
        if self.like is not None and self.like_init is not None:
            raise PlanError(
                "`--like` and `--like-init` both say what the structure is",
                fix="give one of them",
            )


class Surveyed(NamedTuple):
    """What is left, what fills the rest, and the checkpoint that it is of, if it is of one.

    ``like`` is the address of the checkpoint that gives the structure where the metadata is lost, if one does.
    """

    survey: Survey
    fills: dict[LeafPath, Fill]
    other: Checkpoint | None
    like: str


def surveyed(
    place: BrokenPlace, asked: Asked, memory_bytes: int, listener: Listener | None, say: Say
) -> Surveyed:
    """What is left, and what stands for the rest.

    Raises:
        SurgeryError: what was asked for cannot be used, or does not have what is lost.
    """
    is_file = filesystem.is_file(place.root)
    if is_file and (asked.like or asked.like_init):
        raise PlanError(
            f"'{place.root}' is one file, which only another file of its format can fill",
            fix="`--fill-from` an older one; or `--allow-partial`, and add what is lost by edits",
        )
    script = read_script(asked.like_init, say=say) if asked.like_init else None
    if asked.fill_from is None:
        alike, named = _alike(place, asked, script, None)
        survey = survey_of(place, alike, memory_bytes, listener)
        fills = (
            {}
            if asked.fill is None or script is None
            else _of_init(survey, script, asked.fill_by, say)
        )
        return Surveyed(survey, fills, None, named)
    others = standing_for(asked.fill_from, place)
    first = next(others)
    alike, named = _alike(place, asked, script, first)
    file = _same_format(place, first) if is_file else None
    survey = survey_of(place, alike, memory_bytes, listener, file)
    fills, other = _from(survey, first, others, asked.fill_by, memory_bytes)
    return Surveyed(survey, fills, other, named)


def _same_format(place: BrokenPlace, other: Checkpoint) -> FileItem:
    """The other file, from which a broken one is filled.

    Raises:
        PlanError: it is of another format, or a directory.
    """
    (item,) = other.items.values()
    form = format_of_broken(place.root)
    is_one = isinstance(item, FileItem) and not filesystem.is_folder(item.directory)
    if not isinstance(item, FileItem) or not is_one or item.format is not form:
        raise PlanError(
            f"'{other.location.argument}' cannot fill '{place.root.name}'",
            why=f"it is {item.layout}, and that is a file of {form}",
            fix="name a whole file of the same format, e.g. of an older step",
        )
    return item


def _alike(
    place: BrokenPlace, asked: Asked, script: Script | None, other: Checkpoint | None
) -> tuple[Alike, str]:
    """What gives the structure where the metadata is lost, and the address of that, if it is a checkpoint."""
    if asked.like is not None:
        named = like(asked.like, place)
        alike = like_checkpoint(named, place)
        refuse_unlike(alike, place, asked.like)
        return alike, named.address
    if script is not None:
        return like_script(script.abstract), ""
    return (like_nothing, "") if other is None else (like_checkpoint(other, place), other.address)


def _from(
    survey: Survey,
    first: Checkpoint,
    others: Iterator[Checkpoint],
    fill_by: FillBy,
    memory_bytes: int,
) -> tuple[dict[LeafPath, Fill], Checkpoint]:
    """What the first checkpoint gives that can be read as it was written; and which that is.

    Raises:
        PlanError: it has not what is lost.
        CheckpointError: none can be read.
    """
    failed: CheckpointError | None = None
    for other in chain([first], others):
        try:
            return fills_of(survey, other, fill_by, memory_bytes), other
        except UnseenError:
            raise
        except CheckpointError as error:
            failed = error
    assert failed is not None
    raise failed


def _of_init(survey: Survey, script: Script, fill_by: FillBy, say: Say) -> dict[LeafPath, Fill]:
    """What the script's function gives of what is not whole; nothing else of it is computed.

    Raises:
        PlanError: it returns no such leaf, or one of another shape or dtype.
        SurgeryError: it fails; the user's own line is shown.
    """
    tree, lost = {}, []
    for name, leaves in survey.leaves.items():
        for inner, leaf in leaves.items():
            path = survey.path(name, inner)
            array = leaf.array
            tree[path] = _UNKNOWN if array is None else spec_of(array, LeafKind.ARRAY)
            if leaf.state != "whole":
                lost.append(path)
    stored = TreeSpec(tree)
    abstract = aligned(script.name, script.abstract, stored, list(survey.items)).abstract
    spelled = abstract.spelling(stored)
    where = {spelled(path): abstract.returned[path] for path in abstract.tree}
    wanted = {path: where[path] for path in lost if path in where}
    values = initial_values(script.name, set(wanted.values()), say=say)
    given = {path: values[place] for path, place in wanted.items() if place in values}
    return fills_of_script(survey, given, script.name, fill_by)
