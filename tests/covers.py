"""What the quick tier leaves out: all but a cover of a product, all but every so manieth case, one of two services."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import combinations
from zlib import crc32

import pytest

MARK = (
    "covers(n): of the product of the parameters as few combinations as have each value of each (n=1), or each pair"
    " that two of them can make (n=2); all of them with --every-combination, or where one is named"
)

SAMPLED = "sampled(n): of the cases every n-th; all of them with --every-combination, or where one is named"

CHECK_ALL = "check_all: none of its cases but with --every-combination, or where it is named"


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


def is_for_other_service(item: pytest.Item) -> bool:
    """True where a test is for both services, and the quick tier tries it on the other: about as many on each."""
    test, _, case = item.nodeid.partition("[")
    services = ("gs", "s3")
    return bool(case) and item.callspec.params.get("service") == services[crc32(test.encode()) % 2]


def _narrowed(
    items: list[pytest.Item], kind: str, choose: Callable[[int, list[pytest.Item]], Iterable[int]]
) -> list[pytest.Item]:
    """Of each test with this mark what is chosen, by the numbers of its cases; all other items."""
    tests: dict[str, tuple[int, list[pytest.Item]]] = {}
    for item in items:
        if mark := item.get_closest_marker(kind):
            tests.setdefault(item.nodeid.partition("[")[0], (*mark.args, []))[1].append(item)
    left_out: set[pytest.Item] = set()
    for given, some in tests.values():
        left_out |= {*some} - {some[number] for number in choose(given, some)}
    return [item for item in items if item not in left_out]


def _cover(strength: int, some: list[pytest.Item]) -> list[int]:
    return covered([tuple(map(id, item.callspec.params.values())) for item in some], strength)


def _sample(every: int, some: list[pytest.Item]) -> range:
    return range(0, len(some), every)


def thin(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what is for check-all alone, what no cover needs, and what no sample has of the rest."""
    left = [
        item
        for item in items
        if item.get_closest_marker("check_all") is None and not is_for_other_service(item)
    ]
    left = _narrowed(_narrowed(left, "covers", _cover), "sampled", _sample)
    chosen = {*left}
    if left_out := [item for item in items if item not in chosen]:
        config.hook.pytest_deselected(items=left_out)
    items[:] = left
