"""Leaves without a pair that may be one but for the length of an axis: vocabularies that are padded, more classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from surgery_cli.matching.words import Likeness, meaning_of, words_of
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec, TreeSpec

_MOST: Final = 3


def axis_between(old: LeafSpec, new: LeafSpec) -> tuple[int, int] | None:
    """How long the one axis is that has another length there, in both; None if there is no such axis, or several.

    >>> from surgery_cli.tree.specs import LeafKind
    >>> one, other = (LeafSpec(kind=LeafKind.ARRAY, shape=n, dtype="float32") for n in ((57, 8), (8, 64)))
    >>> axis_between(one, other), axis_between(one, one)
    ((57, 64), None)
    """
    if len(old.shape) != len(new.shape):
        return None
    here, there = Counter(old.shape), Counter(new.shape)
    gone, come = [*(here - there).elements()], [*(there - here).elements()]
    return (gone[0], come[0]) if len(gone) == len(come) == 1 else None


def resizings(new: LeafPath, wanted: TreeSpec, unpaired: Mapping[LeafPath, LeafSpec]) -> list[str]:
    """What a leaf may come from that differs from it in the length of one axis, the most alike in name first."""
    spec = wanted[new]
    found = {
        old: sizes
        for old, own in unpaired.items()
        if (sizes := axis_between(own, spec)) is not None
    }
    meanings = {path: meaning_of(words_of(path)) for path in (new, *found)}
    likeness = Likeness(meanings.values())
    order = sorted(found, key=lambda old: -likeness.of(meanings[old], meanings[new]))
    return [
        f"{old} ({found[old][0]:,} places of an axis there, {found[old][1]:,} here: `resize`)"
        for old in order[:_MOST]
    ]
