"""Whether a draft is what there was before a run: keys, types, items, and their order where a file keeps it."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import UnsetType

from surgery_cli.draft.recipe import Draft
from surgery_cli.proof.surgery_json import Record
from surgery_cli.resolution.inverse import tree_digest
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.write.step_plan import draft_items
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import TreeSpec


def differences(draft: Draft, origin: Checkpoint | None, record: Record) -> list[str]:
    """Where a draft is not the checkpoint that was edited; if that is gone, the record has a digest of its tree."""
    if origin is not None:
        return _of_trees(draft, origin.tree) or _of_items(draft, origin)
    if isinstance(record.original, UnsetType):
        return []
    specs = {path: output.spec for path, output in draft.leaves.items()}
    return [] if tree_digest(specs) == record.original else ["the tree"]


def is_in_order(draft: Draft, origin: Checkpoint | None) -> bool:
    """True if the keys stand in the order in which they stood, or in a layout that keeps none."""
    if (
        origin is None or draft.items.keeps_kinds
    ):  # but for msgpack, they are sorted when they are restored
        return True
    return _as_nested(draft.leaves) == _as_nested(origin.tree)


def _as_nested(paths: Iterable[LeafPath]) -> list[LeafPath]:
    """Leaves in the order in which they stand once those of a node stand together."""
    rank: dict[tuple[object, ...], int] = {}
    known = [*paths]
    for path in known:
        for depth in range(1, len(path) + 1):
            rank.setdefault(path[:depth], len(rank))
    return sorted(known, key=lambda path: [rank[path[:n]] for n in range(1, len(path) + 1)])


def _of_items(draft: Draft, origin: Checkpoint) -> list[str]:
    """The items of the step that are on one side only."""
    items, wanted = draft.items, {*draft_items(origin).names}
    if not items.names or not wanted:
        return []
    there = {str(path[0]) for path in draft.leaves} if items.is_prefixed else {*items.names}
    return sorted(there ^ wanted)


def _of_trees(draft: Draft, original: TreeSpec) -> list[str]:
    """The leaves of either tree that the other has not, or has otherwise."""
    cut = 1 if draft.items.is_prefixed and not any(p in draft.leaves for p in original) else 0
    after = {LeafPath(path[cut:]): output.spec for path, output in draft.leaves.items()}
    paths = dict.fromkeys((*original, *after))
    return [
        str(path)
        for path in paths
        if path not in after or path not in original or not after[path].agrees_with(original[path])
    ]
