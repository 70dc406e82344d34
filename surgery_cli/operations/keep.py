"""Take everything else out of the tree."""

from __future__ import annotations

from typing import ClassVar

from surgery_cli.draft.recipe import Draft
from surgery_cli.operations.base import Scene
from surgery_cli.operations.rekey import PlaceOperation, rekey


class Keep(PlaceOperation, tag="keep"):
    """Delete everything that no pattern names, twins included; what is kept stays at its path."""

    example: ClassVar[str] = """\
op: keep
at: params
"""
    is_literal: ClassVar[bool] = True

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        kept = scene.select(self, draft)
        return rekey(draft, {p: () for p in draft.leaves if p not in kept}, is_literal=True)
