"""What a state shows of which params have a factored second moment."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from surgery_cli.draft.slots import Factoring
from surgery_cli.optimizer.detect.mirrors import Pair
from surgery_cli.optimizer.knowledge.kinds import Field
from surgery_cli.tree.specs import TreeSpec


def factoring_of(field: Field | None, pairs: Iterable[Pair], tree: TreeSpec) -> Factoring | None:
    """What the leaves of a field that may be factored show of which params are; None for other fields."""
    if field is None or field.part is None:
        return None
    found = Factoring(part=field.part)
    for pair in pairs:
        param, slot = tree[pair.param].shape, tree[pair.leaf].shape
        if len(param) < 2 or (field.part != "whole" and len(param) == 2 and 1 in param):
            continue  # its parts may look like placeholders
        size = sorted(param)[-2]
        if (slot != param) if field.part == "whole" else (slot != (1,)):
            found = msgspec.structs.replace(found, factored=min(found.factored or size, size))
        else:
            found = msgspec.structs.replace(found, unfactored=max(found.unfactored, size))
    return found
