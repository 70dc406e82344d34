"""Put leaves side by side along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from surgery_cli.draft.arrangement import Arrangement
from surgery_cli.draft.kernels import join
from surgery_cli.draft.settings import resolve_axes
from surgery_cli.operations.joining import Joining
from surgery_cli.operations.numbered import numbered_places
from surgery_cli.operations.regrouping import axes_of, shared_by_groups
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec


class Concat(Joining, tag="concat", kw_only=True, frozen=True):
    """Make one leaf of several that stand side by side along an axis: query, key and value of one projection, say.

    `split` takes them apart. Their twins in the optimizer state are joined with them. The parts have the order of the
    patterns in `at`, those of one pattern that of their numbers.
    """

    axis: Annotated[
        int, Meta(description="The axis along which they stand side by side; -1: last.")
    ]
    groups: Annotated[
        Annotated[int, Meta(ge=1)],
        Meta(
            description="They take turns in so many groups: the first share of each, then the second of each. With one"
            " group for each head, the heads stand side by side."
        ),
    ] = 1

    example: ClassVar[str] = (
        "- op: concat\n  at: [params/Dense_0/kernel, params/Dense_1/kernel]\n  to: params/fused/kernel\n"
        "  axis: -1\n"
    )
    target_fields: ClassVar[tuple[str, ...]] = ("to",)
    why_alike: ClassVar[str] = (
        "what is joined has one dtype, and one shape but for the axis along which it is"
    )

    @property
    def along(self) -> int:
        return self.axis

    def map(self, specs: Sequence[LeafSpec]) -> Arrangement:
        (axis,) = resolve_axes(self.axis, axes_of(specs[0]), "axis")
        sizes = tuple(spec.shape[axis] for spec in specs)
        shared_by_groups(sizes, self.groups)
        return join.Concat(axis, sizes, self.groups)

    def undo_entry(
        self, here: Sequence[LeafPath], there: Sequence[LeafPath], sizes: Sequence[int]
    ) -> dict[str, Any]:
        groups = {"groups": self.groups} if self.groups > 1 else {}
        at = here[0].exact_pattern
        return {
            "op": "split",
            "at": at,
            "axis": self.axis,
            "sizes": [*sizes],
            **groups,
            **numbered_places(there),
        }
