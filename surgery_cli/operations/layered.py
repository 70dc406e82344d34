"""Numbers that may differ from layer to layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, TypeAlias

from msgspec import Meta

from surgery_cli.errors import PlanError
from surgery_cli.tree.paths import LeafPath, Match, Selection
from surgery_cli.words.advice import FieldName, worded

Layered: TypeAlias = float | Annotated[tuple[float, ...], Meta(min_length=1)]
"""One number, or several that lie at equal distances over the layers, from the first to the last, with straight lines
between them."""


def numbers_of(value: Layered) -> tuple[float, ...]:
    """The number, or all of the list."""
    return (value,) if isinstance(value, int | float) else value


def all_numbers(values: Iterable[Layered]) -> tuple[float, ...]:
    """The numbers of several settings, one after the other."""
    return tuple(number for value in values for number in numbers_of(value))


def shown_layered(value: Layered) -> str:
    """The number as it is printed; a list as one.

    >>> shown_layered(0.5), shown_layered((0.0, 0.25))
    ('0.5', '[0, 0.25]')
    """
    texts = [f"{number:g}" for number in numbers_of(value)]
    return texts[0] if isinstance(value, int | float) else f"[{', '.join(texts)}]"


def check_layered(value: Layered, field: str, low: float, high: float, *, open_low: bool) -> None:
    """Raise PlanError unless all numbers are finite and lie from ``low`` (without it if ``open_low``) to ``high``."""
    for number in numbers_of(value):
        is_within = (low < number if open_low else low <= number) and number <= high
        if not (math.isfinite(number) and is_within):
            bounds = {
                (False, False): f"from {low:g} to {high:g}",
                (True, False): f"above {low:g}, at most {high:g}",
                (False, True): "finite",
                (True, True): f"finite and above {low:g}",
            }[open_low, math.isinf(high)]
            raise PlanError(
                worded("{} cannot be {:g}", FieldName(field), number),
                why=f"it is {bounds}",
                fix="write another number",
                field=field,
            )


def by_layer(value: Layered, named: Selection, field: str) -> Callable[[LeafPath], float]:
    """The number of each leaf: where there are several, by the layer that its path and the pattern say.

    Layers are counted by the first wildcard, or range of numbers, that stands for a number in every path that the
    pattern names; the leaves of one pattern share their layers.

    Raises:
        PlanError: there are several numbers, and a pattern has none to count layers by.
    """
    if isinstance(value, int | float) or len(value) == 1:
        number = float(numbers_of(value)[0])
        return lambda _: number
    if not named.named:
        raise PlanError(
            worded("{} is one number a layer, and no pattern counts any", FieldName(field)),
            why="the edit is about the whole tree",
            fix=worded(
                "write {at: params/layers_{{0..11}}}, say, or one number in {}", FieldName(field)
            ),
            field=field,
        )
    found: dict[LeafPath, float] = {}
    for pattern, matches in named.by_pattern():
        if not matches:
            continue
        column = _counting(matches.values())
        if column is None:
            raise PlanError(
                worded(
                    "{} is one number a layer, and '{}' counts none", FieldName(field), pattern.text
                ),
                why="no wildcard of it stands for a number",
                fix=worded(
                    "write {at: params/layers_{{0..11}}}, say, or one number in {}",
                    FieldName(field),
                ),
                field=field,
            )
        layers = {leaf: int(match.groups[column]) for leaf, match in matches.items()}
        order = {layer: rank for rank, layer in enumerate(sorted(set(layers.values())))}
        for leaf, layer in layers.items():
            found.setdefault(leaf, _between(value, order[layer], len(order)))
    return found.__getitem__


def _counting(matches: Iterable[Match]) -> int | None:
    """The first group that is a number in all of these."""
    groups = [match.groups for match in matches]
    columns = range(min(map(len, groups)))
    return next((c for c in columns if all(each[c].isdecimal() for each in groups)), None)


def _between(values: Sequence[float], rank: int, count: int) -> float:
    """The value at a layer, by its rank among so many.

    >>> [_between((0, 1), rank, 5) for rank in range(5)], _between((0, 4, 2), 3, 5), _between((0, 1), 0, 1)
    ([0.0, 0.25, 0.5, 0.75, 1.0], 3.0, 0.0)
    """
    place = rank * (len(values) - 1) / max(count - 1, 1)
    first = min(int(place), len(values) - 2)
    rest = place - first
    return float(values[first] * (1 - rest) + values[first + 1] * rest)
