"""Leaves that do not fit into the memory that there is beside each other: held against each other part by part."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from surgery_cli.draft.kernel import Window
from surgery_cli.engine.bounded_reads import PairReading, Reading, block_reading, pair_reading
from surgery_cli.engine.digests import c_order_bytes
from surgery_cli.engine.grid import windows
from surgery_cli.engine.reading import Readable, Values
from surgery_cli.matching.families import Family
from surgery_cli.matching.forms import Form
from surgery_cli.matching.sums import as_dtype
from surgery_cli.tree.specs import LeafSpec

Shape = tuple[int, ...]


class Member(NamedTuple):
    """One member of a family, or one place of the axis of ``layers`` of its only one."""

    source: Readable
    family: Family
    number: int
    layers: int | None

    @property
    def spec(self) -> LeafSpec:
        """What it is, without the axis of layers."""
        spec = self.family.spec
        return (
            spec
            if self.layers is None
            else msgspec.structs.replace(
                spec,
                shape=without_axis(spec.shape, self.layers),
                chunk_shape=spec.chunk_shape and without_axis(spec.chunk_shape, self.layers),
                write_shape=spec.write_shape and without_axis(spec.write_shape, self.layers),
            )
        )

    @property
    def layers_at_once(self) -> int:
        """How many layers a stored chunk has."""
        chunks = self.family.spec.chunk_shape
        return 1 if self.layers is None or chunks is None else max(chunks[self.layers], 1)

    def read(self, reading: Reading, window: Window) -> Values:
        """A part of it."""
        members, spec = self.family.members, self.family.spec
        if self.layers is None:
            return reading.read(self.source, members[self.number], spec, window)
        at = slice(self.number, self.number + 1)
        whole = (*window[: self.layers], at, *window[self.layers :])
        return reading.read(self.source, members[0], spec, whole).squeeze(self.layers)


def is_same_in_parts(old: Member, new: Member, form: Form, limit_bytes: int) -> bool:
    """True if the one is what a form makes of the other, which neither cuts nor joins an axis."""
    one, there = form.arrangement, new.spec
    axes = one.axes or tuple(range(len(there.shape)))
    here = turned(old.spec, axes)
    limit = limit_bytes // max(old.layers_at_once, new.layers_at_once)
    readings = read_beside(there, here, limit)
    for window in windows(there.shape, readings.a.part):
        part = tuple(window[axes.index(axis)] for axis in range(len(axes)))
        made = one.of(as_dtype(old.read(readings.b, part), there.dtype))
        if not is_same(made, new.read(readings.a, window)):
            return False
        del made  # or it would stay while the next is read
    return True


def turned(spec: LeafSpec, axes: Shape) -> LeafSpec:
    """A leaf with its axes in another order."""

    def of(shape: Shape | None) -> Shape | None:
        return None if shape is None else tuple(shape[axis] for axis in axes)

    return msgspec.structs.replace(
        spec,
        shape=tuple(spec.shape[axis] for axis in axes),
        chunk_shape=of(spec.chunk_shape),
        write_shape=of(spec.write_shape),
    )


def read_beside(there: LeafSpec, here: LeafSpec, limit_bytes: int) -> PairReading:
    """How leaves of one shape are read to be held against each other: what is made of parts has its memory beside."""
    return pair_reading(there, here, max(limit_bytes // 2, 1))


def read_alone(spec: LeafSpec, limit_bytes: int) -> Reading:
    """How the values of a leaf are read to be summed."""
    return block_reading(spec, max(limit_bytes // 4, 1))


_PART_BYTES: Final = 1 << 20
"""Bytes are compared in parts of this size, so that next to nothing stands beside them."""


def is_same(here: Values, there: Values) -> bool:
    """True if all bytes are."""
    if here.shape != there.shape or here.dtype.itemsize != there.dtype.itemsize:
        return False
    left, right = map(c_order_bytes, (here, there))
    parts = (slice(at, at + _PART_BYTES) for at in range(0, left.size, _PART_BYTES))
    return all(bool((left[part] == right[part]).all()) for part in parts)


def without_axis(shape: Shape, axis: int | None) -> Shape:
    """A shape without the axis of layers, if there is one."""
    return shape if axis is None else shape[:axis] + shape[axis + 1 :]
