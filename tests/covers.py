"""What the quick tier leaves out of many parameters: all but a cover of a product, or all but every so manieth case."""

from collections.abc import Hashable, Iterable, Sequence
from itertools import combinations

import pytest

MARK = (
    "covers(n): of the product of the parameters as few combinations as have each value of each (n=1), or each pair"
    " that two of them can make (n=2); all of them with --every-combination, or where one is named"
)

SAMPLED = "sampled(n): of the cases every n-th; all of them with --every-combination, or where one is named"


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


def _marked(kind: str, items: list[pytest.Item]) -> Iterable[tuple[int, list[pytest.Item]]]:
    """The number of each mark of this kind, and the cases of its test, in their order."""
    found: dict[str, tuple[int, list[pytest.Item]]] = {}
    for item in items:
        if mark := item.get_closest_marker(kind):
            found.setdefault(item.nodeid.partition("[")[0], (*mark.args, []))[1].append(item)
    return found.values()


def thin(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what no cover and no sample needs."""
    left_out = set()
    for every, some in _marked("sampled", items):
        left_out |= {item for number, item in enumerate(some) if number % every}
    for strength, some in _marked("covers", items):
        points = [tuple(map(id, item.callspec.params.values())) for item in some]
        left_out |= set(some) - {some[number] for number in covered(points, strength)}
    items[:] = [item for item in items if item not in left_out]
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
