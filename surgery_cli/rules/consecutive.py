"""Whether the numbers of a series of nodes are consecutive, as those of the layers of a model are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Annotated, Final

from msgspec import Meta

from surgery_cli.rules.contract import Named, Rule, refuse_false, refuse_single_nodes
from surgery_cli.tree.paths import LeafPath, Match, PathPattern
from surgery_cli.tree.targets import with_number
from surgery_cli.words.lists import listed, quoted
from surgery_cli.words.series import folded

_SHOWN: Final = 3
_MOST_NAMED: Final = 1000
"""So many missing numbers are told as one series; those between two steps of training would be no end."""
_MOST_DIGITS: Final = 18


class Consecutive(Rule, frozen=True):
    """A series has no gaps: of layers 0 and 2 alone, layer 1 is missing."""

    consecutive: Annotated[
        bool,
        Meta(
            description="The numbers that a pattern matches have no gaps, from the smallest to the largest:"
            " `params/layers_*`; those of a range, `params/layers_{0..11}`, are all there."
        ),
    ]

    def __post_init__(self) -> None:
        refuse_false(self)

    @property
    def text(self) -> str:
        return "consecutive"

    def check_values(self, patterns: Sequence[str]) -> None:
        refuse_single_nodes(self, patterns)

    def breach_of_selection(self, named: Named) -> str:
        found = [
            breach
            for pattern, matches in named.leaves.by_pattern()
            if not pattern.is_literal
            for breach in _breaches(pattern, {match.node: match for match in matches.values()})
        ]
        return listed(found, _SHOWN)


def _breaches(pattern: PathPattern, nodes: Mapping[LeafPath, Match]) -> Iterator[str]:
    columns = [*zip(*(match.groups for match in nodes.values()), strict=True)]
    numbered = [group for group, texts in enumerate(columns) if any(map(_is_number, texts))]
    if nodes and not numbered:
        yield f"'{pattern.text}' matches no numbers"
    for group in numbered:
        others = [text for text in dict.fromkeys(columns[group]) if not _is_number(text)]
        if others:
            yield f"'{pattern.text}' matches {quoted(others, 2)} beside numbers"
            continue
        missing = [
            text for series in _series(nodes, group) for text in _gaps(pattern, series, group)
        ]
        if missing:
            texts = folded(dict.fromkeys(missing))
            are = "are" if len(texts) > 1 or "{" in texts[0] else "is"
            yield f"{quoted(texts, _SHOWN)} {are} not there"


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) <= _MOST_DIGITS


def _series(nodes: Mapping[LeafPath, Match], group: int) -> list[dict[int, Match]]:
    """The nodes by their number in a group of the pattern, apart by what stands in the groups before it."""
    found: dict[tuple[str, ...], dict[int, Match]] = {}
    for match in nodes.values():
        series = found.setdefault(match.groups[:group], {})
        series.setdefault(int(match.groups[group]), match)
    return [*found.values()]


def _gaps(pattern: PathPattern, series: Mapping[int, Match], group: int) -> Iterator[str]:
    """The paths of nodes that a series lacks."""
    said = pattern.ranges.get(group)
    numbers = said.numbers if said else range(min(series), max(series) + 1)
    first = next(iter(series.values()))
    missing = (number for number in numbers if number not in series)
    for number in islice(missing, _MOST_NAMED):
        yield with_number(first, group, number)
