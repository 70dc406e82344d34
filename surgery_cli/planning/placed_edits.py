"""Operations read from a place in a document: their faults, with file and line, and where they stand."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import msgspec

from surgery_cli.errors import PlanError, Problem, SurgeryError
from surgery_cli.operations.base import Operation
from surgery_cli.planning.edits import Fault, build
from surgery_cli.planning.plan import Origin, path_value
from surgery_cli.planning.text import PlanText
from surgery_cli.tree.nested import Position


class Place(NamedTuple):
    """A place in a document, to whose file paths in it are relative.

    ``unfilled`` are the positions where a variable could not be filled, which is reported already; ``sources`` are the
    names of checkpoints that the document gives. ``is_linted``: no checkpoint is there that would be looked at next.
    """

    text: PlanText
    position: Position
    directory: str
    unfilled: Collection[Position] = ()
    sources: Mapping[str, str] = {}
    is_linted: bool = False

    def within(self, *keys: int | str) -> Place:
        """A place inside of this one."""
        return self._replace(position=(*self.position, *keys))

    @property
    def is_unfilled(self) -> bool:
        """True if what stands there is not what was meant."""
        return self.position in self.unfilled

    def problem(self, what: str, **details: Any) -> Problem:
        """A problem with what stands here."""
        return self.text.problem(self.position, what, **details)

    def origin(self, number: int, fields: Mapping[str, Any]) -> Origin:
        """Where the edit stands, and each of its fields."""
        known = {name: self.text.mark((*self.position, name)) for name in fields}
        return Origin(
            number=number,
            file=self.text.file or None,
            mark=self.text.mark(self.position),
            marks={name: mark for name, mark in known.items() if mark is not None},
        )


def built(
    place: Place, kind: type[Operation], given: Mapping[str, Any], *, why: str
) -> tuple[Operation | None, list[Problem]]:
    """The operation with the fields that stand at a ``place``, None if there is none; and what is wrong with them.

    ``why`` says in a few words whose fields they are.
    """
    fields = dict(given)
    depth = len(place.position)
    unfilled = {
        str(at[depth]) for at in place.unfilled if at[:depth] == place.position and len(at) > depth
    }
    faults = []
    for key in (set(kind.path_fields) & set(fields)) - unfilled:
        try:
            fields[key] = _path(place, kind, key, fields[key])
        except PlanError as error:
            unfilled.add(key)
            faults.append(Fault(error.problems[0], (key,)))
    edit, more = build(kind, fields, unfilled=unfilled)
    if edit is not None and place.is_linted:
        more = _value_faults(edit)
    return edit, [_located(place, fault, why) for fault in faults + more]


def _value_faults(edit: Operation) -> list[Fault]:
    """What no checkpoint could make right, which else is said once one was opened."""
    try:
        edit.check_values()
    except SurgeryError as error:
        return [Fault(p, (p.field,) if p.field else ()) for p in error.problems]
    return []


def _path(place: Place, kind: type[Operation], key: str, value: Any) -> Any:
    """The value of a field that may hold a path, relative to the document. Raises as `path_value`."""
    if value == "":
        raise PlanError(f"`{key}` is empty", fix="name a file, a checkpoint or a source", field=key)
    return path_value(kind, key, value, place.directory, place.sources)


def _located(place: Place, fault: Fault, why: str) -> Problem:
    said = f"{why}: {fault.problem.why}" if fault.problem.why else why
    there = place.text.place((*place.position, *fault.position))
    return msgspec.structs.replace(fault.problem, why=said, **there)
