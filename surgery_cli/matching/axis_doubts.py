"""Pairs of one module that would have their axes in different orders: leaves were taken for each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TypeAlias

from surgery_cli.matching.assignment import Match
from surgery_cli.matching.families import Family

Sort: TypeAlias = tuple[str, str, int]

_Module: TypeAlias = tuple[str, ...]


def sort_of_axes(match: Match) -> Sort:
    """What decides about axes by custom: how the weight is called on either side, and how many axes it has here."""
    return match.old.meaning.last, match.new.meaning.last, len(match.old.spec.shape)


def doubtful_axes(matches: Sequence[Match]) -> set[int]:
    """The places among the matches of those whose siblings have their axes in another order, as their shapes decide.

    Gate, up and down of one module are all turned, or all not, from one program to another. Where shapes turn some and
    not the others, leaves of one shape were taken for each other: each of them may be, whatever its name says.
    """
    groups: dict[tuple[Sort, _Module, _Module], dict[int, str]] = defaultdict(dict)
    for place, match in enumerate(matches):
        if len(match.forms) == 1 and len(match.old.spec.shape) > 1:
            key = sort_of_axes(match), _module(match.old), _module(match.new)
            groups[key][place] = match.forms[0].arrangement.sense
    return {place for senses in groups.values() if len({*senses.values()}) > 1 for place in senses}


def _module(family: Family) -> _Module:
    """What a layer belongs to: its path without the layer and what the leaf is to it; dots part names as slashes do."""
    keys = [part for key in family.template for part in str(key).split(".")]
    return tuple(keys[:-2])
