"""Fused leaves: query, key and value in one projection, gate and up in one; taken apart before leaves are paired."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from surgery_cli.matching.arrangements import Shape
from surgery_cli.matching.contents import Holdings
from surgery_cli.matching.families import Family
from surgery_cli.matching.vocabulary import FUSED
from surgery_cli.matching.words import Likeness
from surgery_cli.tree.paths import LeafPath

_ALIKE: Final = 0.5


class Fusion(NamedTuple):
    """A family of one side that is several of the other, side by side along an axis.

    ``parts`` are its leaves as they are once it is cut, under names of their own.
    """

    whole: Family
    parts: tuple[Family, ...]
    axis: int
    sizes: tuple[int, ...]
    is_sure: bool
    """True if the values of every part are those of a counterpart."""
    has_axis: bool = False
    """True if it has more axes than its counterparts, but for that of layers: perhaps one for the parts."""

    @property
    def leaves(self) -> set[LeafPath]:
        """The names of all parts."""
        return {path for part in self.parts for path in part.members}

    def windows(self) -> Iterator[tuple[LeafPath, LeafPath, tuple[slice, ...]]]:
        """Every part of every leaf: its own name, the leaf, and where it stands there."""
        starts = list(itertools.accumulate(self.sizes, initial=0))
        for n, part in enumerate(self.parts):
            for path, leaf in zip(part.members, self.whole.members, strict=True):
                window = [slice(0, size) for size in self.whole.spec.shape]
                window[self.axis] = slice(starts[n], starts[n + 1])
                yield path, leaf, tuple(window)


def fusions(
    here: Sequence[Family], there: Sequence[Family], holdings: Holdings | None, *, is_old: bool
) -> list[Fusion]:
    """The families of the one side that the other has in parts; ``is_old``: the one is the old tree.

    Where the kernel of a layer is cut, its bias is, too: the axis that values prove for the one is that of the other.
    What is called no more than one of its parts, such as `wi`, is cut where values prove it.
    """
    likeness = Likeness([family.meaning for family in (*here, *there)])
    layers: dict[tuple[str, *tuple[object, ...]], list[list[Fusion]]] = {}
    for whole in here:
        for word, names in _readings(whole, there, is_by_values=holdings is not None):
            parts = _counterparts(whole, word, names, there, likeness)
            if parts is None:
                continue
            ways = list(_ways(whole, word, names, parts))
            if holdings is not None:
                ways = [_tried(way, parts, holdings, is_old=is_old) for way in ways]
            layers.setdefault((word, whole.meaning.words, whole.numbers), []).append(ways)
            break
    found = []
    for (word, *_), leaves in layers.items():
        if word not in FUSED and not any(way.is_sure for ways in leaves for way in ways):
            continue
        for fusion in _of_one_layer(leaves):
            if holdings is not None:  # each way has its windows under the same names
                _add(fusion, holdings, is_old=is_old)
            found.append(fusion)
    return found


def _add(fusion: Fusion, holdings: Holdings, *, is_old: bool) -> None:
    specs = {path: part.spec for part in fusion.parts for path in part.members}
    for path, leaf, window in fusion.windows():
        holdings.add(path, specs[path], (leaf, window), is_old=is_old)


def _readings(
    whole: Family, there: Sequence[Family], *, is_by_values: bool
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The words of a name that may stand for several leaves, and for which: that of one of them only by values."""
    words = whole.meaning.words
    for concept, names in FUSED.items():
        if concept in words and not any(concept in one.meaning.words for one in there):
            yield concept, names
    for names in FUSED.values() if is_by_values else ():
        yield from ((one, names) for one in names if one in words)


def _tried(fusion: Fusion, parts: Sequence[Family], holdings: Holdings, *, is_old: bool) -> Fusion:
    """The fusion, sure if the values of its parts are those of their counterparts, in whatever order."""
    _add(fusion, holdings, is_old=is_old)
    pairs = ([(a, b) if is_old else (b, a) for b in parts] for a in fusion.parts)
    agree = all(any(holdings.agree(*pair) for pair in of_one) for of_one in pairs)
    return fusion._replace(is_sure=agree)


