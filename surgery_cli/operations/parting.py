"""Operations that make several leaves of one: each says what the parts are, and this where they go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from surgery_cli.draft.arrangement import Arrangement
from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import Gathering, Problem, raise_all
from surgery_cli.operations.numbered import Series
from surgery_cli.operations.regrouping import Regrouping, check_joinable
from surgery_cli.optimizer.follow.origins import Origin
from surgery_cli.tree.paths import LeafPath, Selection
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.tree.targets import Places


class Parting(Regrouping):
    """Every leaf that is named becomes several, which go to the places of a series."""

    target_fields: ClassVar[tuple[str, ...]] = ("to",)

    @property
    def series(self) -> Series:
        """Where the parts go. Raises PlanError as ``Series``."""
        raise NotImplementedError

    def check_values(self) -> None:
        super().check_values()
        series = self.series
        series.check(self.patterns)
        raise_all(_several_parts(len({target.text for target in series.targets}), len(series)))

    def maps(self, leaf: LeafSpec, count: int) -> Sequence[Arrangement]:
        """What takes each of ``count`` parts out of a leaf.

        Raises:
            PlanError: it has not these parts.
        """
        raise NotImplementedError

    def origins(self, selected: Selection, draft: Draft) -> Mapping[LeafPath, Origin]:
        series, places = self.series, Places(draft.leaves)
        found: dict[LeafPath, Origin] = {}
        gathering = Gathering()
        for pattern, matches in selected.by_pattern():
            nodes: dict[LeafPath, list[LeafPath]] = {}
            for leaf, match in matches.items():
                with gathering.catching(path=str(leaf)):
                    if match.node not in nodes:
                        nodes[match.node] = series.places(match, pattern, places)
                    maps = self._maps(leaf, draft.leaves[leaf].spec, len(series))
                    for goal, by in zip(nodes[match.node], maps, strict=True):
                        new = goal / match.tail
                        if found.setdefault(new, Origin((leaf,), by)).paths != (leaf,):
                            gathering.problems.append(_twice(new, leaf, found[new].paths[0]))
        gathering.raise_if_any()
        raise_all(_several_parts(len(found), len(selected) * len(series)))
        return found

    def _maps(self, path: LeafPath, spec: LeafSpec, count: int) -> Sequence[Arrangement | None]:
        if spec.kind is LeafKind.EMPTY:
            return [None] * count
        check_joinable(path, spec, self.name)
        return self.maps(spec, count)


def _twice(new: LeafPath, one: LeafPath, other: LeafPath) -> Problem:
    return Problem(
        f"parts of '{one}' and of '{other}' would both stand at '{new}'",
        why="one of them would be lost",
        fix=r"give each its own place; `\1` in `to` stands for the first wildcard",
        path=str(new),
        field="to",
    )


def _several_parts(found: int, wanted: int) -> list[Problem]:
    """Two parts of one leaf on one place: fewer places are found than parts are wanted."""
    if found == wanted:
        return []
    return [
        Problem(
            "two parts would stand at one place",
            why=f"there are {wanted} parts, and {found} places",
            fix="give each part its own place",
            field="to",
        )
    ]
