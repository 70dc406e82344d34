"""Patterns read as the page on the command line says, without a look at how the program does it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from tests.random_plans.model import Leaf, Path, Refused, State, printed, spelled


def _key_expression(key: str) -> str:
    """One key of a glob: wildcards stay within it."""
    found = ""
    at = 0
    while at < len(key):
        character = key[at]
        if character == "*":
            found += "([^/]*)"
        elif character == "?":
            found += "([^/])"
        elif character == "[" and (end := key.find("]", at + 2)) > 0:
            inner = key[at + 1 : end]
            found += re.escape(inner) if inner in "*?[{}" else f"([{inner}])"
            at = end
        elif character == "{" and (end := key.find("}", at)) > 0:
            found += f"({'|'.join(map(re.escape, _choices(key[at + 1 : end])))})"
            at = end
        else:
            found += re.escape(character)
        at += 1
    return found


def _choices(inner: str) -> list[str]:
    bounds = re.fullmatch(r"(\d+)\.\.(\d+)", inner)
    if bounds:
        return [str(n) for n in range(int(bounds[1]), int(bounds[2]) + 1)]
    return inner.split(",")


class Pattern:
    """A glob or a regular expression, matched against what is printed."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.is_regex = text.startswith("re:")
        self.is_spelled = not self.is_regex and ("%2F" in text or "%25" in text)
        self._expression = re.compile(text[3:] if self.is_regex else self._glob(text))
        self.is_literal = not self.is_regex and not self._expression.groups

    def _glob(self, text: str) -> str:
        found, is_first = "", True
        keys = text.strip("/").split("/")
        for number, key in enumerate(keys):
            is_last = number == len(keys) - 1
            if key == "**" and is_last:
                found += "(.*)" if is_first else "(?:/(.*))?"
            elif key == "**":
                found += ("" if is_first else "/") + "(?:(.*)/)?"
                is_first = True  # the separator is part of it
                continue
            else:
                found += ("" if is_first else "/") + _key_expression(key)
            is_first = False
        return found

    def _matches(self, node: Path) -> bool:
        text = spelled(node) if self.is_spelled else printed(node)
        return self._expression.fullmatch(text) is not None

    def nodes(self, leaf: Path) -> list[Path]:
        """What the pattern matches of a leaf's path, the topmost first: the leaf, or nodes above it."""
        if self.is_regex:
            return [leaf] if self._matches(leaf) else []
        return [node for n in range(1, len(leaf) + 1) if self._matches(node := leaf[:n])]

    def names(self, leaf: Path) -> bool:
        return bool(self.nodes(leaf))

    def groups(self, node: Path) -> tuple[str, ...]:
        found = self._expression.fullmatch(printed(node))
        assert found is not None
        return tuple(group or "" for group in found.groups())


def patterns_of(given: str | Iterable[str]) -> list[Pattern]:
    return [Pattern(text) for text in ([given] if isinstance(given, str) else given)]


def has_dtype(leaf: Leaf, wanted: str) -> bool:
    named = {"floating": leaf.is_floating, "integer": leaf.is_integer}
    if not leaf.dtype:
        return False
    return named[wanted] if wanted in named else fnmatchcase(leaf.dtype, wanted)


def select(
    state: State,
    edit: dict,
    *,
    skips_empties: bool = True,
    names_twins: bool = False,
    everything: bool = False,
) -> list[Path]:
    """The leaves that an edit names. ``names_twins``: it may name a param beside its own twin.

    Raises:
        Refused: with 2, what the page says of patterns.
    """
    patterns = patterns_of(edit.get("at", ()))
    if not patterns and not everything:
        raise Refused(2, "the edit names nothing")
    optional = edit.get("optional", False)
    remaining = _remaining(state, edit, patterns, skips_empties=skips_empties)
    chosen = [p for p in remaining if _passes(state.leaves[p], edit, skips_empties)]
    if not chosen and not optional:
        raise Refused(2, "nothing passes the conditions")
    counted = [path for path in chosen if not state.leaves[path].is_empty]
    expected = edit.get("expect")
    if expected is not None and len(counted) != expected and not (optional and not chosen):
        raise Refused(2, f"{len(counted)} leaves, not {expected}")
    if patterns and not names_twins and edit.get("twins") != "named":
        both = [p for p in chosen if p in state.slots and state.slots[p].param in chosen]
        if any(state.slots[path].relation != "hole" for path in both):
            raise Refused(2, f"a param and its own twin '{printed(both[0])}'")
    return chosen


def _remaining(
    state: State, edit: dict, patterns: list[Pattern], *, skips_empties: bool
) -> list[Path]:
    """What the patterns name and no exception does."""
    paths = list(state.leaves)
    optional = edit.get("optional", False)
    for pattern in patterns:
        found = [path for path in paths if pattern.names(path)]
        usable = [p for p in found if not (skips_empties and state.leaves[p].is_empty)]
        if not usable and not optional:
            raise Refused(2, f"'{pattern.text}' names nothing")
    named = [p for p in paths if not patterns or any(pattern.names(p) for pattern in patterns)]
    remaining = list(named)
    for exception in patterns_of(edit.get("except", ())):
        if not any(map(exception.names, named)) and not (optional and not named):
            raise Refused(2, f"the exception '{exception.text}' leaves nothing out")
        remaining = [path for path in remaining if not exception.names(path)]
    for pattern in patterns:
        nodes = {pattern.nodes(path)[-1] for path in remaining if pattern.names(path)}
        if pattern.is_literal and len(nodes) > 1:
            raise Refused(2, f"'{pattern.text}' means {len(nodes)} places")
    return remaining


def _passes(leaf: Leaf, edit: dict, skips_empties: bool) -> bool:
    if skips_empties and leaf.is_empty:
        return False
    if edit.get("where_dtype") and not has_dtype(leaf, edit["where_dtype"]):
        return False
    ndim = edit.get("where_ndim")
    return ndim is None or (bool(leaf.dtype) and len(leaf.shape) == ndim)
