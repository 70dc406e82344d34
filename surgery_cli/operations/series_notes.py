"""What a preview says of leaves that are joined by their numbers: what stays of the series, and its order."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from string import digits
from typing import NamedTuple

from surgery_cli.tree.paths import LeafPath, Match, PathPattern, Selection
from surgery_cli.tree.targets import Target
from surgery_cli.words.advice import worded
from surgery_cli.words.lists import listed, quoted
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.series import folded

_NUMBER = re.compile("[0-9]+")
_NUMBERS_IN_BRACES = re.compile(r"\{([0-9]+(?:,[0-9]+)+)\}")
_MOST_NAMED = 4


class _Around(NamedTuple):
    """The text of a node before and behind the number by which it is told from others."""

    head: str
    tail: str


def series_notes(
    selected: Selection, to: str, leaves: Collection[LeafPath]
) -> Iterator[Consequence]:
    """Of what each pattern joins by numbers: what it leaves where it is, and an order that it only seems to say.

    ``leaves``: all that there are.
    """
    for pattern, matches in selected.by_pattern():
        nodes = {match.node: match for match in matches.values()}
        series = _series(nodes.values(), pattern, to)
        if not series:
            continue
        known = selected.leaves | selected.excluded
        apart = [path for path in leaves if path not in known]
        left = _left_out(series, nodes, apart)
        if left:
            yield _stay(pattern, series, left)
        for brace in _NUMBERS_IN_BRACES.findall(pattern.text):
            written = [*map(int, brace.split(","))]
            if written != sorted(written) and any({*written} >= {*n} for n in series.values()):
                yield Consequence(
                    DocsPage.STACK,
                    worded(
                        "'{}': its leaves go in the order of their numbers, {}, not in that of the braces;"
                        " a list in {at} has an order",
                        pattern.text,
                        listed(sorted(written)),
                    ),
                )


def _series(
    matches: Iterable[Match], pattern: PathPattern, to: str
) -> dict[_Around, dict[int, str]]:
    """The numbers that become one leaf or node, as they are written, by what stands around them."""
    found: dict[_Around, dict[int, str]] = {}
    for match in matches:
        for group in Target(to).leaves_out(pattern, len(match.groups)):
            if match.groups[group].isdecimal():
                text, (start, stop) = _text(match.node, match), match.spans[group]
                head, tail = text[:start].rstrip(digits), text[stop:].lstrip(digits)
                number = text[len(head) : len(text) - len(tail)]
                found.setdefault(_Around(head, tail), {})[int(number)] = number
    most = max(map(len, found.values()), default=0)
    # of several wildcards that hold numbers, the one that counts
    return {around: numbers for around, numbers in found.items() if len(numbers) > 1 or most == 1}


def _text(node: LeafPath, match: Match) -> str:
    return node.spelling if match.is_spelled else node.text


def _left_out(
    series: Mapping[_Around, Mapping[int, str]],
    nodes: Mapping[LeafPath, Match],
    apart: Iterable[LeafPath],
) -> dict[_Around, dict[int, str]]:
    """The numbers of nodes that only a number tells from those of a series, and that are not named."""
    match = next(iter(nodes.values()))
    depths = {len(node) for node in nodes}
    known = {LeafPath(path[:depth]) for path in apart for depth in depths if len(path) >= depth}
    found: dict[_Around, dict[int, str]] = {}
    for node in known.difference(nodes):
        text = _text(node, match)
        for number in _NUMBER.finditer(text):
            around = _Around(text[: number.start()], text[number.end() :])
            if around in series and int(number[0]) not in series[around]:
                found.setdefault(around, {})[int(number[0])] = number[0]
    return found


def _stay(
    pattern: PathPattern,
    series: Mapping[_Around, Mapping[int, str]],
    left: Mapping[_Around, Mapping[int, str]],
) -> Consequence:
    paths = [
        f"{around.head}{text}{around.tail}"
        for around in series
        for _, text in sorted(left.get(around, {}).items())
    ]
    is_down = any(numbers.first > numbers.last for numbers in pattern.ranges.values())
    ranges = {_range({**series[around], **left[around]}, is_down=is_down) for around in left}
    range_ = ranges.pop() if len(ranges) == 1 and not pattern.is_regex else ""
    taking = f"; `{range_}` would take all" if range_ else ""
    are, stay = ("are", "stay") if len(paths) > 1 else ("is", "stays")
    shown = quoted(folded(paths), _MOST_NAMED)
    return Consequence(
        DocsPage.STACK, f"{shown} {are} not named by '{pattern.text}' and {stay}{taking}"
    )


def _range(numbers: Mapping[int, str], *, is_down: bool) -> str:
    """The range of these numbers; '' if some between them are missing."""
    first, last = min(numbers), max(numbers)
    if len(numbers) != last - first + 1:
        return ""
    ends = (last, first) if is_down else (first, last)
    return f"{{{'..'.join(numbers[end] for end in ends)}}}"
