"""Take scanned leaves apart into numbered layers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Self

import msgspec
from msgspec import Meta

from surgery_cli.draft.arrangement import Arrangement
from surgery_cli.draft.kernels import join
from surgery_cli.draft.recipe import Draft
from surgery_cli.draft.settings import resolve_axes
from surgery_cli.errors import PlanError
from surgery_cli.operations.numbered import Series, numbered_patterns
from surgery_cli.operations.parting import Parting
from surgery_cli.operations.regrouping import JOINED_KINDS, axes_of
from surgery_cli.optimizer.follow.origins import Origin
from surgery_cli.tree.paths import LeafPath, Selection
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.tree.targets import target_text
from surgery_cli.words.advice import Text, worded
from surgery_cli.words.lists import listed
from surgery_cli.words.quantities import counted

_OPEN_RANGE: Final = re.compile(r"\{([0-9]+)\.\.\}")


class Unstack(Parting, tag="unstack", kw_only=True, frozen=True):
    """Make numbered layers of scanned leaves, one of each place along an axis; `stack` puts them together.

    Their twins in the optimizer state are taken apart with them.
    """

    to: Annotated[
        str | tuple[str, ...],
        Meta(
            description=r"Where the layers stand: `params/layers_{0..11}`, a number for each place of the axis, `{0..}`"
            r" for as many as there are, or a list of paths; `\1`, `\2` stand for the wildcards of `at` in order."
        ),
    ]
    axis: Annotated[int, Meta(description="The axis of the layers, which is gone; -1: last.")] = 0
    is_list: Annotated[
        bool,
        Meta(
            description="The numbers are indices of a list, not keys of a dict: `params/layers/{0..11}`."
        ),
    ] = msgspec.field(name="list", default=False)

    example: ClassVar[str] = (
        "- op: unstack\n  at: params/Dense_0/kernel\n  to: params/rows/row_{0..3}\n"
    )

    @property
    def series(self) -> Series:
        return Series(self.to, is_list=self.is_list, counted="{0..}")

    def check_values(self) -> None:
        if self._is_open:
            self._counting(1).check_values()
        else:
            super().check_values()

    def origins(self, selected: Selection, draft: Draft) -> Mapping[LeafPath, Origin]:
        if self._is_open:
            return self._counting(self._places(selected, draft)).origins(selected, draft)
        return super().origins(selected, draft)

    @property
    def _is_open(self) -> bool:
        """True if the leaves say how many layers there are."""
        return isinstance(self.to, str) and _OPEN_RANGE.search(self.to) is not None

    def _counting(self, places: int) -> Self:
        """The edit for so many layers."""

        def counted_out(found: re.Match[str]) -> str:
            return f"{{{found[1]}..{int(found[1]) + places - 1}}}"

        to = _OPEN_RANGE.sub(counted_out, str(self.to), count=1)
        return msgspec.structs.replace(self, to=to)

    def _places(self, selected: Selection, draft: Draft) -> int:
        """How many layers there are of every leaf.

        Raises:
            PlanError: they have not as many of them, or none.
        """
        counts: dict[int, list[LeafPath]] = {}
        for path in selected:
            spec = draft.leaves[path].spec
            if spec.kind in JOINED_KINDS:
                (axis,) = resolve_axes(self.axis, axes_of(spec), "axis")
                counts.setdefault(spec.shape[axis], []).append(path)
        if len(counts) == 1 and 0 not in counts:
            return next(iter(counts))
        sizes = (f"{size:,} in '{paths[0]}'" for size, paths in counts.items())
        raise PlanError(
            worded("{to: {}} does not say how many layers there are", str(self.to)),
            why=f"along axis {self.axis} there are {listed(sizes, 3, word='and')}"
            if counts
            else "none of the leaves has an axis of layers",
            fix=worded("say another {axis}, or leave leaves without layers out with {except}"),
            field="to",
        )

    @property
    def along(self) -> int:
        return self.axis

    def maps(self, leaf: LeafSpec, count: int) -> Sequence[Arrangement]:
        (axis,) = resolve_axes(self.axis, axes_of(leaf), "axis")
        if leaf.shape[axis] != count:
            raise PlanError(
                worded("{to} names {} for {}", counted(count, "place"), leaf.type_text),
                why=f"it has {leaf.shape[axis]:,} along axis {axis}, and each becomes a leaf",
                fix=_advice(leaf.shape, axis, count),
                field="to",
            )
        return [join.Unstack(axis, index) for index in range(count)]

    def undo_entry(
        self, here: Sequence[LeafPath], there: Sequence[LeafPath], sizes: Sequence[int]
    ) -> dict[str, Any]:
        at, to = numbered_patterns(here), target_text(there[0])
        return {"op": "stack", "at": at, "to": to, "axis": self.axis}


def _advice(shape: Sequence[int], axis: int, count: int) -> Text:
    """What to write where an axis has another size than there are places."""
    others = [n for n, size in enumerate(shape) if size == count]
    if len(others) == 1:
        return worded("add {axis: {}}, along which it has {}", others[0], count)
    if shape[axis]:
        return worded("write as many numbers: `{{0..{}}}`", shape[axis] - 1)
    return worded("leave it out with {except}")
