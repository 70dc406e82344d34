"""Take leaves out of the tree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from surgery_cli.draft.recipe import Draft
from surgery_cli.operations.base import Scene
from surgery_cli.operations.places import PlaceOperation, without
from surgery_cli.optimizer.follow.moved_slots import slots_below
from surgery_cli.optimizer.follow.partial_moves import refuse_torn_by_deletion
from surgery_cli.optimizer.slots import Slot
from surgery_cli.tree.paths import LeafPath


class Delete(PlaceOperation, tag="delete"):
    """Delete leaves or subtrees; the twins of deleted params in the optimizer state go with them.

    A node that is named goes as a whole: `params/Dense_1`. One that only loses all its leaves stays, empty:
    `params/Dense_1/*`. Lists that lost an element close the gap, except in the optimizer state.
    """

    example: ClassVar[str] = """\
op: delete
at: params/Dense_1
"""
    takes_twins_apart: ClassVar[bool] = True

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        self.refuse_policy()
        selected = scene.select(self, draft)
        if not selected:
            return draft
        gone = selected.topmost()
        named = {
            LeafPath(leaf[:depth]): node
            for leaf, node in gone.items()
            for depth in range(len(node), len(leaf) + 1)
        }
        for twin in slots_below(draft, selected):
            if twin not in gone:
                gone[twin] = _node_like(twin, draft.slots[twin], named)
        if self.twins != "named":
            refuse_torn_by_deletion(draft, selected, gone)
        return without(draft, gone)


def _node_like(twin: LeafPath, slot: Slot, named: Mapping[LeafPath, LeafPath]) -> LeafPath:
    """The node above a twin that stands for the node which was named at or above its param."""
    if slot.param not in named:
        return twin
    node = slot.node / named[slot.param][len(slot.root) :]
    return node if twin.is_below(node) else twin
