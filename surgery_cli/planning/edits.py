"""Building one operation from plain values, with everything that is wrong with them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from surgery_cli.errors import PlanError, Problem, SurgeryError
from surgery_cli.operations.base import Operation
from surgery_cli.planning.fields import fields_of, shapes_of, takes_numbers
from surgery_cli.planning.numbers import with_fractions
from surgery_cli.planning.text import nearest_fix, shown
from surgery_cli.tree.dtypes import KNOWN_DTYPES
from surgery_cli.tree.nearness import nearest
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
            worded("add {}: {}", FieldName(field.name, "…"), _purpose(field.description)),
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


def _purpose(description: str) -> str:
    return (
        description[:1].lower() + description[1:].rstrip(".")
        if description
        else "it has no default"
    )


def _article(words: str) -> str:
    """``words`` with an article, where they are a noun.

    >>> _article("number or text"), _article("one of `a`, `b`")
    ('a number or text', 'one of `a`, `b`')
    """
    if words.startswith(("one of", "true or", "anything", "text")):
        return words
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


def _standing(value: Any) -> str:
    """A value with what it is: `the text "abc"`."""
    match value:
        case None:
            return "empty (null)"
        case bool():
            return f"`{shown(value)}`"
        case int() | float():
            return f"the number {shown(value)}"
        case str():
            return f"the text {shown(value)}"
        case list() | tuple():
            return f"the list {shown(value)}"
        case dict():
            return f"the mapping {shown(value)}"
    return f"the {type(value).__name__} {shown(value)}"


class Misfit(Exception):
    """A value that a field does not take. ``within`` leads from the field to the culprit inside it."""

    def __init__(self, problem: Problem, within: tuple[int | str, ...] = ()) -> None:
        super().__init__(problem.what)
        self.problem = problem
        self.within = within


def converted(kind: type[msgspec.Struct], name: str, value: Any) -> Any:
    """``value`` as the struct holds the field ``name``; lists become tuples.

    Raises:
        Misfit: the value has another type, or lies outside of what is allowed.
    """
    annotation = shapes_of(kind)[name].annotation
    is_path = name in getattr(kind, "path_fields", ())  # `number_or_path` looks at those
    if takes_numbers(kind, name) and not is_path:
        try:
            value = with_fractions(value)
        except PlanError as error:
            raise Misfit(msgspec.structs.replace(error.problems[0], field=name)) from None
    try:
        return msgspec.convert(value, annotation)
    except (msgspec.ValidationError, OverflowError) as error:
        within, culprit = _culprit(value, annotation)
        raise Misfit(_problem(kind, name, within, culprit), within) from error


def _culprit(value: Any, annotation: Any) -> tuple[tuple[int | str, ...], Any]:
    """The innermost part of ``value`` that does not fit, and the way to it."""
    if isinstance(value, list) and _fits([], annotation):
        for at, inner in enumerate(value):
            if not _fits([inner], annotation):
                return (at,), inner
    if isinstance(value, dict) and _fits({}, annotation):
        for key, inner in value.items():
            if not _fits({key: inner}, annotation):
                return (key,), inner
    return (), value


def _fits(value: Any, annotation: Any) -> bool:
    try:
        msgspec.convert(value, annotation)
    except (msgspec.ValidationError, OverflowError):
        return False
    return True


def _problem(
    kind: type[msgspec.Struct], name: str, within: tuple[int | str, ...], culprit: Any
) -> Problem:
    field = next(f for f in fields_of(kind) if f.name == name)
    what = worded(
        "{} must be {}, not {}", FieldName(name), _article(field.type_text), _standing(culprit)
    )
    if within:
        item = f"item {within[0] + 1}" if isinstance(within[0], int) else f"the entry `{within[0]}`"
        what = worded(
            "{} must be {}, but {} is {}",
            FieldName(name),
            _article(field.type_text),
            item,
            _standing(culprit),
        )
    close = nearest(culprit, field.choices, 1) if isinstance(culprit, str) else []
    fix = f"the nearest is `{close[0]}`" if close else ""
    if not fix and culprit is None:
        fix = worded("give {} a value, or remove the line", FieldName(name))
    elif (
        not fix
        and field.is_list
        and not within
        and _fits([culprit], shapes_of(kind)[name].annotation)
    ):
        fix = worded("write it as a list: {}", FieldName(name, f"[{shown(culprit)}]"))
    elif not fix and field.type_text.startswith("text like"):
        fix = field.description.rstrip(".")
    elif not fix and "text" in field.type_text and isinstance(culprit, bool | int | float):
        fix = f'if it is a name, put it in quotes: "{shown(culprit)}"'
    return Problem(what, fix=fix, field=name)
