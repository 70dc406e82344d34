"""Kernels that are maps, on params and on their slots; most of them move elements and compute nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import msgspec

from surgery_cli.draft.axis_order import AxisOrder
from surgery_cli.draft.kernel import Kernel, Piece, Window, broadcast_window
from surgery_cli.tree import sharding
from surgery_cli.tree.specs import LeafSpec


class ShapeMap(Kernel, frozen=True):
    """What gives leaves another shape: those of a param, and its slots alike."""

    keeps_places: ClassVar[bool] = False
    regroups: ClassVar[bool] = False
    """True if what was one leaf becomes a part of one, or several leaves become one; all inputs are such leaves."""

    @property
    def grows(self) -> int | None:
        """The axis along which there are new places; None if there are none."""
        return None

    @property
    def of_squares(self) -> ShapeMap:
        """The map on what must never become negative."""
        return self

    def output(self, leaf: LeafSpec) -> LeafSpec:
        """What a leaf is afterwards; see ``rearranged``."""
        raise NotImplementedError

    def on_each(self) -> ShapeMap:
        """The map on every part of an array along its first axis: of slots that are stacked."""
        raise NotImplementedError

    def without(self, axis: int, leaf: LeafSpec) -> tuple[Arrangement, int] | None:
        """What the map does to means of a leaf over an axis, and where that axis goes.

        None where that is not all that there is to it: the axis is cut, or mixed with others. ``leaf`` is what the map
        takes, the means lack the axis.
        """
        return None

    def along(self, axis: int, leaf: LeafSpec) -> tuple[ShapeMap, int] | None:
        """What the map does to a vector for the places of one axis, and where that axis goes.

        None where it is mixed with others. ``leaf`` is what the map takes.
        """
        return None


class Arrangement(ShapeMap, frozen=True):
    """Elements move and nothing is computed: every piece is arranged on the host, in the leaf's own dtype.

    Where ``grows`` names an axis, there are new places along it, which no element of the leaf comes to: a second input
    fills them, which broadcasts to the output but for that axis, along which it is as long as the new places, or 1.
    """

    def arrange(self, block: Any, piece: Piece) -> Any:
        """A NumPy block of an input as it stands in the output: [broadcasts to the shape of ``piece.write``].

        A view of it, wherever one will do: what gives back the block's own memory, as it lies, is known to leave the
        bytes of a stored chunk alone, which then need not be written.
        """
        return block

    def reorder(self, order: AxisOrder) -> AxisOrder | None:
        """The order of elements within the axes that they had once, from that before the map.

        None where it cannot be followed: the axes are then counted anew.
        """
        return None

    def taking(self, part: Kernel) -> int | None:
        """The number of the input that another map takes out of the whole again; None if it takes something else."""
        return None

    def followed_by(self, outer: Kernel) -> Kernel | None:
        """The one map that does this one and then ``outer``, where this one knows it; see ``Kernel.after``."""
        return None

    def on_each(self) -> Arrangement:
        return OnEach(self)


class OnEach(Arrangement, frozen=True, tag="on_each"):
    """A map on every part of an array along its first axis: of slots that are stacked."""

    map: Arrangement

    @property
    def name(self) -> str:
        return self.map.name

    @property
    def grows(self) -> int | None:
        return None if self.map.grows is None else self.map.grows + 1

    def output(self, leaf: LeafSpec) -> LeafSpec:
        one = self.map.output(rearranged(leaf, leaf.shape[1:], range(1, len(leaf.shape))))
        shape = (leaf.shape[0], *one.shape)
        first = rearranged(leaf, leaf.shape, (0, *[None] * len(leaf.shape[1:])))
        return msgspec.structs.replace(
            reshaped(leaf, shape),
            chunk_shape=_behind(first.chunk_shape, one.chunk_shape),
            write_shape=_behind(first.write_shape, one.write_shape),
            sharding=None,
        )

    def pieces(self, out: Window, inputs: Sequence[LeafSpec], output: LeafSpec) -> Iterator[Piece]:
        first, *rest = out
        inner = [
            rearranged(spec, spec.shape[1:], range(1, len(spec.shape))) if spec.shape else spec
            for spec in inputs
        ]
        one = rearranged(output, output.shape[1:], range(1, len(output.shape)))
        every = [slice(n, n + 1) for n in range(first.start, first.stop)]
        for piece in self.map.pieces(tuple(rest), inner, one):
            shape = inputs[piece.input].shape
            for each in every:
                lead = broadcast_window(shape[:1], (each,))
                yield piece._replace(read=(*lead, *piece.read), write=(each, *piece.write))

    def arrange(self, block: Any, piece: Piece) -> Any:
        if not block.shape:
            return block
        inner = piece._replace(read=piece.read[1:], write=piece.write[1:])
        return self.map.arrange(block[0], inner)[None]

    def is_identity(self, inputs: Sequence[LeafSpec], output: LeafSpec) -> bool:
        inner = [rearranged(spec, spec.shape[1:], range(1, len(spec.shape))) for spec in inputs]
        one = rearranged(output, output.shape[1:], range(1, len(output.shape)))
        return self.map.is_identity(inner, one)

    def after(self, inner: Kernel) -> Kernel | None:
        if not isinstance(inner, OnEach):
            return None
        both = self.map.after(inner.map)
        return OnEach(both) if isinstance(both, Arrangement) else None


def reshaped(leaf: LeafSpec, shape: tuple[int, ...]) -> LeafSpec:
    """A leaf of another shape, of whose chunks nothing is said yet."""
    return msgspec.structs.replace(
        leaf, shape=shape, chunk_shape=None, write_shape=None, stored_bytes=None
    )


def resized(leaf: LeafSpec, shape: tuple[int, ...]) -> LeafSpec:
    """A leaf of another shape whose values are new: as many axes are those that were there."""
    if shape == leaf.shape:
        return leaf
    is_same_axes = len(shape) == len(leaf.shape)
    return rearranged(leaf, shape, range(len(shape)) if is_same_axes else [None] * len(shape))


def rearranged(leaf: LeafSpec, shape: Sequence[int], origins: Sequence[int | None]) -> LeafSpec:
    """A leaf whose axes were those of another: ``origins`` says which, None of an axis that is new.

    The grid of chunks and the sharding are the images of the leaf's own: an axis in one chunk stays in one.
    """
    text = leaf.sharding
    return msgspec.structs.replace(
        leaf,
        shape=tuple(shape),
        chunk_shape=_image(leaf.chunk_shape, leaf.shape, shape, origins),
        write_shape=_image(leaf.write_shape, leaf.shape, shape, origins),
        sharding=None if text is None else sharding.of_rearranged(text, origins, shape),
        stored_bytes=None,
    )


def _image(
    chunks: tuple[int, ...] | None,
    old: Sequence[int],
    new: Sequence[int],
    origins: Sequence[int | None],
) -> tuple[int, ...] | None:
    if chunks is None:
        return None
    return tuple(
        max(size if n is None or chunks[n] >= old[n] else min(chunks[n], size), 1)
        for size, n in zip(new, origins, strict=True)
    )


def _behind(first: tuple[int, ...] | None, rest: tuple[int, ...] | None) -> tuple[int, ...] | None:
    return None if first is None or rest is None else (first[0], *rest)
