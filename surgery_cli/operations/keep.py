"""Take everything else out of the tree."""

from __future__ import annotations

from typing import ClassVar

from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import PlanError
from surgery_cli.operations.base import Scene
from surgery_cli.operations.rekey import PlaceOperation, rekey
from surgery_cli.words.advice import worded


class Keep(PlaceOperation, tag="keep"):
    """Delete everything that no pattern names, twins included; what is kept stays at its path."""

    example: ClassVar[str] = """\
op: keep
at: params
"""
    edits_the_rest: ClassVar[bool] = True
    target_fields: ClassVar[tuple[str, ...]] = ()

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        kept = scene.select(self, draft)
        if not kept:
            raise PlanError(
                "nothing would be left",
                why="`keep` deletes what no pattern names, and its patterns name nothing",
                fix=worded(
                    "name what stays, or take {optional} out to see which patterns are wrong"
                ),
                field="at",
            )
        return rekey(draft, {p: () for p in draft.leaves if p not in kept}, is_literal=True)
