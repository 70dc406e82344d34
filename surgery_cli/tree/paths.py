"""Leaf paths: tuples of typed keys, and the text that people type and read."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from functools import cache
from typing import TypeAlias

import msgspec

from surgery_cli.errors import PlanError

Key: TypeAlias = str | int
"""A dict key (``str``, also for attributes and NamedTuple fields) or a sequence index (``int``)."""


class LeafPath(tuple[Key, ...]):
    """Where a leaf or a node stands: its keys from the root.

    >>> str(LeafPath(("opt_state", 0, "mu")))
    'opt_state/0/mu'
    >>> LeafPath(("a", "0")) == LeafPath(("a", 0))
    False
    """

    __slots__ = ()

    def __str__(self) -> str:
        return "/".join(map(str, self))

    @property
    def spelling(self) -> str:
        """Unambiguous text: a slash inside a key is ``%2F``, a percent sign ``%25``."""
        return "/".join(_encode(str(key)) for key in self)

    @property
    def parent(self) -> LeafPath:
        return LeafPath(self[:-1])

    def __truediv__(self, tail: Iterable[Key]) -> LeafPath:
        return LeafPath((*self, *tail))

    def is_below(self, node: tuple[Key, ...]) -> bool:
        """True for ``node`` itself and everything under it."""
        return self[: len(node)] == node


def _encode(key: str) -> str:
    return key.replace("%", "%25").replace("/", "%2F")


def decode(segment: str) -> str:
    """A key from its unambiguous spelling; only ``%2F`` and ``%25`` decode."""
    return re.sub("%2[Ff]|%25", lambda m: "%" if m[0] == "%25" else "/", segment)


class Match(msgspec.Struct, frozen=True):
    """How a pattern names a leaf: the groups it captured, and the part of the path it did not cover."""

    groups: tuple[str, ...]
    tail: LeafPath


class PathPattern:
    """A glob (or ``re:`` regular expression) over printed paths.

    ``*`` is anything within one printed key, ``**`` zero or more keys; ``?``, ``[0-9]``, ``{a,b}``.
    A leaf is named if it, or a node above it, matches; a regular expression must match the leaf.

    >>> path = LeafPath(("params", "Dense_1", "kernel"))
    >>> PathPattern("params/Dense_?").match(path).groups
    ('1',)
    >>> PathPattern("**/bias").match(path) is None
    True
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.is_regex = text.startswith("re:")
        if self.is_regex:
            source = text[3:]
        else:
            if not text.strip("/"):
                raise PlanError(
                    "the pattern is empty", why="it would name the whole tree", fix="use `**`"
                )
            source = _translate(text.strip("/"))
        self.is_spelled = not self.is_regex and re.search("%2[Ff]|%25", text) is not None
        self.is_literal = not self.is_regex and not re.search(r"[*?\[{]", text)
        try:
            self._expression = re.compile(source, re.DOTALL)
        except re.error as error:
            raise PlanError(
                f"'{text}' is not a valid pattern",
                why=str(error),
                fix="write `[*]` for a star that is part of a name",
            ) from None

    def __repr__(self) -> str:
        return f"PathPattern({self.text!r})"

    def match(self, path: LeafPath, text: str | None = None) -> Match | None:
        """Match ``path``, or the deepest node above it that matches; ``text`` is ``str(path)`` if known."""
        if text is None or self.is_spelled:
            text = path.spelling if self.is_spelled else str(path)
        found = self._expression.fullmatch(text)
        if found is not None:
            return Match(tuple(g or "" for g in found.groups()), LeafPath())
        if self.is_regex:
            return None
        for depth in range(len(path) - 1, 0, -1):
            node = LeafPath(path[:depth])
            found = self._expression.fullmatch(node.spelling if self.is_spelled else str(node))
            if found is not None:
                return Match(tuple(g or "" for g in found.groups()), LeafPath(path[depth:]))
        return None


@cache
def _translate(glob: str) -> str:
    """The regular expression of a glob; every wildcard is a group, in order."""
    parts: list[str] = []
    at, size = 0, len(glob)
    while at < size:
        rest = glob[at:]
        if rest.startswith("**/") and (at == 0 or glob[at - 1] == "/"):
            parts.append("(?:(.*)/)?")
            at += 3
        elif rest == "**" and at == 0:
            parts.append("(.*)")
            at += 2
        elif rest == "/**":
            parts.append("(?:/(.*))?")
            at += 3
        elif rest.startswith("/**/"):
            parts.append("/(?:(.*)/)?")
            at += 4
        elif rest.startswith("*"):
            at += len(rest) - len(rest.lstrip("*"))
            parts.append("([^/]*)")
        elif rest.startswith("?"):
            parts.append("([^/])")
            at += 1
        elif rest.startswith("[") and "]" in rest[2:]:
            end = rest.index("]", 2)
            inner = rest[1:end].replace("\\", "\\\\").replace("[", "\\[")
            inner = "^/" + inner[1:] if inner.startswith("!") else inner
            # `[*]` is how a star that is part of a name is written: a literal, not a wildcard
            parts.append(re.escape("*") if inner == "*" else f"([{inner}])")
            at += end + 1
        elif rest.startswith("{") and "}" in rest:
            end = rest.index("}")
            parts.append("(" + "|".join(re.escape(x) for x in rest[1:end].split(",")) + ")")
            at += end + 1
        else:
            parts.append(re.escape(rest[0]))
            at += 1
    return "".join(parts)


def nearest(text: str, candidates: Iterable[str], count: int = 3) -> list[str]:
    """The candidates closest to ``text``, best first."""
    pool = list(candidates)
    found = difflib.get_close_matches(text, pool, n=count, cutoff=0.5)
    if len(found) < count:
        last = text.rsplit("/", 1)[-1].strip("*")
        found += [c for c in pool if last and last in c and c not in found][: count - len(found)]
    return found
