"""Take axes of size 1 out of leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from msgspec import Meta

from surgery_cli.draft.arrangement import Arrangement
from surgery_cli.draft.kernels.reshape import Reshape
from surgery_cli.draft.recipe import Draft
from surgery_cli.draft.settings import check_axes, resolve_axes
from surgery_cli.errors import PlanError
from surgery_cli.operations import reshape
from surgery_cli.operations.base import Scene
from surgery_cli.operations.rearranging import ARRAYS, Rearranging
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.advice import worded
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage


class Squeeze(Rearranging, tag="squeeze", kw_only=True, frozen=True):
    """Take axes of size 1 out of leaves, as `numpy.squeeze` does.

    Without `axis`, leaves that have no such axis stay as they are, and the preview names them.
    """

    axis: Annotated[
        int | tuple[int, ...] | None,
        Meta(description="Axis, or axes, to take out; all of size 1 if left out."),
    ] = None

    example: ClassVar[str] = "- op: squeeze\n  at: params/Dense_0/bias\n"

    def leaves_alone(self, spec: LeafSpec) -> bool:
        return spec.kind in ARRAYS and self.axis is None and 1 not in spec.shape

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        after = super().rewrite(draft, scene)
        left = [
            path for path in scene.select(self, draft) if self.leaves_alone(draft.leaves[path].spec)
        ]
        return after.noting(Consequence(DocsPage.SQUEEZE, _left(left))) if left else after

    def check_values(self) -> None:
        super().check_values()
        check_axes(self.axis, "axis")

    def map(self, leaf: LeafSpec) -> Arrangement:
        axes = tuple(n for n, size in enumerate(leaf.shape) if size == 1)
        if self.axis is not None:
            axes = resolve_axes(self.axis, len(leaf.shape), "axis")
        long = [n for n in axes if leaf.shape[n] != 1]
        if long:
            raise PlanError(
                worded("axis {} of {} cannot be taken out", long[0], leaf.type_text),
                why=f"it has {leaf.shape[long[0]]:,} places; only axes of size 1 hold nothing",
                fix=worded("use `slice` to choose one place first, or leave {axis} out"),
                field="axis",
            )
        return Reshape(tuple(size for n, size in enumerate(leaf.shape) if n not in axes))

    def undoing(self, leaf: LeafSpec) -> Rearranging:
        return reshape.Reshape(shape=leaf.shape)


def _left(paths: Sequence[LeafPath]) -> str:
    verb = (
        "has no axis of size 1, and stays"
        if len(paths) == 1
        else "have no axis of size 1, and stay"
    )
    return f"{quoted(map(str, paths), 3)} {verb} as {'it is' if len(paths) == 1 else 'they are'}"
