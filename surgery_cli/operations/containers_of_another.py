"""The lists of another checkpoint's tree, and what is empty there: what a tree that lost both is to have again."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import Problem, raise_all
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec, TreeSpec
from surgery_cli.words.advice import worded
from surgery_cli.words.lists import quoted
from surgery_cli.words.series import folded

_MOST_NAMED = 3


class Containers(NamedTuple):
    """The dicts of a draft that are lists there, and what is empty there and missing here."""

    lists: tuple[LeafPath, ...]
    empties: Mapping[LeafPath, LeafSpec]


def containers_as(
    place: LeafPath, draft: Draft, node: LeafPath, tree: TreeSpec, text: str
) -> Containers:
    """What the part of the draft at ``place`` lacks of the containers at ``node`` of another tree, called ``text``.

    Raises:
        PlanError: both have other leaves, or leaves of other shapes; all of them are counted.
    """
    here = {p.spelling: draft.leaves[p].spec for p in draft.leaves if p.is_below(place)}
    there = {(place / p[len(node) :]).spelling: p for p in tree if p.is_below(node)}
    nodes = {one.spelling: one for one in draft.tree.nodes if one.is_below(place)}
    missing = {path: p for path, p in there.items() if path not in here}
    raise_all(_unlike(here, there, tree, nodes, text))
    below = (place / one[len(node) :] for one in tree.sequences if one.is_below(node))
    lists = (nodes.get(one.spelling) for one in below)
    return Containers(
        tuple(one for one in lists if one is not None and one not in draft.tree.sequences),
        {place / p[len(node) :]: tree[p] for p in missing.values()},
    )


def _unlike(
    here: Mapping[str, LeafSpec],
    there: Mapping[str, LeafPath],
    tree: TreeSpec,
    nodes: Collection[str],
    text: str,
) -> Iterator[Problem]:
    """A problem for what only one side has, and for what is of another shape."""
    sides = {
        "here": [path for path in here if path not in there],
        f"in '{text}'": [
            path
            for path, p in there.items()
            if path not in here and (tree[p].kind is not LeafKind.EMPTY or path in nodes)
        ],
    }
    for side, paths in sides.items():
        if paths:
            yield Problem(
                f"only {side}: {quoted(folded(paths), _MOST_NAMED)}",
                why=worded("{with} is to have the same leaves, by path"),
                fix="`rename` what is called otherwise there, or name a checkpoint of the same model and optimizer",
                path=paths[0],
                field="with",
            )
    for path, spec in here.items():
        if path in there and not _is_alike(spec, tree[there[path]]):
            yield Problem(
                f"'{path}' is {spec.type_text}, and {tree[there[path]].type_text} in '{text}'",
                why=worded("{with} is to have the same leaves, by path and shape"),
                fix="name a checkpoint of the same model and optimizer",
                path=path,
                field="with",
            )


def _is_alike(one: LeafSpec, other: LeafSpec) -> bool:
    return (one.kind is LeafKind.EMPTY) == (other.kind is LeafKind.EMPTY) and (
        one.shape == other.shape
    )
