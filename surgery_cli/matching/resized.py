"""Leaves that are one but for the length of an axis: vocabularies that are padded, more classes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from surgery_cli.matching.candidates import Candidates
from surgery_cli.matching.contents import Holdings, can_be
from surgery_cli.matching.families import Family
from surgery_cli.matching.forms import Form, Resize, forms
from surgery_cli.matching.pairs import OTHERS, SAME, Certainty, Pair
from surgery_cli.tree.paths import LeafPath

_MOST: Final = 3
"""So many that are alike in name are named, or have their values held against each other."""
_ENOUGH: Final = 32
"""So many elements are not the same by chance, even where they are few numbers over and over."""
_FEWEST: Final = 4
"""So many elements, not all of them one number, are not the same by chance at the same path, as those of a bias."""

Shape: TypeAlias = tuple[int, ...]


def axis_between(old: Shape, new: Shape) -> tuple[int, int] | None:
    """How long the one axis is that has another length there, in both; None if there is no such axis, or several.

    >>> axis_between((57, 8), (8, 64)), axis_between((57, 8), (57, 8)), axis_between((8,), (8, 64))
    ((57, 64), None, None)
    """
    here, there = sorted(old), sorted(new)
    for size in old:
        if size in there:
            here.remove(size)
            there.remove(size)
    return (here[0], there[0]) if len(here) == len(there) == 1 else None


class Likely(msgspec.Struct, frozen=True):
    """Families of two trees that differ in the length of one axis, in whatever order, by names the most alike first.

    What stands at the same paths goes before all others.
    """

    candidates: Candidates
    of_new: Mapping[int, Sequence[int]]

    def perhaps(self) -> dict[LeafPath, list[str]]:
        """What each leaf of the new tree may come from, in words."""
        found: dict[LeafPath, list[str]] = {}
        for j, places in self.of_new.items():
            new = self.candidates.news[j]
            for i in places[:_MOST]:
                old = self.candidates.olds[i]
                sizes = axis_between(old.spec.shape, new.spec.shape)
                assert sizes is not None
                text = f"{old} ({sizes[0]:,} places of an axis there, {sizes[1]:,} here: `resize`)"
                for path in new.members:
                    found.setdefault(path, []).append(text)
        return found


def resizable(olds: Sequence[Family], news: Sequence[Family]) -> Likely:
    """What may have become what, if it got longer or shorter."""
    candidates = Candidates(olds, news)
    here, there = _but_for_one(olds), _but_for_one(news)
    found: dict[int, dict[int, None]] = defaultdict(dict)
    for key in here.keys() & there.keys():
        for i, j in candidates.alike(here[key], there[key]):
            if axis_between(olds[i].spec.shape, news[j].spec.shape):
                found[j][i] = None

    def likeness(i: int, j: int) -> float:
        return candidates.likeness.of(olds[i].meaning, news[j].meaning)

    of_new = {
        j: sorted(places, key=lambda i: (olds[i].members != news[j].members, -likeness(i, j)))
        for j, places in sorted(found.items())
    }
    return Likely(candidates, of_new)


def resized(olds: Sequence[Family], news: Sequence[Family], holdings: Holdings) -> Iterator[Pair]:
    """The pairs whose values are the same, as far as both go along the axis."""
    likely = resizable(olds, news)
    done: set[int] = set()
    for j, places in likely.of_new.items():
        for i in [place for place in places if place not in done][:_MOST]:
            pair = _proved(olds[i], news[j], holdings)
            if pair is not None:
                done.add(i)
                yield pair
                break


def _but_for_one(families: Iterable[Family]) -> dict[tuple[int, Shape], list[int]]:
    """Places of families by how many leaves they are and by their lengths but one, once without each of them."""
    found: dict[tuple[int, Shape], list[int]] = defaultdict(list)
    for place, family in enumerate(families):
        shape = family.spec.shape
        rest = {tuple(sorted((*shape[:n], *shape[n + 1 :]))) for n in range(len(shape))}
        for lengths in rest:
            found[len(family.members), lengths].append(place)
    return found


def _proved(old: Family, new: Family, holdings: Holdings) -> Pair | None:
    """The pair, if the values of what is shorter are those of the begin of the other; None if not."""
    sizes = axis_between(old.spec.shape, new.spec.shape)
    if sizes is None or not can_be(old.spec, new.spec):
        return None
    is_longer = sizes[1] > sizes[0]
    longer = new if is_longer else old
    for axis in [n for n, size in enumerate(longer.spec.shape) if size == max(sizes)]:
        common = _part(longer, axis, slice(0, min(sizes)), holdings, is_old=not is_longer)
        here, there = (old, common) if is_longer else (common, new)
        is_at_home = old.members == new.members
        if not _are_alike(here, there, holdings, is_at_home=is_at_home):
            continue
        for form in holdings.fitting(here, there, forms(here, there))[:1]:
            if is_longer:
                pair = _longer(old, new, form, axis, min(sizes), holdings)
                return None if pair.is_other and common.spec.size < _ENOUGH else pair
            order = form.arrangement.axes or tuple(range(len(old.spec.shape)))
            if form.arrangement.keeps_axes_whole:
                change = Resize(order.index(axis), *sizes)
                whole = msgspec.structs.replace(form, resize=change)
                why = f"{SAME}, without the last {sizes[0] - sizes[1]:,} places of an axis"
                return _pair(old, new, whole, why)
    return None


def _are_alike(here: Family, there: Family, holdings: Holdings, *, is_at_home: bool) -> bool:
    """True if both hold the same, and not by chance; ``is_at_home``: at the same path, where fewer elements do."""
    is_same = holdings.agree(here, there)
    if there.spec.size >= _ENOUGH:
        return bool(is_same)
    if is_same is False or not is_at_home or there.spec.size < _FEWEST:
        return False
    return all(holdings.number_in(path) is None for path in there.members)


def _longer(old: Family, new: Family, form: Form, axis: int, size: int, holdings: Holdings) -> Pair:
    """The pair of a leaf with what has more places: they are known where one number is in all of them."""
    full = new.spec.shape[axis]
    rest = _part(new, axis, slice(size, full), holdings, is_old=False)
    numbers = {str(holdings.number_in(path)): holdings.number_in(path) for path in rest.members}
    value = next(iter(numbers.values())) if len(numbers) == 1 else None
    whole = msgspec.structs.replace(form, resize=Resize(axis, size, full, value))
    more = f"the last {full - size:,} places of axis {axis}"
    if value is not None:
        return _pair(old, new, whole, f"{SAME}, and {value:g} in {more}")
    why = f"{SAME}, but for {more}"
    return _pair(old, new, whole, why, f"{OTHERS}: {more} hold what A has not", is_other=True)


def _pair(old: Family, new: Family, form: Form, *why: str, is_other: bool = False) -> Pair:
    return Pair(old=old, new=new, form=form, certainty=Certainty.SURE, why=why, is_other=is_other)


def _part(whole: Family, axis: int, places: slice, holdings: Holdings, *, is_old: bool) -> Family:
    """Some places along an axis of a family, as a family that can be read."""
    shape = list(whole.spec.shape)
    shape[axis] = places.stop - places.start
    spec = msgspec.structs.replace(
        whole.spec, shape=tuple(shape), chunk_shape=None, write_shape=None, sharding=None
    )
    window = tuple(
        places if n == axis else slice(0, size) for n, size in enumerate(whole.spec.shape)
    )
    suffix = f"[{axis}: {places.start}..{places.stop}]"
    members = tuple(LeafPath((*path[:-1], f"{path[-1]}{suffix}")) for path in whole.members)
    for path, leaf in zip(members, whole.members, strict=True):
        holdings.add(path, spec, (leaf, window), is_old=is_old)
    return msgspec.structs.replace(whole, members=members, spec=spec)
