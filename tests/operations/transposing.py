"""An operation that changes shapes, as somebody would add it who knows `operations/` and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from surgery_cli.draft.effect import Effect, Rearranges
from surgery_cli.draft.kernel import Arrangement, Kernel, Piece, Window, reshaped
from surgery_cli.errors import PlanError
from surgery_cli.operations.base import LeafOperation
from surgery_cli.optimizer.follow.states import States
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec


class Permutation(Arrangement, frozen=True, tag="permutation"):
    """The axes of a leaf in another order."""

    axes: tuple[int, ...]

    def output(self, leaf: LeafSpec) -> LeafSpec:
        return reshaped(leaf, tuple(leaf.shape[axis] for axis in self.axes))

    def pieces(self, out: Window, inputs: Sequence[LeafSpec], output: LeafSpec) -> Iterator[Piece]:
        yield Piece(0, tuple(out[self.axes.index(axis)] for axis in range(len(out))), out)

    def arrange(self, block: Any, piece: Piece) -> Any:
        return block.transpose(self.axes)

    def is_identity(self, inputs: Sequence[LeafSpec], output: LeafSpec) -> bool:
        return self.axes == tuple(range(len(self.axes)))

    def after(self, inner: Kernel) -> Kernel | None:
        if not isinstance(inner, Permutation):
            return None
        return Permutation(tuple(inner.axes[axis] for axis in self.axes))


class Transpose(LeafOperation, tag="transpose", kw_only=True, frozen=True):
    """Put the axes of leaves into another order."""

    axes: Annotated[tuple[int, ...], Meta(description="Which axis comes first, second, …")]

    example: ClassVar[str] = "- op: transpose\n  at: params/w\n  axes: [1, 0]\n"

    @property
    def effect(self) -> Effect:
        return Rearranges(Permutation(self.axes))

    def output(self, spec: LeafSpec) -> LeafSpec:
        if sorted(self.axes) != list(range(len(spec.shape))):
            raise PlanError(f"`axes` are not those of {spec.type_text}", field="axes")
        return Permutation(self.axes).output(spec)

    def kernel(self, path: LeafPath, spec: LeafSpec, scene: States) -> Kernel:
        return Permutation(self.axes)
