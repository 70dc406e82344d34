"""Which leaves of another tree an edit names."""

from __future__ import annotations

from surgery_cli.operations.base import Operation
from surgery_cli.tree.paths import LeafPath, PathPattern
from surgery_cli.tree.specs import LeafSpec, TreeSpec, has_dtype


def named_elsewhere(edit: Operation, tree: TreeSpec, /, *, is_typed: bool = True) -> list[LeafPath]:
    """The leaves of another tree that the patterns name, all of it without any, and the conditions, if ``is_typed``."""
    named = [PathPattern(text).named(tree.texts) for text in edit.patterns]
    excluded = [PathPattern(text).named(tree.texts) for text in edit.exceptions]
    return [
        path
        for path, spec in tree.items()
        if (not named or any(path in found for found in named))
        and not any(path in found for found in excluded)
        and (not is_typed or _is_meant(edit, spec))
    ]


def _is_meant(edit: Operation, spec: LeafSpec) -> bool:
    """True if the conditions hold of a leaf that the patterns name."""
    if edit.where_ndim not in (None, len(spec.shape) if spec.has_array else -1):
        return False
    return not edit.where_dtype or has_dtype(spec, edit.where_dtype)
