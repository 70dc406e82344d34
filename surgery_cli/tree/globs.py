"""Globs over printed paths: read once, and matched as a regular expression, or in linear time where that could hang."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

from surgery_cli.errors import PlanError
from surgery_cli.inputs.limits import NESTING
from surgery_cli.tree.glob_parts import (
    Choice,
    Group,
    Look,
    Many,
    One,
    Optional,
    Part,
    Text,
    every,
    regex,
)
from surgery_cli.tree.linear_matching import Expression, Linear
from surgery_cli.tree.number_parts import numbers_part
from surgery_cli.tree.number_ranges import NumberRange, read_range
from surgery_cli.tree.regular_expressions import regular_expression
from surgery_cli.tree.spelling import SPECIAL

_MOST_REPEATS: Final = 3
"""With more wildcards than this, a regular expression may try too many ways to share a text among them."""
_MOST_CHOICES: Final = 10_000
"""Likewise with more ways than this to choose from braces."""


@cache
def compiled(glob: str, *, takes_zeros: bool = False) -> Expression:
    """What matches the texts that the glob names; every wildcard is a group, in order.

    ``takes_zeros``: numbers of a range may have zeros in front that it does not say.

    Raises:
        PlanError: braces or brackets are wrong.
        re.error: a range of characters is none.
        RecursionError: braces are nested too deeply.
    """
    parts = read(glob, takes_zeros=takes_zeros)
    expression = regular_expression(regex(parts))
    inner = list(every(parts))
    repeats = sum(isinstance(part, Many) for part in inner)
    choices = math.prod(
        part.ways or len(part.alternatives) for part in inner if isinstance(part, Choice)
    )
    if repeats <= _MOST_REPEATS and choices <= _MOST_CHOICES:
        return expression
    return Linear(parts, expression.groups)


def read(
    glob: str,
    *,
    is_capturing: bool = True,
    takes_zeros: bool = False,
    beside: tuple[str, str] = ("", ""),
) -> list[Part]:
    """The parts of a glob; every wildcard is a group, in order.

    ``beside``: the characters before and after it, where it stands between braces.
    """

    def wildcard(*parts: Part, numbers: NumberRange | None = None) -> list[Part]:
        return [Group(parts, numbers)] if is_capturing else list(parts)

    found: list[Part] = []
    at, after_keys = 0, False
    while at < len(glob):
        rest = glob[at:]
        starts_key = at == 0 or glob[at - 1] == "/"
        was_after_keys, after_keys = after_keys, False
        size = 1
        if rest == "**" and starts_key:
            found += wildcard(Many("."))
            size = 2
        elif rest.startswith("**/") and starts_key:
            # of several one after the other the first takes all that there is
            keys = [*wildcard(Many(".")), Text("/")]
            found += wildcard() if was_after_keys else [Optional(keys)]
            size, after_keys = 3, True
        elif rest == "/**":
            found.append(Optional([Text("/"), *wildcard(Many("."))]))
            size = 3
        elif rest.startswith("*"):
            found += wildcard(Many("[^/]"))
            size = len(rest) - len(rest.lstrip("*"))
        elif rest.startswith("?"):
            found += wildcard(One("[^/]"))
        elif (inner := _bracketed(rest)) is not None:
            # `[*]` is how a star that is part of a name is written: a literal, not a wildcard
            is_escape = len(inner) == 1 and inner in SPECIAL
            found += [Text(inner)] if is_escape else wildcard(One(_character_class(inner, glob)))
            size = len(inner) + 2
        elif rest[0] in "{}":
            choices = _choices(rest)
            if choices is None:
                raise _unbalanced(rest[0], glob)
            size = len(",".join(choices)) + 2
            around = (glob[at - 1] if at else beside[0], (glob + beside[1])[at + size :][:1])
            found += _braces(choices, around, takes_zeros, wildcard)
        else:
            found.append(Text(rest[0]))
        at += size
    return found


def _braces(
    choices: Sequence[str],
    around: tuple[str, str],
    takes_zeros: bool,
    wildcard: Callable[..., list[Part]],
) -> list[Part]:
    """A choice of alternatives; of a range of numbers, what only looks at its neighbours stays outside of the group."""
    alternatives = [_alternative(choice, around, takes_zeros) for choice in choices]
    if len(choices) == 1 and (numbers := read_range(choices[0])):
        before, *digits, after = alternatives[0]
        return [before, *wildcard(*digits, numbers=numbers), after]
    return wildcard(Choice(alternatives))


@cache
def ranges(glob: str) -> dict[int, NumberRange]:
    """The ranges of numbers in a glob that are a wildcard of their own, by the number of its group, from 0."""
    groups = (part for part in every(read(glob)) if isinstance(part, Group))
    return {number: group.numbers for number, group in enumerate(groups) if group.numbers}


def _alternative(text: str, around: tuple[str, str], takes_zeros: bool) -> list[Part]:
    """One of the texts between braces: a range of numbers, or a glob.

    A range stands for whole numbers: `{0..3}*` does not take the 1 of `12`. Digits, classes and braces right beside
    it are a part of what is asked for: `1{0..3}`.
    """
    numbers = read_range(text)
    if numbers is None:
        return read(text, is_capturing=False, takes_zeros=takes_zeros, beside=around)
    before, after = around
    zeros = [Many("0")] if takes_zeros and not numbers.width else []
    return [
        Look("" if before and before in "0123456789}]" else "(?<![0-9])"),
        *zeros,
        numbers_part(numbers),
        Look("" if after and after in "0123456789{[" else "(?![0-9])"),
    ]


def _bracketed(rest: str) -> str | None:
    """What stands between the brackets at the start of ``rest``; a first ``]`` belongs to the class."""
    if not rest.startswith("["):
        return None
    end = rest.find("]", 3 if rest[1:2] in ("!", "^") else 2)
    if end < 0:
        end = rest.find("]", 2)
    return rest[1:end] if end > 0 else None


_LIKE_NUMBERS: Final = re.compile(r"([!^]?)([0-9]+-[0-9]+(?:,[0-9]+(?:-[0-9]+)?)*)")


def _character_class(inner: str, glob: str) -> str:
    """The regular expression of ``[inner]``; never matches a slash.

    Raises:
        PlanError: it looks like a range of numbers.
    """
    meant = _LIKE_NUMBERS.fullmatch(inner)
    if meant and re.search("[0-9]{2}", inner):
        braces = "{" + meant[2].replace("-", "..") + "}"
        raise PlanError(
            f"`[{inner}]` in '{glob}' looks like a range of numbers",
            why=f"brackets stand for one character{_characters(meant[2])}",
            fix=f"name everything, and leave out `{braces}` as an exception"
            if meant[1]
            else f"write `{glob.replace(f'[{inner}]', braces)}`",
        )
    is_negated = len(inner) > 1 and inner[0] in "!^"
    body = re.sub(r"([\\\[\]^&~|])", r"\\\1", inner[is_negated:]).replace("--", r"-\-")
    return f"(?!/)[{'^' if is_negated else ''}{body}]"


def _characters(inner: str) -> str:
    """The digits of a class, for people: `: 0, 1 or 2`."""
    try:
        digits = re.findall(f"[{inner}]", "0123456789")
    except re.error:
        return ""
    return f": {', '.join(digits[:-1])} or {digits[-1]}" if digits[1:] else ""


def _choices(rest: str) -> list[str] | None:
    """The alternatives of ``{a,b}`` at the start of ``rest``, which may nest.

    Raises:
        RecursionError: more deeply than the limit `nesting` allows.
    """
    if not rest.startswith("{"):
        return None
    choices, depth, at = [""], 0, 1
    while at < len(rest):
        character = rest[at]
        inner = _bracketed(rest[at:]) if character == "[" else None
        if inner is not None:
            character = f"[{inner}]"
        if character == "}" and depth == 0:
            return choices
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth > NESTING.most:
            raise RecursionError
        if character == "," and depth == 0:
            choices.append("")
        else:
            choices[-1] += character
        at += len(character)
    return None


def _unbalanced(brace: str, glob: str) -> PlanError:
    other = "}" if brace == "{" else "{"
    return PlanError(
        f"'{glob}' has a `{brace}` without its `{other}`",
        why="braces hold alternatives, `{a,b}`, or a range of numbers, `{0..11}`",
        fix=f"add the `{other}`, or write `[{brace}]` for a brace that is part of a name",
    )
