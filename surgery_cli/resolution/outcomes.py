"""What an edit did, counted for the preview: leaves that it named, twins that followed, bytes of new values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from surgery_cli.draft import Draft, EditOutcome
from surgery_cli.tree.paths import LeafPath


def with_outcome(after: Draft, before: Draft, named: Collection[LeafPath] | None) -> Draft:
    """``after`` with one more outcome: its difference to ``before``.

    ``named``: what the edit's patterns select; None if it selects nothing, but puts leaves somewhere.
    """
    if after.items.front != before.items.front:
        before = before.behind(after.items.front)
    if named is None:
        named = [p for p, recipe in after.leaves.items() if before.leaves.get(p) is not recipe]
    chosen = set(named)
    twins: Counter[str] = Counter()
    staying = {id(recipe) for path, recipe in before.leaves.items() if path in after.leaves}
    changed_bytes = 0
    for path, recipe in after.leaves.items():
        old = before.leaves.get(path)
        if old is recipe:
            continue
        if (old is not None and old.steps != recipe.steps) or (old is None and recipe.steps):
            changed_bytes += recipe.spec.bytes
        if path in after.slots and path not in chosen:
            arrived = "copied" if id(recipe) in staying else "moved"
            twins[arrived if old is None else recipe.policy or "moved"] += 1
    gone = [path for path in before.slots if path not in after.leaves and path not in chosen]
    deleted = len(gone) - twins["moved"]
    if deleted > 0:
        twins["deleted"] = deleted
    kept = EditOutcome(len(chosen), {k: n for k, n in twins.items() if n}, changed_bytes)
    return after.replaced(outcomes=(*after.outcomes, kept))
