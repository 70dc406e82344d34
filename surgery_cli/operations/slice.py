"""Keep some of the places along the axes of leaves."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar

from msgspec import Meta

from surgery_cli.draft.arrangement import Arrangement
from surgery_cli.draft.kernels.cut import Cut, Steps
from surgery_cli.errors import PlanError
from surgery_cli.operations.rearranging import Rearranging
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.advice import worded

_PART = re.compile(r"(-?\d+)?\s*:\s*(-?\d+)?(?:\s*:\s*(-?\d+)?)?")


class Slice(Rearranging, tag="slice", kw_only=True, frozen=True):
    """Keep some of the places along the axes of leaves: Python's slices, one an axis; what is not kept is dropped."""

    slices: Annotated[
        str,
        Meta(
            description="One slice an axis, between commas: `0:10, :`, `::2`, `..., -5:`. Axes that are not named stay"
            " whole."
        ),
    ]

    example: ClassVar[str] = '- op: slice\n  at: params/Dense_0/kernel\n  slices: "0:2, :"\n'

    @property
    def _parts(self) -> list[str]:
        return [part.strip() for part in self.slices.split(",")]

    def check_values(self) -> None:
        super().check_values()
        parts = self._parts
        if parts.count("...") == 1:
            parts.remove("...")
        for text in parts:
            found = _PART.fullmatch(text)
            if found is None or found[3] == "0":
                number = re.fullmatch(r"-?\d+", text) is not None
                raise PlanError(
                    worded("{slices: {}} has no slice '{}'", self.slices, text),
                    why="a step is not 0"
                    if found
                    else "a slice has the form `start:stop` or `start:stop:step`",
                    fix=worded(
                        "write `{}:{}` for this place, and `squeeze` the axis after it",
                        text,
                        int(text) + 1 or "",
                    )
                    if number
                    else worded("write them as in Python, such as {slices: '0:10, :'}"),
                    field="slices",
                )

    def map(self, leaf: LeafSpec) -> Arrangement:
        parts = self._parts
        count = len(leaf.shape)
        if parts.count("...") == 1 and len(parts) - 1 <= count:
            at = parts.index("...")
            parts[at : at + 1] = [":"] * (count - len(parts) + 1)
        parts += [":"] * (count - len(parts))
        if len(parts) > count:
            raise PlanError(
                worded("{slices: {}} does not fit {}", self.slices, leaf.type_text),
                why=f"it names {len(parts)} axes, and the leaf has {count}",
                fix=worded(
                    "write one slice an axis, or select leaves with {where_ndim: {}}", len(parts)
                ),
                field="slices",
            )
        return Cut(tuple(map(self._steps, parts, leaf.shape)))

    def _steps(self, text: str, size: int) -> Steps:
        found = _PART.fullmatch(text)
        assert found is not None, "`check_values` has seen it"
        start, stop, step = (None if part is None else int(part) for part in found.groups())
        places = range(size)[start:stop:step]
        if size and not places:
            raise PlanError(
                worded("{slices: {}} leaves nothing", self.slices),
                why=f"'{text}' holds none of the {size} places of an axis, and Orbax saves no array without elements",
                fix=f"places are counted from 0 to {size - 1}; `delete` removes whole leaves",
                field="slices",
            )
        return Steps(places.start if places else 0, len(places), places.step)


def part_of(leaf: LeafSpec, axis: int, start: int) -> Slice:
    """The slice that leaves of a longer leaf the one that it was made of, whose places begin at ``start``."""
    parts = [":"] * axis + [f"{start}:{start + leaf.shape[axis]}"]
    return Slice(slices=", ".join(parts))
