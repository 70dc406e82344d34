"""The values of leaves of two trees, read within a bound: which leaves hold the same, and in which arrangement."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import numpy as np

from surgery_cli.compute.numpy_dtypes import numpy_dtype
from surgery_cli.draft.kernel import Window
from surgery_cli.engine.progress import Meter
from surgery_cli.engine.reading import CountedSource, Readable, Values
from surgery_cli.matching.arrangements import in_turns
from surgery_cli.matching.families import Family
from surgery_cli.matching.forms import Change, Form
from surgery_cli.matching.large_leaves import (
    Member,
    is_same,
    is_same_in_parts,
    read_alone,
    without_axis,
)
from surgery_cli.matching.sums import FEW, Contents, as_dtype, contents_of, one_number, total_of
from surgery_cli.tree.dtypes import is_floating
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec, TreeSpec

_NEAR: Final = 1e-2
"""Values that are so near in all leave a root or a step of 1 in no doubt; whether they are the same is tried then."""


Place: TypeAlias = tuple[LeafPath, Window]
"""A leaf, and a block of it."""


class Parts:
    """A source whose leaves can be read by their parts, too, each under a name of its own."""

    def __init__(self, source: Readable) -> None:
        self._source = source
        self.places: dict[LeafPath, Place] = {}

    def read(self, path: LeafPath, window: Window | None = None) -> Any:
        """A leaf or part, or a block of it."""
        if path not in self.places:
            return self._source.read(path, window)
        leaf, own = self.places[path]
        if window is not None:
            own = tuple(
                slice(at.start + inner.start, at.start + inner.stop)
                for at, inner in zip(own, window, strict=True)
            )
        return self.read(leaf, own)  # which may be a part itself


class Side(NamedTuple):
    """One of the two trees, with what reads it."""

    tree: dict[LeafPath, LeafSpec]
    source: Parts
    counted: CountedSource


class Holdings:
    """What the leaves of two trees hold: each leaf is read once for that, and once more to be held against another."""

    def __init__(
        self,
        old: tuple[TreeSpec, Readable],
        new: tuple[TreeSpec, Readable],
        limit_bytes: int,
        meter: Meter | None = None,
    ) -> None:
        self._old, self._new = (
            Side(dict(tree), Parts(counted), counted)
            for tree, counted in ((tree, CountedSource(source)) for tree, source in (old, new))
        )
        self._limit = limit_bytes
        self._meter = meter or Meter(None, "", 0)
        self._known: dict[tuple[bool, LeafPath], dict[str, Contents]] = {}

    @property
    def read_bytes(self) -> int:
        """How much was read, of both."""
        return self._old.counted.read_bytes + self._new.counted.read_bytes

    def add(self, part: LeafPath, spec: LeafSpec, place: Place, *, is_old: bool) -> None:
        """Let a part of a leaf be read like a leaf; what another part of that name held is forgotten."""
        side = self._old if is_old else self._new
        self._known.pop((is_old, part), None)
        side.tree[part] = spec
        side.source.places[part] = place

    def of_old(self, path: LeafPath, dtype: str) -> Contents:
        """What a leaf of the old tree would hold in that dtype."""
        return self._contents(self._old, path, dtype)

    def of_new(self, path: LeafPath) -> Contents:
        """What a leaf of the new tree holds."""
        return self._contents(self._new, path, self._new.tree[path].dtype)

    def number_in(self, path: LeafPath) -> float | None:
        """The one number that a leaf or part of the new tree holds everywhere; None if there is none."""
        return one_number(self._blocks(self._new, path))

    def agree(self, old: Family, new: Family) -> bool | None:
        """True if two families hold the same, in whatever order; None if what they hold tells nothing."""
        if not can_be(old.spec, new.spec):
            return False
        here = [self.of_old(path, new.spec.dtype) for path in old.members]
        there = [self.of_new(path) for path in new.members]
        if len(here) == len(there):
            is_same = all(a.total == b.total for a, b in zip(here, there, strict=True))
        else:
            is_same = total_of(here) == total_of(there)
        return None if is_same and not self.is_telling(new) else is_same

    def is_telling(self, new: Family) -> bool:
        """False where a leaf of the new tree holds one number, or few: it is like others by chance."""
        return all(self.of_new(path).is_telling for path in new.members)

    def fitting(self, old: Family, new: Family, ways: Iterable[Form]) -> list[Form]:
        """Those of the forms in which the one family is the other, element by element."""
        if self.is_large(old, new):
            return [form for form in ways if self._is_same_in_parts(old, new, form)]
        left = list(ways)
        whole: dict[bool, Values] = {}
        for n in range(max(len(old.members), len(new.members))):
            units: dict[tuple[bool, int | None], Values] = {}
            for side, family, axes in (
                (self._old, old, {form.unstack for form in left}),
                (self._new, new, {form.stack for form in left}),
            ):
                for axis in axes:
                    values = self._unit(side, family, n, axis, whole)
                    units[side is self._old, axis] = values
            left = [
                form
                for form in left
                if is_same(_made(form, units[True, form.unstack], new), units[False, form.stack])
            ]
            if not left:
                break
        return left

    def in_turns(self, old: Family, new: Family, ways: Iterable[Form]) -> list[Form]:
        """The form in which they are, if halves of an axis take turns in one of them."""
        for form in () if self.is_large(old, new) else ways:
            here = without_axis(old.spec.shape, form.unstack)
            there = without_axis(new.spec.shape, form.stack)
            turned = [
                msgspec.structs.replace(form, arrangement=one)
                for one in in_turns(form.arrangement, here, there)
            ]
            found = self.fitting(old, new, turned)
            if found:
                return found[:1]
        return []

    def changed(
        self, old: Family, new: Family, ways: Sequence[Form]
    ) -> tuple[Change, Form | None] | None:
        """What else was done to all values, if it is one thing, and the form in which they are then the same.

        No form where they are so but for rounding, or their order.
        """
        first = ways[0]
        here = self._unit(self._old, old, 0, first.unstack, {})
        there = self._unit(self._new, new, 0, first.stack, {})
        change = _change(here, there, {*old.spec.shape, *new.spec.shape})
        if change is None:
            return None
        others = [msgspec.structs.replace(form, change=change) for form in ways]
        fitting = self.fitting(old, new, others) or self.in_turns(old, new, others)
        return change, next(iter(fitting), None)

    def is_large(self, old: Family, new: Family) -> bool:
        """True if a leaf does not fit into the memory that there is, beside what it is held against.

        Then it is held against it part by part, as far as no axis is cut or joined.
        """
        return self.bytes_to_compare(old, new) > self._limit

    def bytes_to_compare(self, old: Family, new: Family) -> int:
        """How much memory it takes to hold a leaf against another one as a whole, in any order."""
        count = max(len(old.members), len(new.members))
        sizes = (family.spec.bytes * len(family.members) // count for family in (old, new))
        return 4 * sum(sizes)

    def _is_same_in_parts(self, old: Family, new: Family, form: Form) -> bool:
        """True if each leaf is what the form says, held against it by parts."""
        if not form.arrangement.keeps_axes_whole or form.change is not None:
            return False
        return all(
            is_same_in_parts(
                Member(self._old.source, old, n, form.unstack),
                Member(self._new.source, new, n, form.stack),
                form,
                self._limit,
            )
            for n in range(max(len(old.members), len(new.members)))
        )

    def _unit(
        self, side: Side, family: Family, n: int, axis: int | None, whole: dict[bool, Values]
    ) -> Values:
        """The values of one member, or of one place of the axis of layers of the only one."""
        if axis is None:
            return _array(side.source.read(family.members[n]))
        key = side is self._old
        if 4 * family.spec.bytes <= self._limit:
            if key not in whole:
                whole[key] = _array(side.source.read(family.members[0]))
            return _array(np.take(whole[key], n, axis))
        window = tuple(
            slice(n, n + 1) if at == axis else slice(0, size)
            for at, size in enumerate(family.spec.shape)
        )
        return _array(np.take(_array(side.source.read(family.members[0], window)), 0, axis))

    def totals_along(self, family: Family, axis: int, dtype: str, *, is_old: bool) -> list[int]:
        """What each place of the axis of layers of a family's only leaf holds, in that dtype."""
        side, whole = self._old if is_old else self._new, dict[bool, Values]()
        places = (self._unit(side, family, n, axis, whole) for n in range(family.spec.shape[axis]))
        return [contents_of([values], dtype).total for values in places]

    def _contents(self, side: Side, path: LeafPath, dtype: str) -> Contents:
        known = self._known.setdefault((side is self._old, path), {})
        if dtype not in known:
            known[dtype] = contents_of(self._blocks(side, path), dtype)
            self._meter.advance(side.tree[path].bytes, str(path))
        return known[dtype]

    def _blocks(self, side: Side, path: LeafPath) -> Iterator[Values]:
        spec = side.tree[path]
        reading = read_alone(spec, self._limit)
        for _, parts in reading.windows(spec.shape):
            for window in parts:
                yield reading.read(side.source, path, spec, window)


