"""Memories of past steps that were changed, beside the numbers by which they are weighed: L-BFGS keeps both."""

from __future__ import annotations

from collections.abc import Iterator

from surgery_cli.draft.effect import Effect, Keeps, Rearranges, Scales
from surgery_cli.draft.recipe import Draft, Edited
from surgery_cli.draft.slots import Slot
from surgery_cli.optimizer.follow.clocks import has_restarted
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.advice import worded
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage


def memory_notes(draft: Draft) -> Iterator[Consequence]:
    """That the weights of a memory stay, one for each step in it, where a part of that memory is another now.

    A weight is 1 / (s · y) of a step and its change of gradients, over all params. Reorderings and factors leave these
    products as they are; and weights of a memory of zeros count for nothing.
    """
    for path in draft.running:
        weights = draft.leaves.get(path)
        if weights is None or weights.edits or len(weights.spec.shape) != 1:
            continue
        memory = [slot for slot in draft.slots.values() if _is_weighed(slot, path, draft)]
        changed = [slot for slot in memory if not _keeps_products(slot, draft)]
        if changed and not all(has_restarted(slot, draft) for slot in memory):
            (steps,) = weights.spec.shape
            yield Consequence(
                DocsPage.REARRANGED_SLOTS,
                worded(
                    "'{}' stays as it was, and {} of the {} leaves of the memory that it weighs are others now: it fits"
                    " again after {:,} more steps; `reset-optimizer` without a pattern, with {clocks: true},"
                    " begins a new memory",
                    path,
                    len(changed),
                    len(memory),
                    steps,
                ),
            )


def _is_weighed(slot: Slot, weights: LeafPath, draft: Draft) -> bool:
    if slot.relation != "stacked" or slot.node.parent != weights.parent:
        return False
    return draft.leaves[slot.path].spec.shape[:1] == draft.leaves[weights].spec.shape


def _keeps_products(slot: Slot, draft: Draft) -> bool:
    output = draft.leaves[slot.path]
    if not all(map(_keeps, output.edits)):
        return False
    if output.home is None or any(_is_whole(edit.effect) for edit in output.edits):
        return True
    was = draft.source_tree.get(output.home.path)
    return was is None or was.size == output.spec.size  # no places were dropped or doubled


def _keeps(edit: Edited) -> bool:
    match edit.effect:
        case Keeps() | Rearranges():
            return True
        case Scales():  # by the power of each, if it follows its param
            return not edit.is_named
        case _:
            return False


def _is_whole(effect: Effect) -> bool:
    """True if what was is there once, in other leaves perhaps, and new places hold 0."""
    by = effect.map if isinstance(effect, Rearranges) else None
    return by is not None and (by.regroups or by.grows is not None)
