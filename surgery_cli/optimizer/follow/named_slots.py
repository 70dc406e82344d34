"""Slots that an edit names beside their params, while others of the same state follow these by a policy."""

from __future__ import annotations

from collections.abc import Collection

from surgery_cli.draft.effect import ByMap, Effect, Keeps, Masks
from surgery_cli.draft.recipe import Draft
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage

_FOLLOWING = frozenset({"transform", "reset", "warm", "donor"})


def named_apart(
    effect: Effect, edited: Collection[LeafPath], before: Draft, after: Draft
) -> list[Consequence]:
    """A note for every state of which a part was edited as it is named, and another followed the params."""
    if isinstance(effect, ByMap | Keeps | Masks):  # which are the same for both
        return []
    named: dict[LeafPath, dict[LeafPath, None]] = {}
    followed: dict[LeafPath, dict[LeafPath, None]] = {}
    own = set(edited)
    for path in edited:
        for slot in after.slots_of.get(path, ()) if path not in after.slots else ():
            output = after.leaves.get(slot.path)
            if not slot.in_optimizer or output is None or slot.is_params_like:
                continue
            if slot.path in own:
                named.setdefault(slot.state, {})[slot.node] = None
            elif output is not before.leaves.get(slot.path) and output.policy in _FOLLOWING:
                followed.setdefault(slot.state, {})[slot.node] = None
    return [
        Consequence(
            DocsPage.OPTIMIZERS,
            f"{quoted(named[state], word='and')} {'are' if len(named[state]) > 1 else 'is'} edited as named, and"
            f" {quoted(followed[state], word='and')} {'follow' if len(followed[state]) > 1 else 'follows'} the params:"
            " no training leaves these together",
        )
        for state in named
        if state in followed
    ]
