"""Give the values of leaves a second place."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from surgery_cli.draft.recipe import Draft
from surgery_cli.operations.base import Scene
from surgery_cli.operations.collisions import merge_notes
from surgery_cli.operations.rekey import PlaceOperation, rekey
from surgery_cli.operations.rename import new_places
from surgery_cli.tree.targets import check_targets


class Copy(PlaceOperation, tag="copy"):
    """Copy leaves or subtrees to other paths; their twins in the optimizer state are copied along."""

    to: Annotated[
        str,
        Meta(
            description=r"The path of the copy; `\1`, `\2` stand for the wildcards of `at` in order, "
            "or for the groups of a regular expression; `{1..12}` takes the numbers of the range of `at` one by one."
        ),
    ]

    example: ClassVar[str] = """\
op: copy
at: params/Dense_1
to: params/Dense_2
"""
    target_fields: ClassVar[tuple[str, ...]] = ("to",)

    def check_values(self) -> None:
        super().check_values()
        check_targets(dict.fromkeys(self.patterns, self.to))

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        targets = dict.fromkeys(self.patterns, self.to)
        copies, nodes = new_places(scene.select(self, draft), targets, draft)
        relation = {old: (old, new) for old, new in copies.items()}
        after = rekey(draft, relation, is_literal=self.follows_nothing)
        return after.noting(*merge_notes(draft, nodes))
