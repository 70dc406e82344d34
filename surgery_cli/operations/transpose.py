"""Put the axes of leaves into another order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from surgery_cli.draft.arrangement import Arrangement, rearranged
from surgery_cli.draft.axis_order import AxisOrder
from surgery_cli.draft.kernel import Kernel, Piece, Window
from surgery_cli.draft.kernels.cut import Cut
from surgery_cli.draft.recipe import Draft
from surgery_cli.draft.settings import check_axes, resolve_axes
from surgery_cli.errors import PlanError
from surgery_cli.operations.base import Scene
from surgery_cli.operations.rearranging import Rearranging
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.advice import worded
from surgery_cli.words.notes import Remark
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.quantities import leaves_text


class Transpose(Rearranging, tag="transpose", kw_only=True, frozen=True):
    """Put the axes of leaves into another order, as `numpy.transpose` does."""

    axes: Annotated[
        tuple[int, ...],
        Meta(
            description="Which axis comes first, second, …; counted from the last if negative. Left out: the other way"
            " round."
        ),
    ] = ()

    example: ClassVar[str] = "- op: transpose\n  at: params/Dense_0/kernel\n  axes: [1, 0]\n"

    def check_values(self) -> None:
        super().check_values()
        if self.axes:
            check_axes(self.axes, "axes")

    def map(self, leaf: LeafSpec) -> Permutation:
        count = len(leaf.shape)
        if not self.axes:
            return Permutation(tuple(reversed(range(count))))
        axes = resolve_axes(self.axes, count, "axes")
        if len(axes) < count:
            raise PlanError(
                worded("{axes: {}} leaves out axes of {}", list(self.axes), leaf.type_text),
                why=f"it has {count} axes, and each must have its place",
                fix=worded(
                    "name every axis once, or select leaves with {where_ndim: {}}", len(axes)
                ),
                field="axes",
            )
        return Permutation(axes)

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        after = super().rewrite(draft, scene)
        named = scene.select(self, draft)
        unshown = [path for path in named if self._keeps_its_shape(draft.leaves[path].spec)]
        if not unshown:
            return after
        first = f"'{unshown[0]}' {draft.leaves[unshown[0]].spec.type_text}"
        of = f"of {len(unshown):,} of {leaves_text(len(named))}"
        said = (
            f"{of} the shape is the same afterwards, and does not show how the axes stand: {first}"
        )
        return after.noting(
            Remark(DocsPage.LAYOUTS, said + (" and others" if len(unshown) > 1 else ""))
        )

    def _keeps_its_shape(self, leaf: LeafSpec) -> bool:
        by = self.map(leaf)
        wide = [axis for axis in by.axes if leaf.shape[axis] > 1]
        return wide != sorted(wide) and by.output(leaf).shape == leaf.shape

    def undoing(self, leaf: LeafSpec) -> Rearranging:
        axes = self.map(leaf).axes
        return Transpose(axes=tuple(sorted(range(len(axes)), key=axes.__getitem__)))


class Permutation(Arrangement, frozen=True, tag="transpose"):
    """The axes of a leaf in another order."""

    axes: tuple[int, ...]

    def output(self, leaf: LeafSpec) -> LeafSpec:
        return rearranged(leaf, [leaf.shape[axis] for axis in self.axes], self.axes)

    def pieces(self, out: Window, inputs: Sequence[LeafSpec], output: LeafSpec) -> Iterator[Piece]:
        yield Piece(0, tuple(out[self.axes.index(axis)] for axis in range(len(out))), out)

    def arrange(self, block: Any, piece: Piece) -> Any:
        return block.transpose(self.axes)

    def reorder(self, order: AxisOrder) -> AxisOrder:
        return order.transposed(self.axes)

    def is_identity(self, inputs: Sequence[LeafSpec], output: LeafSpec) -> bool:
        return self.axes == tuple(range(len(self.axes)))

    def after(self, inner: Kernel) -> Kernel | None:
        if not isinstance(inner, Permutation):
            return None
        return Permutation(tuple(inner.axes[axis] for axis in self.axes))

    def along(self, axis: int, leaf: LeafSpec) -> tuple[Arrangement, int]:
        return Cut.whole(axis, leaf), self.axes.index(axis)

    def without(self, axis: int, leaf: LeafSpec) -> tuple[Arrangement, int] | None:
        rest = tuple(n - (n > axis) for n in self.axes if n != axis)
        return Permutation(rest), self.axes.index(axis)
