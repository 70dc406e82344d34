"""Globs over printed paths: read once, and matched as a regular expression, or in linear time where that could hang."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final, NamedTuple, Protocol, TypeAlias

_MOST_REPEATS: Final = 3
"""With more wildcards than this, a regular expression may try too many ways to share a text among them."""


class Text(NamedTuple):
    """These very characters."""

    text: str


class One(NamedTuple):
    """One character that the regular expression ``test`` matches."""

    test: str


class Many(NamedTuple):
    """As many characters as possible; none of them a slash, unless ``over_slashes``."""

    over_slashes: bool


class Group(NamedTuple):
    """What is captured."""

    parts: Sequence[Part]


class Optional(NamedTuple):
    """What is there if it can be."""

    parts: Sequence[Part]


class Choice(NamedTuple):
    """The first of the alternatives that fits."""

    alternatives: Sequence[Sequence[Part]]


Part: TypeAlias = Text | One | Many | Group | Optional | Choice


class Found(Protocol):
    """How a text was matched; groups count from 1, as in `re`."""

    def groups(self) -> tuple[str | None, ...]: ...
    def span(self, group: int, /) -> tuple[int, int]: ...


class Expression(Protocol):
    """What matches whole texts: a compiled regular expression, or what stands in for one."""

    @property
    def groups(self) -> int: ...
    def fullmatch(self, text: str, /) -> Found | None: ...


@cache
def compiled(glob: str) -> Expression:
    """What matches the texts that the glob names; every wildcard is a group, in order.

    Raises:
        re.error: a range of characters is none.
        RecursionError: braces are nested too deeply.
    """
    parts = read(glob)
    expression = re.compile(_regex(parts), re.DOTALL)
    repeats = sum(isinstance(part, Many) for part in _every(parts))
    return expression if repeats <= _MOST_REPEATS else _Linear(parts, expression.groups)


def read(glob: str, *, is_capturing: bool = True) -> list[Part]:
    """The parts of a glob; every wildcard is a group, in order."""

    def wildcard(*parts: Part) -> list[Part]:
        return [Group(parts)] if is_capturing else list(parts)

    found: list[Part] = []
    at, after_keys = 0, False
    while at < len(glob):
        rest = glob[at:]
        starts_key = at == 0 or glob[at - 1] == "/"
        was_after_keys, after_keys = after_keys, False
        size = 1
        if rest == "**" and starts_key:
            found += wildcard(Many(True))
            size = 2
        elif rest.startswith("**/") and starts_key:
            # of several one after the other the first takes all that there is
            keys = [*wildcard(Many(True)), Text("/")]
            found += wildcard() if was_after_keys else [Optional(keys)]
            size, after_keys = 3, True
        elif rest == "/**":
            found.append(Optional([Text("/"), *wildcard(Many(True))]))
            size = 3
        elif rest.startswith("*"):
            found += wildcard(Many(False))
            size = len(rest) - len(rest.lstrip("*"))
        elif rest.startswith("?"):
            found += wildcard(One("[^/]"))
        elif (inner := _bracketed(rest)) is not None:
            # `[*]` is how a star that is part of a name is written: a literal, not a wildcard
            is_escape = len(inner) == 1 and inner in "*?[{"
            found += [Text(inner)] if is_escape else wildcard(One(_character_class(inner)))
            size = len(inner) + 2
        elif (choices := _choices(rest)) is not None:
            found += wildcard(Choice([read(choice, is_capturing=False) for choice in choices]))
            size = len(",".join(choices)) + 2
        else:
            found.append(Text(rest[0]))
        at += size
    return found


def _bracketed(rest: str) -> str | None:
    """What stands between the brackets at the start of ``rest``; a first ``]`` belongs to the class."""
    if not rest.startswith("["):
        return None
    end = rest.find("]", 3 if rest[1:2] in ("!", "^") else 2)
    if end < 0:
        end = rest.find("]", 2)
    return rest[1:end] if end > 0 else None


def _character_class(inner: str) -> str:
    """The regular expression of ``[inner]``; never matches a slash."""
    is_negated = len(inner) > 1 and inner[0] in "!^"
    body = re.sub(r"([\\\[\]^&~|])", r"\\\1", inner[is_negated:]).replace("--", r"-\-")
    return f"(?!/)[{'^' if is_negated else ''}{body}]"


def _choices(rest: str) -> list[str] | None:
    """The alternatives of ``{a,b}`` at the start of ``rest``, which may nest."""
    if not rest.startswith("{"):
        return None
    choices, depth = [""], 0
    for character in rest[1:]:
        if character == "}" and depth == 0:
            return choices
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            choices.append("")
        else:
            choices[-1] += character
    return None


def _every(parts: Sequence[Part]) -> Iterator[Part]:
    for part in parts:
        yield part
        if isinstance(part, Group | Optional):
            yield from _every(part.parts)
        elif isinstance(part, Choice):
            for alternative in part.alternatives:
                yield from _every(alternative)


def _regex(parts: Sequence[Part]) -> str:
    """The regular expression of the parts."""
    found = []
    for part in parts:
        match part:
            case Text(text):
                found.append(re.escape(text))
            case One(test):
                found.append(test)
            case Many(over_slashes):
                found.append(".*" if over_slashes else "[^/]*")
            case Group(inner):
                found.append(f"({_regex(inner)})")
            case Optional(inner):
                found.append(f"(?:{_regex(inner)})?")
            case Choice(alternatives):
                found.append(f"(?:{'|'.join(map(_regex, alternatives))})")
    return "".join(found)


class _Linear:
    """Matches as the regular expression of the same parts would, and comes to no state twice.

    Source: Russ Cox, "Regular Expression Matching: the Virtual Machine Approach": backtracking with a memory.
    """

    def __init__(self, parts: Sequence[Part], groups: int) -> None:
        self.groups = groups
        self._steps: list[tuple[str, object, int]] = []
        """What to do, with what, and where else to go on: `one` test, `either` next or there, `go`, `mark` a place."""
        self._marks = 0
        self._add(parts)

    def _add(self, parts: Sequence[Part]) -> None:
        steps = self._steps
        for part in parts:
            match part:
                case Text(text):
                    steps += [("one", re.compile(re.escape(c), re.DOTALL), 0) for c in text]
                case One(test):
                    steps.append(("one", re.compile(test, re.DOTALL), 0))
                case Many(over_slashes):
                    each = re.compile("." if over_slashes else "[^/]", re.DOTALL)
                    at = len(steps)
                    steps += [("either", None, at + 3), ("one", each, 0), ("go", None, at)]
                case Group(inner):
                    mark = self._marks
                    self._marks += 2
                    steps.append(("mark", mark, 0))
                    self._add(inner)
                    steps.append(("mark", mark + 1, 0))
                case Optional(inner):
                    at = len(steps)
                    steps.append(("either", None, 0))
                    self._add(inner)
                    steps[at] = ("either", None, len(steps))
                case Choice(alternatives):
                    self._add_choice(alternatives)

    def _add_choice(self, alternatives: Sequence[Sequence[Part]]) -> None:
        steps, ends = self._steps, []
        for alternative in alternatives[:-1]:
            at = len(steps)
            steps.append(("either", None, 0))
            self._add(alternative)
            ends.append(len(steps))
            steps.append(("go", None, 0))
            steps[at] = ("either", None, len(steps))
        self._add(alternatives[-1])
        for end in ends:
            steps[end] = ("go", None, len(steps))

    def fullmatch(self, text: str, /) -> Found | None:
        steps, done = self._steps, len(self._steps)
        seen: set[tuple[int, int]] = set()
        # where to go on: the step, the place in the text, and the marks so far, newest first
        waiting: list[tuple[int, int, object]] = [(0, 0, None)]
        while waiting:
            at, place, marks = waiting.pop()
            while (at, place) not in seen:
                seen.add((at, place))
                if at == done:
                    if place == len(text):
                        return _Spans(text, marks, self.groups)
                    break
                kind, what, other = steps[at]
                at += 1
                if kind == "one":
                    if not (isinstance(what, re.Pattern) and what.match(text, place)):
                        break
                    place += 1
                elif kind == "either":
                    waiting.append((other, place, marks))
                elif kind == "go":
                    at = other
                else:
                    marks = (what, place, marks)
        return None


class _Spans:
    """The places of groups in a text, from the marks that were set on the way to its end."""

    def __init__(self, text: str, marks: object, groups: int) -> None:
        self._text = text
        self._places = [-1] * (2 * groups)
        while isinstance(marks, tuple):
            mark, place, marks = marks
            if self._places[mark] < 0:
                self._places[mark] = place

    def span(self, group: int, /) -> tuple[int, int]:
        begin, end = self._places[2 * group - 2 : 2 * group]
        return begin, end

    def groups(self) -> tuple[str | None, ...]:
        spans = map(self.span, range(1, len(self._places) // 2 + 1))
        return tuple(None if begin < 0 else self._text[begin:end] for begin, end in spans)
