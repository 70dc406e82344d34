"""Which leaves the patterns of a looking command name, and how documents name leaves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

from msgspec import UNSET, UnsetType

from surgery_cli.errors import PlanError, Problem, raise_all
from surgery_cli.resolution.no_match import no_match, zeros_missed
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.open.item import PytreeItem
from surgery_cli.tree.paths import LeafPath, PathPattern
from surgery_cli.tree.specs import TreeSpec
from surgery_cli.tree.spelling import is_plain

Names: TypeAlias = Mapping[LeafPath, str]


def document_names(texts: Names) -> Names:
    """How a document names each leaf: as it is shown, and where two are alike by the exact pattern."""
    counts = Counter(texts.values())

    def named(path: LeafPath, text: str) -> str:
        if counts[text] > 1:
            return path.exact_pattern
        return text if is_plain(text) else str(path)

    return {path: named(path, text) for path, text in texts.items()}


def former_names(texts: Names) -> Names:
    """How documents, and records, once named each leaf: by its keys as they are, and where two are alike spelled."""
    counts = Counter(texts.values())
    return {path: text if counts[text] == 1 else path.spelling for path, text in texts.items()}


def spellings(names: Names) -> dict[str, str] | UnsetType:
    """The keys of leaves whose names are not just these, slashes and percent signs spelled; unset without any."""
    return {
        name: path.spelling
        for path, name in names.items()
        if not (is_plain(name) and name.count("/") == len(path) - 1)
        if path.spelling != name or path.spelling != path.text
    } or UNSET


def containers_of(checkpoint: Checkpoint, leaves: Collection[LeafPath]) -> dict[str, str] | None:
    """The nodes above ``leaves`` that are no dicts: `list` (a tuple is stored as one) by their unambiguous paths.

    None where the format does not tell, or what told it is lost.
    """
    items = checkpoint.items.values()
    if checkpoint.inferred_items or not all(isinstance(item, PytreeItem) for item in items):
        return None
    sequences = TreeSpec({path: checkpoint.tree[path] for path in leaves}).sequences
    return {node.spelling: "list" for node in sorted(sequences, key=str)}


def named_leaves(patterns: Sequence[str], *trees: TreeSpec) -> set[LeafPath]:
    """The leaves of any of the trees that the patterns name; all of them without patterns.

    Raises:
        PlanError: a pattern names nothing, or is none; all of them at once.
    """
    texts = {path: text for tree in trees for path, text in tree.texts.items()}
    if not patterns:
        return set(texts)
    found: set[LeafPath] = set()
    problems: list[Problem] = []
    for text in patterns:
        try:
            pattern = PathPattern(text)
        except PlanError as error:
            problems += error.problems
            continue
        named = pattern.named(texts)
        found.update(named)
        if missed := zeros_missed(pattern, named, texts):
            problems.append(missed)
        elif not named:
            nodes = [node for tree in trees for node in tree.nodes]
            problems.append(no_match(pattern, texts, nodes))
    raise_all(problems)
    return found
