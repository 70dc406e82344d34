"""What a preview says of one axis of leaves that have not the same axes: of a kernel another one than of its bias."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from typing import NamedTuple

from surgery_cli.draft.effect import Rearranges
from surgery_cli.draft.kernels.join import Stack
from surgery_cli.draft.recipe import Draft, Output
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.advice import worded
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.quantities import counted


def axis_notes(axis: int, paths: Iterable[LeafPath], draft: Draft) -> Iterator[Consequence]:
    """A note if ``axis`` counts other things in one leaf than in another beside it, by all that their shapes tell.

    They have different numbers of axes, and different sizes along this one; or it is the one along which layers were
    stacked in one of them alone.
    """
    beside: dict[LeafPath, dict[_Kind, LeafPath]] = {}
    for path in paths:
        output = draft.leaves[path]
        shape = output.spec.shape
        if -len(shape) <= axis < len(shape):
            own = path.parent if path[-1] == "value" else path
            kind = _Kind(len(shape), shape[axis], _is_of_layers(output, axis))
            beside.setdefault(own.parent, {}).setdefault(kind, path)
    found = (_pair_apart(kinds) for kinds in beside.values() if len(kinds) > 1)
    apart = [pair for pair in found if pair]
    if apart:
        one, other = (_said(path, axis, draft.leaves[path]) for path in apart[0])
        more = f" (so below {counted(len(apart) - 1, 'more node')})" if len(apart) > 1 else ""
        yield Consequence(
            DocsPage.OPERATIONS,
            worded(
                "{axis: {}} holds {} and {}{}: give each an edit of its own if that is not meant",
                axis,
                one,
                other,
                more,
            ),
        )


class _Kind(NamedTuple):
    """What tells whether one axis of leaves counts the same: how many there are, and its size in them."""

    axes: int
    size: int
    is_of_layers: bool


def _pair_apart(kinds: Mapping[_Kind, LeafPath]) -> tuple[LeafPath, LeafPath] | None:
    for one, other in combinations(kinds, 2):
        if one.axes != other.axes and one[1:] != other[1:]:
            return kinds[one], kinds[other]
    return None


def _is_of_layers(output: Output, axis: int) -> bool:
    """True if the plan has just stacked the leaf along this axis."""
    effect = output.edits[-1].effect if output.edits else None
    by = effect.map if isinstance(effect, Rearranges) else None
    return isinstance(by, Stack) and axis % len(output.spec.shape) == by.axis


def _said(path: LeafPath, axis: int, output: Output) -> str:
    size = output.spec.shape[axis]
    what = counted(size, "stacked layer" if _is_of_layers(output, axis) else "place")
    return f"{what} in '{path}' {output.spec.type_text}"
