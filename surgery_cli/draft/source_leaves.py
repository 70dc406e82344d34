"""Leaves of other sources: by the text that names one, and the one that belongs to a leaf."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Protocol

from surgery_cli.errors import PlanError
from surgery_cli.tree.nearness import nearest
from surgery_cli.tree.paths import LeafPath, Selection
from surgery_cli.tree.specs import LeafKind, TreeSpec
from surgery_cli.tree.spelling import is_spelled
from surgery_cli.tree.targets import REFERENCE, referred
from surgery_cli.words.advice import FieldName, worded
from surgery_cli.words.tasks import recipe_for_layers

_ENTRY = re.compile(r"(.+\.(?:npz|safetensors)):(.+)")
_HAS_ENTRIES = (".npz", ".safetensors")


class NoSuchLeaf(PlanError):
    """Another source has no leaf, and no node, where one is looked for."""


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
    leaves = [path for path, spec in source.tree.items() if spec.kind is not LeafKind.EMPTY]
    found = (
        [path for path in leaves if wanted in (str(path), path.exact_pattern)]
        or [path for path in leaves if path.text == wanted]
        or [path for path in leaves if path.spelling == wanted]
    )
    if len(found) == 1:
        return found[0]
    if found:
        raise PlanError(
            f"'{wanted}' means {len(found)} leaves of '{text}'",
            why="they print alike: " + ", ".join(f"'{p.exact_pattern}'" for p in found),
            fix="a slash inside a key is written `%2F`",
            field=field,
        )
    below = [str(p) for p in leaves if _stands_below(p, wanted)]
    near = below[:3] or nearest(wanted, map(str, leaves)) or [str(p) for p in leaves[:3]]
    fix = "it has " + ", ".join(f"'{name}'" for name in near)
    if not below:
        fix += recipe_for_layers(wanted, {key for path in leaves for key in path.text.split("/")})
    if near and text.endswith(_HAS_ENTRIES):
        fix = f"name an entry, as `{text}:{near[0]}`; {fix}"
    kind = PlanError if below else NoSuchLeaf
    raise kind(
        f"'{text}' has no leaf '{wanted}'",
        why=f"'{wanted}' is a node there, not a leaf" if below else "",
        fix=fix,
        field=field,
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
        lambda found: match.groups[referred(found, match, pattern, start, field=place_field)], start
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
