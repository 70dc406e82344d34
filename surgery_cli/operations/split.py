"""Take leaves apart along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from surgery_cli.draft.arrangement import Arrangement
from surgery_cli.draft.kernels import join
from surgery_cli.draft.settings import resolve_axes
from surgery_cli.errors import PlanError
from surgery_cli.operations.numbered import Series, numbered_patterns
from surgery_cli.operations.parting import Parting
from surgery_cli.operations.regrouping import axes_of, shared_by_groups
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.tree.targets import target_text
from surgery_cli.words.advice import worded


class Split(Parting, tag="split", kw_only=True, frozen=True):
    """Make several leaves of one, cut along an axis: a fused projection into query, key and value, gate and up, shards.

    `concat` puts them together. Their twins in the optimizer state are cut with them.
    """

    to: Annotated[
        str | tuple[str, ...],
        Meta(
            description=r"Where the parts stand, in their order: a list of paths, or one with names in braces or a"
            r" range of numbers, `params/{query,key,value}`; `\1`, `\2` stand for the wildcards of `at` in order."
        ),
    ]
    axis: Annotated[int, Meta(description="The axis that is cut; -1: last.")]
    sizes: Annotated[
        tuple[Annotated[int, Meta(ge=1)], ...],
        Meta(
            description="How many places of the axis each part gets, in all; equal parts if left out."
        ),
    ] = ()
    groups: Annotated[
        Annotated[int, Meta(ge=1)],
        Meta(
            description="The parts take turns in so many groups: the first share of each, then the second of each."
            " With one group for each head, each part gets its share of every head."
        ),
    ] = 1

    example: ClassVar[str] = (
        "- op: split\n  at: params/Dense_0/kernel\n  to: params/{query,key}/kernel\n  axis: 0\n"
    )

    @property
    def series(self) -> Series:
        return Series(self.to)

    def check_values(self) -> None:
        super().check_values()
        count = len(self.series)
        if not count or (count == 1 and not self.sizes):
            raise PlanError(
                worded("{to} names one place") if count else worded("{to} names no place"),
                why="several leaves are made of one",
                fix=worded("name a place for each part: {to: 'params/{{query,key,value}}'}"),
                field="to",
            )
        if self.sizes and len(self.sizes) != count:
            raise PlanError(
                worded("{sizes} has {} numbers, and {to} {} places", len(self.sizes), count),
                why="each part has a size and a place",
                fix=worded("write as many of both"),
                field="sizes",
            )

    @property
    def along(self) -> int:
        return self.axis

    def maps(self, leaf: LeafSpec, count: int) -> Sequence[Arrangement]:
        (axis,) = resolve_axes(self.axis, axes_of(leaf), "axis")
        sizes = self._sizes(leaf, axis, count)
        shared_by_groups(sizes, self.groups)
        return join.Concat(axis, sizes, self.groups).parts

    def _sizes(self, leaf: LeafSpec, axis: int, count: int) -> tuple[int, ...]:
        """The size of each part along the axis. Raises PlanError if they are not all of it."""
        there = leaf.shape[axis]
        if not self.sizes:
            if there % count or not there:
                raise PlanError(
                    f"{leaf.type_text} has no {count} equal parts along axis {axis}",
                    why=f"{there:,} places are not divided by {count}",
                    fix=worded("say the size of each part with {sizes}, or correct {axis} or {to}"),
                    field="to",
                )
            return (there // count,) * count
        if sum(self.sizes) != there:
            raise PlanError(
                worded(
                    "{sizes} comes to {:,}, and {} has {:,} places along axis {}",
                    sum(self.sizes),
                    leaf.type_text,
                    there,
                    axis,
                ),
                why="every place belongs to one part",
                fix=worded("correct {sizes} or {axis}; `slice` drops places"),
                field="sizes",
            )
        return self.sizes

    def undo_entry(
        self, here: Sequence[LeafPath], there: Sequence[LeafPath], sizes: Sequence[int]
    ) -> dict[str, Any]:
        groups = {"groups": self.groups} if self.groups > 1 else {}
        at, to = numbered_patterns(here), target_text(there[0])
        return {"op": "concat", "at": at, "to": to, "axis": self.axis, **groups}