def _of_one_layer(leaves: Sequence[Sequence[Fusion]]) -> Iterator[Fusion]:
    """The fusion of each leaf of a layer: along what values prove for one of them, else along the outputs by custom."""
    every = [ways for ways in leaves if ways]
    kernel = max(every, key=lambda ways: len(ways[0].whole.spec.shape), default=())
    is_first = any(ways[0].whole.meaning.last == "weight" for ways in every)

    def place(one: Fusion) -> int:
        """Which axis it is, counted from the side on which a kernel and its bias have the same ones."""
        return one.axis if is_first else one.axis - len(one.whole.spec.shape)

    sure = [next((way for way in ways if way.is_sure), None) for ways in every]
    places = {place(one) for one in sure if one is not None}
    if not places:
        custom = _customary(kernel) if kernel else None
        places = {place(way) for way in kernel if way.axis == custom}
    for proved, ways in zip(sure, every, strict=True):
        fitting = [way for way in ways if {place(way)} == places]
        yield from fitting[:1] if proved is None else [proved]


def _customary(ways: Sequence[Fusion]) -> int:
    """An axis of their own, one place for each part, where only one can be that; else the axis of the outputs."""
    one = ways[0]
    shape = one.whole.spec.shape
    own = [way.axis for way in ways if shape[way.axis] == len(one.parts)]
    if one.has_axis and len(own) == 1:
        return own[0]
    return 0 if one.whole.meaning.last == "weight" else len(shape) - 1


def _counterparts(
    whole: Family, word: str, names: Sequence[str], there: Sequence[Family], likeness: Likeness
) -> tuple[Family, ...] | None:
    """The families that together are the fused one, by their names and sizes; None if there are none."""
    groups: dict[object, dict[str, Family]] = {}
    for family in there:
        for part in names:
            if part in family.meaning.words and family.meaning.role == whole.meaning.role:
                rest = tuple(word for word in family.meaning.words if word != part)
                groups.setdefault((rest, family.numbers), {})[part] = family
    fitting = [
        tuple(group[part] for part in names)
        for group in groups.values()
        if len(group) == len(names) and sum(family.size for family in group.values()) == whole.size
    ]

    def alike(parts: Sequence[Family]) -> float:
        renamed = (_renamed(whole, word, name).meaning for name in names)
        pairs = zip(renamed, parts, strict=True)
        return min(likeness.of(one, part.meaning) for one, part in pairs)

    best = max(fitting, key=alike, default=None)
    return best if best is not None and alike(best) >= _ALIKE else None


def _renamed(whole: Family, word: str, part: str) -> Family:
    words = tuple(part if one == word else one for one in whole.meaning.words)
    meaning = msgspec.structs.replace(whole.meaning, words=words)
    return msgspec.structs.replace(whole, meaning=meaning)


def _ways(
    whole: Family, word: str, names: Sequence[str], parts: Sequence[Family]
) -> Iterator[Fusion]:
    shape = whole.spec.shape
    layers = (len(whole.members) < len(parts[0].members)) - (
        len(whole.members) > len(parts[0].members)
    )
    has_axis = len(shape) - layers > max(len(part.spec.shape) for part in parts)
    for axis, size in enumerate(shape):
        shares = [size * part.size for part in parts]
        if any(share % whole.size for share in shares):
            continue
        sizes = tuple(share // whole.size for share in shares)
        cut = tuple(
            _part(_renamed(whole, word, name), f".{name}", (*shape[:axis], one, *shape[axis + 1 :]))
            for name, one in zip(names, sizes, strict=True)
        )
        yield Fusion(whole, cut, axis, sizes, is_sure=False, has_axis=has_axis)


def _part(whole: Family, suffix: str, shape: Shape) -> Family:
    def beside(path: LeafPath) -> LeafPath:
        return LeafPath((*path[:-1], f"{path[-1]}{suffix}"))

    return msgspec.structs.replace(
        whole,
        members=tuple(map(beside, whole.members)),
        template=beside(whole.template),
        spec=msgspec.structs.replace(
            whole.spec, shape=shape, chunk_shape=None, write_shape=None, sharding=None
        ),
    )


def with_parts(families: Iterable[Family], found: Sequence[Fusion]) -> list[Family]:
    """The families, fused ones by their parts."""
    parts: Mapping[int, tuple[Family, ...]] = {id(one.whole): one.parts for one in found}
    return [part for family in families for part in parts.get(id(family), (family,))]
