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
    """True if the values of every part are those of its counterpart."""

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
    """The families of the one side that the other has in parts; ``is_old``: the one is the old tree."""
    likeness = Likeness([family.meaning for family in (*here, *there)])
    found = []
    for whole in here:
        concept = next((word for word in FUSED if word in whole.meaning.words), None)
        if concept is None or any(concept in one.meaning.words for one in there):
            continue
        parts = _counterparts(whole, concept, there, likeness)
        if parts is not None:
            found += _cut(whole, concept, parts, holdings, is_old=is_old)
    return found


def _counterparts(
    whole: Family, concept: str, there: Sequence[Family], likeness: Likeness
) -> tuple[Family, ...] | None:
    """The families that together are the fused one, by their names and sizes; None if there are none."""
    groups: dict[object, dict[str, Family]] = {}
    for family in there:
        for part in FUSED[concept]:
            if part in family.meaning.words and family.meaning.role == whole.meaning.role:
                rest = tuple(word for word in family.meaning.words if word != part)
                groups.setdefault((rest, family.numbers), {})[part] = family
    fitting = [
        tuple(group[part] for part in FUSED[concept])
        for group in groups.values()
        if len(group) == len(FUSED[concept])
        and sum(family.size for family in group.values()) == whole.size
    ]
    ranked = sorted(fitting, key=lambda parts: -_likeness(whole, concept, parts, likeness))
    if not ranked or _likeness(whole, concept, ranked[0], likeness) < _ALIKE:
        return None
    return ranked[0]


def _likeness(whole: Family, concept: str, parts: Sequence[Family], likeness: Likeness) -> float:
    names = (_renamed(whole, concept, part) for part in FUSED[concept])
    return min(
        likeness.of(one.meaning, part.meaning) for one, part in zip(names, parts, strict=True)
    )


def _renamed(whole: Family, concept: str, part: str) -> Family:
    words = tuple(part if word == concept else word for word in whole.meaning.words)
    meaning = msgspec.structs.replace(whole.meaning, words=words)
    return msgspec.structs.replace(whole, meaning=meaning)


def _cut(
    whole: Family,
    concept: str,
    parts: Sequence[Family],
    holdings: Holdings | None,
    *,
    is_old: bool,
) -> list[Fusion]:
    """The fusion along the axis where values say that it is; else along that of the outputs, by custom."""
    ways = list(_ways(whole, concept, parts))
    for fusion in ways if holdings is not None else ():
        assert holdings is not None
        specs = {path: part.spec for part in fusion.parts for path in part.members}
        for path, leaf, window in fusion.windows():
            holdings.add(path, specs[path], (leaf, window), is_old=is_old)
        pairs = zip(fusion.parts, parts, strict=True)
        if all(holdings.agree(*((a, b) if is_old else (b, a))) for a, b in pairs):
            return [fusion._replace(is_sure=True)]
    outputs = 0 if whole.meaning.last == "weight" else len(whole.spec.shape) - 1
    return [fusion for fusion in ways if fusion.axis == outputs][:1]


def _ways(whole: Family, concept: str, parts: Sequence[Family]) -> Iterator[Fusion]:
    shape = whole.spec.shape
    for axis, size in enumerate(shape):
        shares = [size * part.size for part in parts]
        if any(share % whole.size for share in shares):
            continue
        sizes = tuple(share // whole.size for share in shares)
        cut = tuple(
            _part(
                _renamed(whole, concept, name), f".{name}", (*shape[:axis], one, *shape[axis + 1 :])
            )
            for name, one in zip(FUSED[concept], sizes, strict=True)
        )
        yield Fusion(whole, cut, axis, sizes, is_sure=False)


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
