"""Which leaves the patterns of a command name that looks and does not edit."""

from __future__ import annotations

from collections.abc import Sequence

from surgery_cli.errors import PlanError, Problem
from surgery_cli.resolution.selection import no_match
from surgery_cli.tree.paths import LeafPath, PathPattern
from surgery_cli.tree.specs import TreeSpec


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
        if not named:
            nodes = [node for tree in trees for node in tree.nodes]
            problems.append(no_match(pattern, texts, nodes))
    if problems:
        raise PlanError.of(problems)
    return found
