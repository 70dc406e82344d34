"""A value of a plan as a field holds it, and what is said of one that it does not take."""

from __future__ import annotations

from typing import Any

import msgspec

from surgery_cli.errors import PlanError, Problem
from surgery_cli.planning.fields import fields_of, shapes_of, takes_numbers
from surgery_cli.planning.numbers import with_fractions
from surgery_cli.planning.text import shown
from surgery_cli.tree.nearness import nearest
from surgery_cli.words.advice import FieldName, worded


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
        problem = _problem(kind, name, within, culprit)
        if not problem.fix and isinstance(culprit, bool | int | float):
            text = shown(culprit)
            if _fits(_with(value, within, text), annotation):
                fix = f'if it is a name, put it in quotes: "{text}"'
                problem = msgspec.structs.replace(problem, fix=fix)
        raise Misfit(problem, within) from error


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


def _with(value: Any, within: tuple[int | str, ...], part: Any) -> Any:
    """``value`` with another part where ``within`` leads."""
    if not within:
        return part
    if isinstance(value, dict):
        return {**value, within[0]: part}
    return [part if at == within[0] else one for at, one in enumerate(value)]


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
    elif not fix and not within and _fits({}, shapes_of(kind)[name].annotation):
        fix = purpose(field.description)
    return Problem(what, fix=fix, field=name)


def purpose(description: str) -> str:
    """The description of a field, as the end of a sentence that says what to add."""
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
