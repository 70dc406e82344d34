"""Places that an edit names and that need not exist, and nodes of other trees that it names by their text."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType
from typing import Final

from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import PlanError
from surgery_cli.tree.nearness import nearest
from surgery_cli.tree.paths import LeafPath, Match, PathPattern
from surgery_cli.tree.specs import TreeSpec
from surgery_cli.tree.spelling import is_spelled, unescaped
from surgery_cli.tree.targets import Places, Target
from surgery_cli.words.lists import quoted

NAMES_A_PLACE: Final = MappingProxyType(
    dict.fromkeys(
        ("except", "where_dtype", "where_ndim", "expect", "optional"),
        "it selects leaves, and this edit names a place",
    )
)
"""What would have no effect in an edit that names places, as in ``Operation.unused_fields``."""


def check_place(text: str) -> None:
    """See that a text names one place, whether something stands there or not.

    Raises:
        PlanError: it is a pattern, or no place.
    """
    pattern = PathPattern(text)
    if not pattern.is_literal:
        raise PlanError(
            f"'{text}' is a pattern, not a place",
            why="what need not be there yet has one path",
            fix="write a path without wildcards: `params/head`",
            field="at",
        )
    Target(text.strip("/"), "at").check(pattern)


def place_of(text: str, draft: Draft) -> LeafPath:
    """The place with this text; keys of what exists above it have their types. Raises as ``Target.place``."""
    check_place(text)
    target = Target(text.strip("/"), "at")
    return target.place(Match((), LeafPath()), PathPattern(text), Places(draft.leaves))


def node_of(text: str, leaves: TreeSpec, where: str, field: str) -> LeafPath:
    """The one leaf or node of a tree with this text, the root for none; ``where`` is whose tree it is, in words.

    Raises:
        PlanError: there is none, or several print alike; ``field`` says it.
    """
    wanted = text.strip("/")
    found = [LeafPath()] if not wanted else _at(wanted, leaves)
    if len(found) == 1:
        return found[0]
    raise _none_or_several(wanted, found, leaves, where, field)


def _at(wanted: str, leaves: TreeSpec) -> list[LeafPath]:
    """The leaves and nodes with this text, as keys are or as they are shown."""
    found = Places(leaves).at(unescaped(wanted), is_spelled=is_spelled(wanted))
    every = dict.fromkeys((*leaves.nodes, *leaves))
    return found or [path for path in every if wanted in (str(path), path.exact_pattern)]


def _none_or_several(
    wanted: str, found: Iterable[LeafPath], leaves: TreeSpec, where: str, field: str
) -> PlanError:
    spellings = [path.exact_pattern for path in found]
    if spellings:
        return PlanError(
            f"'{wanted}' means {len(spellings)} places of {where}",
            why="a slash inside a key is written `%2F`",
            fix=f"write one of {quoted(spellings)}",
            field=field,
        )
    near = nearest(wanted, [str(node) for node in (*leaves.nodes, *leaves) if node])
    roots = dict.fromkeys(str(LeafPath(path[:1])) for path in leaves if path)
    has = f"it has {quoted(list(roots), 3)}" if roots else "it is a single leaf"
    return PlanError(
        f"{where} has no '{wanted}'",
        fix=f"the nearest: {quoted(near)}" if near else has,
        field=field,
    )
