"""Keep some of the places along the axes of leaves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Annotated, ClassVar

from msgspec import Meta

from surgery_cli.draft.arrangement import Arrangement
from surgery_cli.draft.kernels.cut import Cut, Steps
from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import PlanError
from surgery_cli.operations.base import Scene
from surgery_cli.operations.rearranging import Rearranging
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.advice import worded
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.quantities import counted
from surgery_cli.words.series import folded

_PART = re.compile(r"(-?\d+)?\s*:\s*(-?\d+)?(?:\s*:\s*(-?\d+)?)?")


class Slice(Rearranging, tag="slice", kw_only=True, frozen=True):
    """Keep some of the places along the axes of leaves: Python's slices, one an axis; what is not kept is dropped.

    As in Python, a slice that reaches beyond an axis takes the places that there are; a note says so.
    """

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

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        after = super().rewrite(draft, scene)
        return after.noting(*self._beyond(scene.select(self, draft), draft))

    def _beyond(self, named: Iterable[LeafPath], draft: Draft) -> Iterator[Consequence]:
        """That a slice names places which an axis does not have: as in Python, those that there are stay."""
        found: dict[tuple[str, int, int], list[str]] = {}
        for path in named:
            shape = draft.leaves[path].spec.shape
            for axis, (text, size) in enumerate(zip(self._by_axis(len(shape)), shape, strict=True)):
                if _reaches_beyond(text, size):
                    found.setdefault((text, axis, size), []).append(str(path))
        for (text, axis, size), paths in found.items():
            places = counted(size, "place")
            said = (
                f"`{text}` reaches beyond the {places} of axis {axis} of {quoted(folded(paths), 3)}"
            )
            yield Consequence(
                DocsPage.SLICE, f"{said}: as in Python, it takes those that there are"
            )

    def map(self, leaf: LeafSpec) -> Arrangement:
        parts = self._by_axis(len(leaf.shape))
        if len(parts) > len(leaf.shape):
            raise PlanError(
                worded("{slices: {}} does not fit {}", self.slices, leaf.type_text),
                why=f"it names {len(parts)} axes, and the leaf has {len(leaf.shape)}",
                fix=worded(
                    "write one slice an axis, or select leaves with {where_ndim: {}}", len(parts)
                ),
                field="slices",
            )
        return Cut(tuple(map(self._steps, parts, leaf.shape)))

    def _by_axis(self, count: int) -> list[str]:
        """The slice of each axis of a leaf that has so many; more of them where too many are named."""
        parts = self._parts
        if parts.count("...") == 1 and len(parts) - 1 <= count:
            at = parts.index("...")
            parts[at : at + 1] = [":"] * (count - len(parts) + 1)
        return parts + [":"] * (count - len(parts))

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


def _reaches_beyond(text: str, size: int) -> bool:
    """True if a slice begins or stops where an axis has no place; `stop` may be the place after the last one."""
    found = _PART.fullmatch(text)
    assert found is not None, "`check_values` has seen it"
    start, stop, step = (None if part is None else int(part) for part in found.groups())
    is_down = step is not None and step < 0
    least, most = -size - is_down, size - is_down
    before = start is not None and not -size <= start <= most
    return before or (stop is not None and not least <= stop <= size)


def part_of(leaf: LeafSpec, axis: int, start: int) -> Slice:
    """The slice that leaves of a longer leaf the one that it was made of, whose places begin at ``start``."""
    parts = [":"] * axis + [f"{start}:{start + leaf.shape[axis]}"]
    return Slice(slices=", ".join(parts))
