"""Leaf paths: tuples of typed keys, and the text that people type and read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Self, TypeAlias

import msgspec

from surgery_cli.errors import PlanError
from surgery_cli.inputs.limits import PATTERN
from surgery_cli.tree.regular_expressions import regular_expression, time_limit
from surgery_cli.tree.spelling import is_spelled, spelled, typed, unescaped

if TYPE_CHECKING:
    from surgery_cli.tree.linear_matching import Expression
    from surgery_cli.tree.number_ranges import NumberRange

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
        r"""How the path is shown, which can be pasted as a pattern that names it.

        >>> print(LeafPath(("layers", "[x]")), LeafPath(("a/b",)), LeafPath(("line\nbreak",)))
        layers/[[]x] a/b line%0Abreak
        """
        return typed([*map(str, self)])

    @property
    def text(self) -> str:
        """The keys joined by slashes, as they are: what patterns are matched against."""
        return "/".join(map(str, self))

    @property
    def spelling(self) -> str:
        """Unambiguous text: a slash inside a key is ``%2F``, a percent sign ``%25``."""
        text = self.text
        if "%" not in text and text.count("/") == len(self) - 1:
            return text  # no key holds a slash or a percent sign
        return "/".join(spelled(str(key)) for key in self)

    @property
    def exact_pattern(self) -> str:
        """The pattern that means this path and none with a key that holds slashes."""
        return typed([*map(str, self)], is_exact=True)

    @property
    def parent(self) -> LeafPath:
        return LeafPath(self[:-1])

    def __truediv__(self, tail: Iterable[Key]) -> LeafPath:
        return LeafPath((*self, *tail))

    def is_below(self, node: tuple[Key, ...]) -> bool:
        """True for ``node`` itself and everything under it."""
        return self[: len(node)] == node


def stored_name(path: LeafPath) -> str:
    """The name under which Orbax stores a leaf: its keys joined by dots."""
    return ".".join(map(str, path))


class Match(msgspec.Struct, frozen=True):
    """How a pattern names a leaf.

    ``node`` is the part of the path that the pattern covers (the leaf itself, or a node above it), ``tail`` the
    rest. ``groups`` are the captured texts in order, ``spans`` where they stand in the node's text.
    """

    groups: tuple[str, ...]
    tail: LeafPath
    node: LeafPath = LeafPath()
    spans: tuple[tuple[int, int], ...] = ()
    is_spelled: bool = False

    def keys(self, group: int) -> LeafPath | None:
        """The typed keys that group ``group`` (from 0) covers, None if it cuts through a key.

        >>> PathPattern("layers/*/w").match(LeafPath(("layers", 0, "w"))).keys(0)
        (0,)
        """
        start, end = self.spans[group]
        if start == end:
            return LeafPath()
        covered: list[Key] = []
        at = 0
        for key in self.node:
            size = len(spelled(str(key)) if self.is_spelled else str(key))
            if start <= at < end:
                covered.append(key)
            if (at < start < at + size) or (at < end < at + size):
                return None
            at += size + 1
        return LeafPath(covered)


class PathPattern:
    """A glob (or ``re:`` regular expression) over printed paths.

    ``*`` is anything within one printed key, ``**`` zero or more keys; ``?``, ``[0-9]``, ``{a,b}``, ``{0..11}``; a
    special character in brackets (``[*]``) stands for itself. A leaf is named if it, or a node above it, matches; a
    regular expression must match the leaf. Of several nodes that match, the deepest counts.

    >>> path = LeafPath(("params", "Dense_1", "kernel"))
    >>> PathPattern("params/Dense_?").match(path).groups
    ('1',)
    >>> PathPattern("**/bias").match(path) is None
    True
    """

    def __init__(self, text: str, *, takes_zeros: bool = False) -> None:
        """``takes_zeros``: numbers of a range may have zeros in front that it does not say."""
        from surgery_cli.tree import globs

        PATTERN.check(len(text), "a pattern", PlanError)
        self.text = text
        self.is_regex = text.startswith("re:")
        glob = unescaped(text.strip("/"))
        if not self.is_regex and not glob:
            raise PlanError(
                "the pattern is empty",
                why="it would name the whole tree",
                fix="use `**`; a leaf whose only key is the empty text is `re:`",
            )
        try:
            self._expression: Expression = (
                regular_expression(text[3:])
                if self.is_regex
                else globs.compiled(glob, takes_zeros=takes_zeros)
            )
        except RecursionError:
            raise PlanError("the pattern is nested too deeply", fix="use fewer braces") from None
        except re.error as error:
            raise PlanError(
                f"'{text}' is not a valid pattern",
                why=str(error),
                fix="in front of a character that stands for itself, write a backslash"
                if self.is_regex
                else "write `[*]` for a star that is part of a name",
            ) from None
        self.is_spelled = not self.is_regex and is_spelled(text)
        self.captures = self._expression.groups
        """How many parts of a path it captures: its wildcards, or its groups."""
        self.is_literal = not self.is_regex and self.captures == 0
        self.ranges: Mapping[int, NumberRange] = (
            {} if self.is_regex or ".." not in glob else globs.ranges(glob)
        )
        """The ranges of numbers that are a group of their own, by the number of the group, from 0."""
        self._head = "" if self.is_regex else _literal_head(glob)

    def __repr__(self) -> str:
        return f"PathPattern({self.text!r})"

    def match(self, path: LeafPath, text: str | None = None) -> Match | None:
        """Match ``path``, or the deepest node above it that matches; ``text`` is ``path.text`` if known."""
        return self.named({path: path.text if text is None else text}).get(path)

    def named(self, texts: Mapping[LeafPath, str]) -> dict[LeafPath, Match]:
        """The leaves that the pattern names, in order; ``texts`` are those of all leaves, ``path.text``.

        Raises:
            PlanError: a regular expression takes too long.
        """
        with time_limit(self.text) if self.is_regex else nullcontext():
            return self._named(texts)

    def _named(self, texts: Mapping[LeafPath, str]) -> dict[LeafPath, Match]:
        known: dict[LeafPath, Match | None] = {}
        found: dict[LeafPath, Match] = {}
        for path, printed in texts.items():
            text = path.spelling if self.is_spelled else printed
            if not text.startswith(self._head):
                continue
            match = self._deepest(path, text, known)
            if match is not None:
                tail = LeafPath(path[len(match.node) :])
                found[path] = Match(match.groups, tail, match.node, match.spans, match.is_spelled)
        return found

    def _deepest(
        self, path: LeafPath, text: str, known: dict[LeafPath, Match | None]
    ) -> Match | None:
        """The match of ``path`` or of the deepest node above it; ``known`` remembers nodes."""
        found = self._expression.fullmatch(text)
        if found is not None:
            groups = tuple(group or "" for group in found.groups())
            spans = tuple(found.span(index + 1) for index in range(len(groups)))
            return Match(groups, LeafPath(), path, spans, self.is_spelled)
        if self.is_regex or len(path) < 2:
            return None
        node = path.parent
        if node not in known:
            last = str(path[-1])
            size = len(spelled(last) if self.is_spelled else last)
            known[node] = self._deepest(node, text[: len(text) - size - 1], known)
        return known[node]

    def matches(self, node: LeafPath) -> bool:
        """True if the pattern covers just this leaf or node, and not only one above it."""
        text = node.spelling if self.is_spelled else node.text
        with time_limit(self.text) if self.is_regex else nullcontext():
            return self._expression.fullmatch(text) is not None


class Selection(tuple[LeafPath, ...]):  # noqa: SLOT001 - a tuple of any length has no named slots
    """The leaves that an edit names, in the tree's order, and how its patterns name them.

    ``named`` holds what each pattern names, ``excluded`` what exceptions left out of that.
    """

    named: Mapping[PathPattern, Mapping[LeafPath, Match]]
    excluded: frozenset[LeafPath]

    def __new__(
        cls,
        leaves: Iterable[LeafPath],
        named: Mapping[PathPattern, Mapping[LeafPath, Match]],
        excluded: frozenset[LeafPath] = frozenset(),
    ) -> Self:
        selection = super().__new__(cls, leaves)
        selection.named, selection.excluded = named, excluded
        return selection

    def __contains__(self, path: object) -> bool:
        return path in self.leaves

    @cached_property
    def leaves(self) -> frozenset[LeafPath]:
        """The same leaves, without their order."""
        return frozenset(self)

    @cached_property
    def printed(self) -> frozenset[str]:
        """The texts of the same leaves."""
        return frozenset(path.text for path in self)

    def by_pattern(self) -> Iterator[tuple[PathPattern, dict[LeafPath, Match]]]:
        """What each pattern names of the selected leaves."""
        for pattern, found in self.named.items():
            yield pattern, {leaf: match for leaf, match in found.items() if leaf in self.leaves}

    def match(self, leaf: LeafPath) -> tuple[PathPattern, Match]:
        """The first pattern that names the leaf, and how."""
        return next((p, found[leaf]) for p, found in self.named.items() if leaf in found)

    def nodes(self) -> list[LeafPath]:
        """What the patterns match, each once: leaves, or nodes above them."""
        matches = (match for _, found in self.by_pattern() for match in found.values())
        return list(dict.fromkeys(match.node for match in matches))

    def topmost(self) -> dict[LeafPath, LeafPath]:
        """For each leaf the topmost node that a pattern matches; a regular expression matches leaves only."""
        globs = [pattern for pattern in self.named if not pattern.is_regex]
        known: dict[LeafPath, LeafPath | None] = {LeafPath(): None}

        def top(node: LeafPath) -> LeafPath | None:
            if node not in known:
                is_matched = any(pattern.matches(node) for pattern in globs)
                known[node] = top(node.parent) or (node if is_matched else None)
            return known[node]

        return {leaf: top(leaf.parent) or leaf for leaf in self}

    def narrowed(self, leaves: Iterable[LeafPath]) -> Selection:
        """The same patterns, and other leaves that are meant by them."""
        return Selection(leaves, self.named, self.excluded)


def _literal_head(glob: str) -> str:
    """What every text that the glob, or something below it, matches must begin with."""
    head = re.split(r"[*?\[{]", glob, maxsplit=1)[0]
    # `a/**` also names `a` itself
    return head.removesuffix("/") if glob[len(head) :].startswith("**") else head
