"""Put the leaves of numbered layers on top of each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from surgery_cli.draft.arrangement import Arrangement
from surgery_cli.draft.kernels import join
from surgery_cli.draft.settings import resolve_axes
from surgery_cli.errors import PlanError
from surgery_cli.operations.joining import Joining
from surgery_cli.operations.numbered import numbered_places
from surgery_cli.operations.regrouping import axes_of
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.advice import worded
from surgery_cli.words.quantities import counted


class Stack(Joining, tag="stack", kw_only=True, frozen=True):
    """Make one scanned leaf of the leaves of numbered layers, as `nn.scan` keeps them; `unstack` takes them apart.

    Their twins in the optimizer state are stacked with them. The layers have the order of their numbers, whatever
    the order in braces such as `{1,0}`; those of a range, that of the range, which may run down; those that a list of
    patterns names, that of the list.
    """

    axis: Annotated[
        int, Meta(description="Where the axis of the layers stands in the result; -1: last.")
    ] = 0

    example: ClassVar[str] = "- op: stack\n  at: params/Dense_{0..1}\n  to: params/layers\n"

    target_fields: ClassVar[tuple[str, ...]] = ("to",)
    why_alike: ClassVar[str] = "what is stacked has one shape and dtype in every layer"

    def map(self, specs: Sequence[LeafSpec]) -> Arrangement:
        there = axes_of(specs[0])
        if not -there - 1 <= self.axis <= there:
            raise PlanError(
                worded("{axis: {}} does not fit {}", self.axis, specs[0].type_text),
                why=f"a stack of leaves with {counted(there, 'axis', 'axes')} has {counted(there + 1, 'axis', 'axes')}:"
                f" numbers from {-there - 1} to {there}",
                fix=worded("choose another one, such as {axis: 0}"),
                field="axis",
            )
        (axis,) = resolve_axes(self.axis, there + 1, "axis")
        return join.Stack(axis, len(specs))

    def undo_entry(
        self, here: Sequence[LeafPath], there: Sequence[LeafPath], sizes: Sequence[int]
    ) -> dict[str, Any]:
        return {
            "op": "unstack",
            "at": here[0].exact_pattern,
            "axis": self.axis,
            **numbered_places(there),
        }
