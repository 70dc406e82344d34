"""Products of parameters, of which the quick tier tries a cover: `@pytest.mark.covers(2)`."""

from collections.abc import Hashable, Sequence
from itertools import combinations

import pytest

MARK = (
    "covers(n): of the product of the parameters as few combinations as have each value of each (n=1), or each pair"
    " that two of them can make (n=2); all of them with --every-combination, or where one is named"
)


def covered(points: Sequence[Sequence[Hashable]], strength: int) -> list[int]:
    """Which points, by their numbers, have each ``strength`` of coordinates that any point has; one by one, greedily.

    Ties go to the first, so that every process chooses the same.
    """
    tuples = [set(combinations(enumerate(point), strength)) for point in points]
    missing = set().union(*tuples)
    chosen = []
    while missing:
        best = max(range(len(points)), key=lambda number: len(tuples[number] & missing))
        missing -= tuples[best]
        chosen.append(best)
    return sorted(chosen)


def thin(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what no cover needs."""
    products: dict[str, tuple[int, list[pytest.Item]]] = {}
    for item in items:
        if mark := item.get_closest_marker("covers"):
            name = item.nodeid.partition("[")[0]
            products.setdefault(name, (*mark.args, []))[1].append(item)
    left_out = set()
    for strength, some in products.values():
        points = [tuple(map(id, item.callspec.params.values())) for item in some]
        left_out |= set(some) - {some[number] for number in covered(points, strength)}
    items[:] = [item for item in items if item not in left_out]
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
