"""Which call of one model is which call of another."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Final

import msgspec

from surgery_cli.probing.trace.forward import Site, is_observable

_MOST_ITERATIONS: Final = 256
"""Loops longer than this are not taken apart: their calls pair only with a loop of the same length."""


class Half(msgspec.Struct, frozen=True):
    """One side of a pair: a site, whole or one iteration of the loops around it."""

    site: Site
    iteration: tuple[int, ...] | None = None

    @property
    def name(self) -> str:
        if self.iteration is None:
            return self.site.name
        return f"{self.site.name} #{','.join(map(str, self.iteration))}"

    @property
    def order(self) -> tuple[int, ...]:
        """Sorts halves by time; a whole loop counts as its first iteration."""
        point = self.site.point
        return point.order(self.iteration or (0,) * len(point.lengths))


class Pairs(msgspec.Struct, frozen=True):
    """The pairs in the order of the first model, and what has no counterpart on either side."""

    both: list[tuple[Half, Half]]
    only_in_a: list[Half]
    only_in_b: list[Half]


def pair(a: Sequence[Site], b: Sequence[Site], renames: Mapping[str, str]) -> Pairs:
    """Pair the outputs of calls: by name, by ``renames`` of module paths, else by class and shape in order.

    Of a loop and the same layers written out, iterations pair with layers.
    """
    left = [Half(s) for s in a if _is_compared(s)]
    right = [Half(s) for s in b if _is_compared(s)]
    both: list[tuple[Half, Half]] = []
    by_name = {half.name: half for half in right}
    taken: set[str] = set()
    for half in left:
        for name in (half.name, _renamed(half.site, renames)):
            other = by_name.get(name)
            if other is not None and name not in taken and _is_like(half.site, other.site):
                both.append((half, other))
                taken.add(name)
                break
    known = {half.name for half, _ in both}
    rest_a = list(_apart(half for half in left if half.name not in known))
    rest_b = list(_apart(half for half in right if half.name not in taken))
    waiting: defaultdict[Any, deque[Half]] = defaultdict(deque)
    for half in sorted(rest_b, key=lambda h: h.order):
        waiting[_likeness(half)].append(half)
    only_in_a = []
    for half in sorted(rest_a, key=lambda h: h.order):
        queue = waiting[_likeness(half)]
        if queue:
            both.append((half, queue.popleft()))
        else:
            only_in_a.append(half)
    both.sort(key=lambda halves: halves[0].order)
    only_in_b = sorted((h for queue in waiting.values() for h in queue), key=lambda h: h.order)
    return Pairs(both, only_in_a, only_in_b)


def _is_compared(site: Site) -> bool:
    return is_observable(site) and site.label.role != "in"


def _renamed(site: Site, renames: Mapping[str, str]) -> str:
    """The site's name with its module's path, or that of a module above it, renamed."""
    keys = site.label.path.split("/")
    for length in range(len(keys), 0, -1):
        new = renames.get("/".join(keys[:length]))
        if new is not None:
            path = "/".join([new, *keys[length:]])
            label = msgspec.structs.replace(site.label, path=path)
            return Site(site.point, label, site.call).name
    return site.name


def _is_like(a: Site, b: Site) -> bool:
    return a.shape == b.shape and a.point.lengths == b.point.lengths


def _likeness(half: Half) -> Any:
    label = half.site.label
    loops = () if half.iteration is not None else half.site.point.lengths
    return (
        label.kind,
        label.role,
        label.method if label.role == "out" else "",
        label.leaf,
        half.site.shape,
        loops,
    )


def _apart(halves: Iterable[Half]) -> Iterator[Half]:
    """Loops taken apart into their iterations."""
    for half in halves:
        lengths = half.site.point.lengths
        if not lengths or math.prod(lengths) > _MOST_ITERATIONS:
            yield half
        else:
            for iteration in product(*map(range, lengths)):
                yield Half(half.site, iteration)
