"""Leaves that an edit would put at one place, and subtrees that it joins, said of whole subtrees where that is so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import Problem
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind
from surgery_cli.words.advice import Text, worded
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.quantities import leaves_text
from surgery_cli.words.series import folded


class Collision(NamedTuple):
    """Two leaves, or subtrees, that would stand at one place."""

    first: LeafPath
    second: LeafPath
    place: LeafPath

    def lifted(self) -> Collision | None:
        """The same of the nodes above; None if they do not have the same key there."""
        if min(map(len, self)) < 2 or len({path[-1] for path in self}) > 1:
            return None
        return Collision(*(path.parent for path in self))


def by_subtree(
    collisions: Iterable[Collision],
    places: Iterable[tuple[LeafPath, LeafPath]],
    leaves: Iterable[LeafPath],
) -> list[Collision]:
    """Collisions of whole subtrees in the place of those of their leaves.

    A node stands for its leaves where all of them go to one other node, and all of that node's collide.
    """
    sizes = Counter(LeafPath(path[:n]) for path in leaves for n in range(1, len(path)))
    going: Counter[tuple[LeafPath, LeafPath]] = Counter()
    for old, new in places:
        for tail in range(1, min(len(old), len(new))):
            if old[-tail] != new[-tail]:
                break
            going[LeafPath(old[:-tail]), LeafPath(new[:-tail])] += 1
    struck: Counter[Collision] = Counter()
    for leaf in collisions:
        node: Collision | None = leaf
        while node is not None:
            struck[node] += 1
            node = node.lifted()

    def is_whole(node: Collision) -> bool:
        ends = {node.first, node.second, node.place}
        return all(sizes[end] in (0, struck[node]) for end in ends) and all(
            going[end, node.place] == struck[node] for end in ends - {node.place}
        )

    found: dict[Collision, None] = {}
    for leaf in collisions:
        node = leaf
        while (above := node.lifted()) is not None and is_whole(above):
            node = above
        found[node] = None
    return list(found)


def problem_of(found: Collision, *, is_copy: bool) -> Problem:
    """What to say of it, with the edit that would exchange the two where one of them stays."""
    first, second, place = found
    stays = place in (first, second)
    other = second if place == first else first
    instead = worded("or exchange them: {moves: {{{}: {}, {}: {}}}}", other, place, place, other)
    if is_copy:
        instead = Text("or copy to another place")
    return Problem(
        f"'{first}' and '{second}' would both stand at '{place}'",
        why="one of them would be lost",
        fix=worded("`delete` '{}' first, {}", place, instead)
        if stays
        else worded(r"give each its own place; `\1` in {to} stands for the first wildcard"),
        path=str(place),
        field="to",
    )


def merge_notes(
    draft: Draft, nodes: Mapping[LeafPath, LeafPath], leaving: Collection[LeafPath] = ()
) -> list[Consequence]:
    """For the preview, about nodes that go to where another node stands, whose leaves they join.

    ``nodes`` are old places and new ones, ``leaving`` the leaves that do not stay where they are.
    """
    goals = {new for old, new in nodes.items() if old not in draft.leaves and old != new}
    if not goals:  # of leaves alone, which join nothing
        return []
    sizes = {len(goal) for goal in goals}
    there: Counter[LeafPath] = Counter()
    for path, recipe in draft.leaves.items():
        if path not in leaving and recipe.spec.kind is not LeafKind.EMPTY:
            there.update({LeafPath(path[:n]) for n in sizes} & goals)
    notes: dict[str, None] = {}
    for old, new in nodes.items():
        if there[new] and old not in draft.leaves:
            size = leaves_text(there[new])
            notes[f"'{old}' joins what stands at '{new}': {size} there already"] = None
    return [Consequence(DocsPage.RENAME, said) for said in folded(notes)]
