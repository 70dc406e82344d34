"""Take leaves out of the tree."""

from __future__ import annotations

from typing import ClassVar

from surgery_cli.draft.recipe import Draft
from surgery_cli.operations.base import Scene
from surgery_cli.operations.rekey import PlaceOperation, rekey


class Delete(PlaceOperation, tag="delete"):
    """Delete leaves or subtrees; the twins of deleted params in the optimizer state go with them.

    A node that is named goes as a whole: `params/Dense_1`. One that only loses all its leaves stays, empty:
    `params/Dense_1/*`. Lists that lost an element close the gap, except in the optimizer state; where one stands as a
    dict with the keys 0, 1, …, as Flax NNX stores it, the keys stay, and a note names the `rename` that closes it. An
    item of a step that loses all its leaves is left out; where one is left, paths of the result begin inside it.
    """

    example: ClassVar[str] = """\
op: delete
at: params/Dense_1
"""
    target_fields: ClassVar[tuple[str, ...]] = ()
    takes_twins_apart: ClassVar[bool] = True

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        selected = scene.select(self, draft)
        return rekey(
            draft,
            dict.fromkeys(selected, ()),
            named=selected.topmost(),
            is_literal=self.follows_nothing,
        )
