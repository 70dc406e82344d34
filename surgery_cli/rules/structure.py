"""The same leaves as another checkpoint has, whatever their values are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

from msgspec import Meta

from surgery_cli.draft.recipe import Draft, Output
from surgery_cli.optimizer.follow.states import States
from surgery_cli.rules.contract import Named, Rule
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec, TreeSpec


class SameStructureAs(Rule, frozen=True):
    """The paths, kinds, shapes and dtypes of another checkpoint, no more and no fewer."""

    same_structure_as: Annotated[
        str,
        Meta(
            description="Another checkpoint (in a plan also a name in its `sources`) that has the same leaves: paths,"
            " kinds, shapes and dtypes."
        ),
    ]

    judges_empty: ClassVar[bool] = True
    path_fields: ClassVar[tuple[str, ...]] = ("same_structure_as",)

    @property
    def text(self) -> str:
        return f"same structure as {self.same_structure_as}"

    @property
    def may_name_nothing(self) -> bool:
        return True  # what the other has of it is missing then

    def held_against(self, draft: Draft, scene: States) -> TreeSpec:
        return scene.open(self.same_structure_as)[1].tree

    def breach(self, path: LeafPath, output: Output, named: Named) -> str:
        other = self.held_against(named.draft, named.scene)
        there = named.below_other_containers(other).get(path, path)
        return _difference(output.spec, other.get(there))

    def absent(self, named: Named) -> Iterator[tuple[LeafPath, str]]:
        return named.absent(self.held_against(named.draft, named.scene))


def _difference(here: LeafSpec, there: LeafSpec | None) -> str:
    if there is None:
        return f"it is {here.held_text}, and there is none there"
    return "" if here.agrees_with(there) else f"it is {here.held_text}, there {there.held_text}"
