"""In which order leaves are written, where that is not for a format to say."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from surgery_cli.draft.expression import LeafRef
from surgery_cli.draft.reads import partly_read
from surgery_cli.store.write.item_plan import PlannedLeaf


def together(leaves: Sequence[PlannedLeaf]) -> list[PlannedLeaf]:
    """The leaves, those that are made of parts of the same stored chunks one after the other, where the first stood.

    So these chunks are decoded once, and those of one stored leaf are in memory at a time.
    """
    places: dict[LeafRef, int] = {}
    found: list[tuple[int, PlannedLeaf]] = []
    for number, leaf in enumerate(leaves):
        cut = [ref for ref, is_cut in partly_read(leaf.recipe).items() if is_cut]
        found.append((places.setdefault(cut[0], number) if cut else number, leaf))
    return [leaf for _, leaf in sorted(found, key=itemgetter(0))] if places else list(leaves)
