"""Globs matched in linear time, where a regular expression could try too many ways."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from surgery_cli.tree.glob_parts import Choice, Group, Look, Many, One, Optional, Part, Text


class Found(Protocol):
    """How a text was matched; groups count from 1, as in `re`."""

    def groups(self) -> tuple[str | None, ...]: ...
    def span(self, group: int, /) -> tuple[int, int]: ...


class Expression(Protocol):
    """What matches whole texts: a compiled regular expression, or what stands in for one."""

    @property
    def groups(self) -> int: ...
    def fullmatch(self, text: str, /) -> Found | None: ...


class Linear:
    """Matches as the regular expression of the same parts would, and comes to no state twice.

    Source: Russ Cox, "Regular Expression Matching: the Virtual Machine Approach": backtracking with a memory.
    """

    def __init__(self, parts: Sequence[Part], groups: int) -> None:
        self.groups = groups
        self._steps: list[tuple[str, object, int]] = []
        """What to do, with what, and where else to go on.

        `one` test of a character, `look` at a place, `either` next or there, `go`, `mark` a place.
        """
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
                case Look(test):
                    steps.append(("look", re.compile(test), 0))
                case Many(test):
                    each = re.compile(test, re.DOTALL)
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
                elif kind == "look":
                    if not (isinstance(what, re.Pattern) and what.match(text, place)):
                        break
                elif kind == "either":
                    waiting.append((other, place, marks))
                elif kind == "go":
                    at = other
                else:
                    marks = (what, place, marks)
        return None


class _Spans:
    """The places of groups in a text, from the marks that were set on the way to its end, each once."""

    def __init__(self, text: str, marks: object, groups: int) -> None:
        self._text = text
        self._places = [-1] * (2 * groups)
        while isinstance(marks, tuple):
            mark, place, marks = marks
            self._places[mark] = place

    def span(self, group: int, /) -> tuple[int, int]:
        begin, end = self._places[2 * group - 2 : 2 * group]
        return begin, end

    def groups(self) -> tuple[str | None, ...]:
        spans = map(self.span, range(1, len(self._places) // 2 + 1))
        return tuple(None if begin < 0 else self._text[begin:end] for begin, end in spans)
