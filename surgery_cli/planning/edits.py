"""Building one operation from plain values, with everything that is wrong with them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from surgery_cli.errors import PlanError, Problem, SurgeryError
from surgery_cli.operations.base import Operation
from surgery_cli.planning.fields import fields_of
from surgery_cli.planning.text import nearest_fix
from surgery_cli.planning.values import Misfit, converted, purpose
from surgery_cli.tree.dtypes import KNOWN_DTYPES
from surgery_cli.tree.nested import Position
from surgery_cli.tree.paths import PathPattern
from surgery_cli.tree.specs import names_dtype
from surgery_cli.words.advice import FieldName, joined, worded
from surgery_cli.words.tasks import recipe_for


class Fault(msgspec.Struct, frozen=True):
    """A problem with an edit; ``position`` leads from the edit to the value at fault."""

    problem: Problem
    position: Position


def build(
    kind: type[Operation], values: Mapping[str, Any], *, unfilled: Collection[str] = ()
) -> tuple[Operation | None, list[Fault]]:
    """An operation from the ``values`` of its fields (named as in plans), or None and what is wrong.

    ``unfilled`` names fields whose values are known to be wrong and reported already.
    """
    known = {field.name: field for field in fields_of(kind)}
    tag = kind.__struct_config__.tag
    faults: list[Fault] = []
    arguments: dict[str, Any] = {}
    for name, value in values.items():
        if name in unfilled:
            continue
        if name not in known:
            faults.append(
                _fault(
                    name,
                    worded("`{}` has no field {}", tag, FieldName(name)),
                    nearest_fix(
                        name,
                        list(known),
                        otherwise=recipe_for(name)
                        or f"`surgery operations {tag}` lists its fields",
                    ),
                )
            )
            continue
        try:
            arguments[known[name].attribute] = converted(kind, name, value)
        except Misfit as misfit:
            faults.append(Fault(misfit.problem, (name, *misfit.within)))
    faults += [
        _fault(
            field.name,
            worded("`{}` needs {}", tag, FieldName(field.name)),
            worded("add {}: {}", FieldName(field.name, "…"), purpose(field.description)),
            within=(),
        )
        for field in known.values()
        if field.required and field.name != "at" and field.name not in values
    ]
    if not {"at", *kind.instead_of_at} & {*unfilled} and not any(
        f.problem.field == "at" for f in faults
    ):
        faults += _selection_faults(kind, arguments.get("at", ()), values)
    faults += _pattern_faults("at", arguments.get("at", ()))
    faults += _pattern_faults("except", arguments.get("except_", ()))
    faults += _dtype_faults({f.name: arguments.get(f.attribute) for f in known.values()}, kind)
    if faults or unfilled:
        return None, faults
    try:
        return kind(**arguments), []
    except SurgeryError as error:
        return None, [Fault(p, (p.field,) if p.field else ()) for p in error.problems]


def _selection_faults(
    kind: type[Operation], at: str | tuple[str, ...], values: Mapping[str, Any]
) -> list[Fault]:
    """What is wrong if nothing says which leaves the edit is about."""
    if at or any(values.get(name) for name in kind.instead_of_at):
        return []
    tag = kind.__struct_config__.tag
    if "at" in values:
        return [
            _fault(
                "at",
                worded("{at} of `{}` is empty", tag),
                worded("name leaves: {at: params/Dense_0/kernel}; all of them: {at: '**'}"),
            )
        ]
    if kind.selects_everything_without_at:
        return []
    others = joined("", (worded(" or {}", FieldName(name)) for name in kind.instead_of_at))
    return [
        _fault(
            "at",
            worded("`{}` needs {at}{}", tag, others),
            worded("say which leaves: {at: params/Dense_0/kernel}"),
            within=(),
        )
    ]


def selection_problems(edit: Operation) -> list[Problem]:
    """What is wrong with the patterns of an operation that was built in Python."""
    named = {
        name: getattr(edit, f.attribute)
        for f in fields_of(type(edit))
        if (name := f.name) in edit.instead_of_at
    }
    faults = _selection_faults(type(edit), edit.at, named)
    faults += _pattern_faults("at", edit.at) + _pattern_faults("except", edit.except_)
    faults += _dtype_faults(
        {f.name: getattr(edit, f.attribute) for f in fields_of(type(edit))}, type(edit)
    )
    return [fault.problem for fault in faults]


def _pattern_faults(name: str, patterns: str | tuple[str, ...]) -> list[Fault]:
    faults: list[Fault] = []
    is_single = isinstance(patterns, str)
    for at, pattern in enumerate([patterns] if isinstance(patterns, str) else patterns):
        if is_single and not pattern:
            continue  # an empty `at` is reported as such; an empty `except` excludes nothing
        try:
            PathPattern(pattern)
        except PlanError as error:
            position: Position = (name,) if is_single else (name, at)
            faults += [
                Fault(msgspec.structs.replace(p, field=name), position) for p in error.problems
            ]
    return faults


def _dtype_faults(values: Mapping[str, Any], kind: type[Operation]) -> list[Fault]:
    """Fields that name a dtype which no leaf can have; one that is empty or not given names none."""
    return [
        _fault(
            name,
            worded("{} names no dtype that a leaf can have", FieldName(name, wanted)),
            nearest_fix(
                wanted.rstrip("*"),
                ["floating", "integer", *KNOWN_DTYPES],
                otherwise="write `floating`, `integer`, `float32`, `bfloat16`, `int*`, …",
            ),
        )
        for name in kind.dtype_fields
        if (wanted := values.get(name)) and not names_dtype(wanted)
    ]


def _fault(field: str, what: str, fix: str, within: Position | None = None) -> Fault:
    return Fault(Problem(what, fix=fix, field=field), (field,) if within is None else within)
