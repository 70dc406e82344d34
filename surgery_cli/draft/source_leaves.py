"""Leaves of other sources: by the text that names one, and the one that belongs to a leaf."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

import msgspec

from surgery_cli.errors import PlanError, Problem
from surgery_cli.tree.nearness import nearest
from surgery_cli.tree.paths import LeafPath, Selection
from surgery_cli.tree.specs import TreeSpec
from surgery_cli.tree.spelling import is_spelled
from surgery_cli.tree.targets import REFERENCE, referred
from surgery_cli.words.advice import FieldName, worded
from surgery_cli.words.tasks import recipe_for_layers

_ENTRY = re.compile(r"(.+\.(?:npz|safetensors)):(.+)")
_HAS_ENTRIES = (".npz", ".safetensors")


class NoSuchLeaf(PlanError):
    """Another source has no leaf, and no node, where one is looked for.

    Many are raised that nobody reads (`missing: skip`), and what is near to a name takes long to find: ``advice`` finds
    it where the problems are read.
    """

    def __init__(
        self, what: str | Problem, *, advice: Callable[[], str] | None = None, **details: Any
    ) -> None:
        self._advice = advice
        self._problems: tuple[Problem, ...] = ()
        super().__init__(what, **details)

    @property
    def problems(self) -> tuple[Problem, ...]:
        if self._advice is not None:
            fix, self._advice = self._advice(), None
            self._problems = tuple(msgspec.structs.replace(p, fix=fix) for p in self._problems)
        return self._problems

    @problems.setter
    def problems(self, problems: tuple[Problem, ...]) -> None:
        self._problems = problems

    def because(self, why: str) -> NoSuchLeaf:
        """The same one, with a reason."""
        return NoSuchLeaf(msgspec.structs.replace(self._problems[0], why=why), advice=self._advice)


class Leaves(Protocol):
    """Something with leaves: a source, or a draft, in which they are what they are at that moment."""

    @property
    def tree(self) -> TreeSpec: ...


def split_entry(text: str) -> tuple[str, str | None]:
    """A file and the entry in it.

    >>> split_entry("scales.npz:conv/w"), split_entry("scale.npy")
    (('scales.npz', 'conv/w'), ('scale.npy', None))
    """
    found = _ENTRY.fullmatch(text)
    return (found[1], found[2]) if found else (text, None)


def find_leaf(text: str, source: Leaves, wanted: str, *, field: str) -> LeafPath:
    """The leaf of a source with this path, as it is shown or as its keys are.

    Raises:
        NoSuchLeaf: it has none.
        PlanError: it has a node there, or two that print alike.
    """
    found = source.tree.named(wanted)
    if len(found) == 1:
        return found[0]
    if found:
        raise PlanError(
            f"'{wanted}' means {len(found)} leaves of '{text}'",
            why="they print alike: " + ", ".join(f"'{p.exact_pattern}'" for p in found),
            fix="a slash inside a key is written `%2F`",
            field=field,
        )
    what = f"'{text}' has no leaf '{wanted}'"
    leaves = source.tree.with_values
    if source.tree.has_below(wanted):
        below = [str(p) for p in leaves if _stands_below(p, wanted)][:3]
        why = f"'{wanted}' is a node there, not a leaf"
        raise PlanError(what, why=why, fix=_there(text, below), field=field)

    def advice() -> str:
        near = nearest(wanted, map(str, leaves)) or [str(p) for p in leaves[:3]]
        keys = {key for path in leaves for key in path.text.split("/")}
        return _there(text, near) + recipe_for_layers(wanted, keys)

    raise NoSuchLeaf(what, advice=advice, field=field)


def _there(text: str, near: Sequence[str]) -> str:
    """What a source has in place of what is looked for."""
    fix = "it has " + ", ".join(f"'{name}'" for name in near)
    return (
        f"name an entry, as `{text}:{near[0]}`; {fix}"
        if near and text.endswith(_HAS_ENTRIES)
        else fix
    )


def only_array(source: Leaves, path: LeafPath, printed: Collection[str]) -> LeafPath | None:
    """The one leaf of a source, which serves every leaf; None if it is called like another of those ``printed``."""
    if len(source.tree) != 1:
        return None
    (only,) = source.tree
    return None if only.text in printed and only.text != path.text else only


def counterpart(
    path: LeafPath,
    start: str,
    file: str,
    source: Leaves,
    selected: Selection,
    field: str = "with",
    place_field: str = "from",
) -> LeafPath:
    """The leaf of another source that belongs to ``path``: what ``start`` says (with parts filled in), else the same.

    ``field`` is the one that names the source, ``place_field`` the one that says ``start``.

    Raises:
        PlanError: it is not there.
    """
    only = None if start else only_array(source, path, selected.printed)
    if only is not None and len(only) <= 1:  # a file of one array, which its name or entry names
        return only
    if not start:
        return path if path in source.tree else find_leaf(file, source, str(path), field=field)
    pattern, match = selected.match(path)
    text = pattern.text
    wanted = REFERENCE.sub(
        lambda found: match.groups[referred(found, pattern, start, field=place_field)], start
    ).strip("/")
    if text.endswith("/**") and _is_node(wanted, source):
        node = text.removesuffix("/**")
        raise PlanError(
            f"'{wanted}' is a node of '{file}', and '{text}' names leaves one by one",
            why=worded(
                "what follows the node that {at} names is appended to {}", FieldName(place_field)
            ),
            fix=worded("write {at: {}}, without `/**`", node),
            field="at",
        )
    tail = match.tail.spelling if is_spelled(start) else match.tail.text
    return find_leaf(file, source, f"{wanted}/{tail}" if tail else wanted, field=place_field)


def _is_node(text: str, source: Leaves) -> bool:
    """True if leaves stand below this printed path."""
    return any(_stands_below(path, text) for path in source.tree)


def _stands_below(path: LeafPath, text: str) -> bool:
    return path.text.startswith(f"{text}/") or str(path).startswith(f"{text}/")
