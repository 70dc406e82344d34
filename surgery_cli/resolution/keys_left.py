"""Lists that stand as dicts under the keys 0, 1, …, as Flax NNX has them, and what edits leave of their keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from surgery_cli.draft.recipe import SOURCE, Draft
from surgery_cli.operations.sequences import OptimizerState
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.targets import target_text
from surgery_cli.words.advice import joined, worded
from surgery_cli.words.lists import listed
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage

_MOST_MOVED: Final = 12
"""Moves that advice spells out."""


def gap_notes(draft: Draft) -> Iterator[Consequence]:
    """For each dict with the keys 0 to n that has lost some between others: what a list of the script makes of it.

    Twins follow the edit that closes the gap; other places in the optimizer state have a meaning, and are not moved.
    """
    if draft.leaves.keys() == draft.source_tree.keys():
        return
    counted = {node for node, keys in _numbered(draft.source_tree).items() if not _has_gap(keys)}
    if not counted:
        return
    gaps = {node: keys for node, keys in _numbered(draft.leaves).items() if _has_gap(keys)}
    were_lists = {node for node in gaps if counted & set(_origins(node, draft))}
    optimizer = OptimizerState(draft)
    for node in sorted((one for one in were_lists if not optimizer.holds(one)), key=str):
        yield _gap(node, sorted(map(int, gaps[node])))


def _numbered(leaves: Iterable[LeafPath]) -> dict[LeafPath, set[str]]:
    """The keys below each dict that has nothing but decimal numbers for keys, as a list stored as one has."""
    found: dict[LeafPath, set[str]] = {}
    others: set[LeafPath] = set()
    for path in leaves:
        for depth, key in enumerate(path):
            if isinstance(key, str) and key.isdecimal() and str(int(key)) == key:
                found.setdefault(LeafPath(path[:depth]), set()).add(key)
            elif depth:
                others.add(LeafPath(path[:depth]))
    return {node: keys for node, keys in found.items() if node not in others}


def _has_gap(keys: set[str]) -> bool:
    return max(map(int, keys)) >= len(keys)


def _origins(node: LeafPath, draft: Draft) -> Iterator[LeafPath]:
    """Where the leaves below a node stood in the source, above the key that they have there."""
    for path, output in draft.leaves.items():
        home = output.home
        if home is not None and home.source == SOURCE and path.is_below(node):
            yield LeafPath(home.path[: len(home.path) - len(path) + len(node)])


def _gap(node: LeafPath, keys: list[int]) -> Consequence:
    moved = [(old, new) for new, old in enumerate(keys) if old != new]
    left = listed([f"'{key}'" for key in keys], 6, word="and")
    last = f"'0' to '{len(keys) - 1}'" if len(keys) > 1 else "'0'"
    said = f"'{node}' keeps {left}: a list of the script, which Flax NNX stores under such keys, looks for {last}"
    if len(moved) > _MOST_MOVED:
        return Consequence(
            DocsPage.RENAME, f"{said}; `rename` the others, each to the next that is free"
        )
    pairs = [
        f"{(node / (str(old),)).exact_pattern}: {target_text(node / (str(new),))}"
        for old, new in moved
    ]
    text = joined(
        "", [said, worded("; `rename` with {moves: {}} closes the gap", f"{{{', '.join(pairs)}}}")]
    )
    return Consequence(DocsPage.RENAME, *text.parts)
