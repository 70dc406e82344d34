"""What to do where one of two leaves holds several of the other's shape along one axis, as scanned layers do."""

from __future__ import annotations

from typing import Final

from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.advice import Text, worded
from surgery_cli.words.lists import listed

APART: Final = "Scan to list"
TOGETHER: Final = "List to scan"
"""Recipes of the cookbook, by their titles."""


def stacking_advice(leaf: LeafSpec, other: LeafSpec) -> Text | None:
    """How to bring ``other``, of another checkpoint, to ``leaf``, if an axis is all that one has more; else None.

    Shapes say no more than that: whether layers stand along the axis is for the reader to know.
    """
    if axes := _axes_more(other.shape, leaf.shape):
        held = f"it holds {other.shape[axes[0]]:,} of the leaf's shape"
        how = f"`unstack` it first{_beside(axes)} and take one (docs/cookbook.md: '{APART}')"
    elif axes := _axes_more(leaf.shape, other.shape):
        held = f"the leaf holds {leaf.shape[axes[0]]:,} of that shape"
        how = (
            f"`unstack` the leaf first{_beside(axes)}, name the one that is meant, and `stack` them again"
            f" (docs/cookbook.md: '{APART}', '{TOGETHER}')"
        )
    else:
        return None
    along = listed(map(str, axes), word="or")
    return worded("{} along axis {}: if these are layers, {}", held, along, how)


def before_else(advice: Text | None) -> Text:
    """The advice in front of what else can be done; nothing if there is none."""
    return worded("{}; else ", advice) if advice else worded("")


def _axes_more(whole: tuple[int, ...], part: tuple[int, ...]) -> list[int]:
    """The axes without any one of which ``whole`` has the shape ``part``.

    >>> _axes_more((3, 16), (16,)), _axes_more((4, 4), (4,)), _axes_more((3, 16), (3, 8))
    ([0], [0, 1], [])
    """
    return [n for n in range(len(whole)) if whole[:n] + whole[n + 1 :] == part]


def _beside(axes: list[int]) -> str:
    """The axis is said to `unstack` where it is not its own default."""
    return f" along axis {axes[0]}" if 0 not in axes else ""