def _made(form: Form, values: Values, new: Family) -> Values:
    """What a form makes of the values of a leaf: they are widened before anything is computed, narrowed after."""
    wanted = numpy_dtype(new.spec.dtype)
    if wanted.itemsize > values.dtype.itemsize:
        values = as_dtype(values, new.spec.dtype)
    changed = values if form.change is None else form.change.of(values)
    return _array(form.arrangement.of(as_dtype(changed, new.spec.dtype)))


def _change(here: Values, there: Values, sizes: Iterable[int]) -> Change | None:
    """The number by which values are multiplied, or that is added, whatever their order; None if there is none.

    Added is 1 or taken away, as norms differ; factors are roots of sizes, as embeddings and queries are scaled by.
    """
    if not (here.size == there.size > FEW and here.dtype.kind in "fV" and there.dtype.kind in "fV"):
        return None
    old, new = (np.sort(values.reshape(-1).astype(np.float64)) for values in (here, there))
    spread = np.abs(new).max() or 1.0
    for step in (1, -1):
        if np.abs(new - old - step).max() < _NEAR * spread:
            return Change("add-scaled", str(step), step)
    for size in sorted(sizes):
        for power in (0.5, -0.5):
            if size > 1 and np.abs(new - old * size**power).max() < _NEAR * spread:
                return Change("rescale", f"{size}^{power}", size**power)
    return None


def can_be(old: LeafSpec, new: LeafSpec) -> bool:
    """True if values of the one dtype may be those of the other, cast."""
    if LeafKind.KEY in (old.kind, new.kind):
        return old.kind is new.kind
    return old.dtype == new.dtype or (is_floating(old.dtype) and is_floating(new.dtype))


def _array(values: Any) -> Values:
    return np.asarray(values)
