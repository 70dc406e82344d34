"""Sentences that name fields of a plan: each front end spells these as its reader types them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from string import Formatter
from typing import Final, Self

import msgspec


class Span(msgspec.Struct, frozen=True):
    """A part of a sentence for which who says it may know better words; as a string, those that are usual."""


class FieldName(Span, frozen=True):
    """A field of an edit or a plan in a sentence, by its name or with a value as a plan has it: `cast: true`."""

    name: str
    value: str = ""

    def __str__(self) -> str:
        return f"`{self.name}: {self.value}`" if self.value else f"`{self.name}`"


class Entry(FieldName, frozen=True):
    """A field that holds several things by name, with one of them, as `NAME=VALUE`: a mapping in a plan."""

    def __str__(self) -> str:
        name, _, value = self.value.partition("=")
        return f"`{self.name}: {{'{name}': '{value}'}}`"


class InPlan(Span, frozen=True):
    """A line that only a plan can hold, where it goes: `slots: {…}` to the plan."""

    line: str

    def __str__(self) -> str:
        return f"{self.line} to the plan"


class Aside(Span, frozen=True):
    """For who writes a plan: the field that says the same as the option before it."""

    field: FieldName

    def __str__(self) -> str:
        return f" (in a plan {self.field})"


class Offer(Span, frozen=True):
    """What a field would do, added for those who can give it: not every command takes each."""

    field: FieldName
    does: str

    def __str__(self) -> str:
        return f"; {self.field} {self.does}"


class Left(Span, frozen=True):
    """What a run that failed leaves behind: nothing, unless it could not be removed."""

    def __str__(self) -> str:
        return "nothing was left behind"


NOTHING_LEFT: Final = Left()


class Text(str):
    """A sentence that knows the spans in it; as a string it is spelled for plans."""

    __slots__ = ("parts",)
    parts: tuple[str | Span, ...]

    def __new__(cls, *parts: str | Span) -> Self:
        flat = tuple(_flat(parts))
        text = super().__new__(cls, "".join(map(str, flat)))
        text.parts = flat
        return text

    def __add__(self, rest: str) -> Text:
        return Text(self, rest)

    def __radd__(self, start: str) -> Text:
        return Text(start, self)


def _flat(parts: Iterable[str | Span]) -> Iterator[str | Span]:
    for part in parts:
        if isinstance(part, Text):
            yield from part.parts
        else:
            yield part


_TEMPLATE: Final = Formatter()


def worded(template: str, *values: object) -> Text:
    """The template with ``values`` for `{}`, as in `str.format`; `{name}` and `{name: value}` are fields of a plan.

    What a value says is never read as a field: names come from strangers.

    >>> text = worded("leave '{}' out with {except}, or add {cast: true}", "{at}")
    >>> str(text), [part.name for part in text.parts if isinstance(part, FieldName)]
    ("leave '{at}' out with `except`, or add `cast: true`", ['except', 'cast'])
    >>> worded("write {steps: {}..{}}", 1, 5)
    'write `steps: 1..5`'
    """
    left = iter(values)
    return Text(*_filled(template, left))


def _filled(template: str, values: Iterator[object]) -> Iterator[str | Span]:
    for text, name, spec, _ in _TEMPLATE.parse(template):
        yield text
        if name == "":
            value = next(values)
            yield (value if isinstance(value, str | Span) else format(value, spec or ""))
        elif name is not None:
            yield FieldName(name, "".join(map(str, _filled((spec or "").strip(), values))))


def joined(separator: str, texts: Iterable[str]) -> Text:
    """As ``separator.join``, and the spans stay known."""
    parts: list[str] = []
    for text in texts:
        parts += [separator, text]
    return Text(*parts[1:])
