"""The kinds of arrays in formats that do not tell JAX's from NumPy's."""

from __future__ import annotations

import msgspec

from surgery_cli.draft.recipe import SOURCE, Draft, Output
from surgery_cli.tree.specs import LeafKind


def as_format_tells(draft: Draft) -> Draft:
    """The draft with every array of the one kind there is, in a format that knows NumPy's scalars and raw bytes alone.

    These are what they were only while they have as many axes, none or one: a scalar that gets an axis is an array.
    """
    if draft.items.keeps_kinds:
        return draft
    changed = {
        path: output.with_spec(msgspec.structs.replace(output.spec, kind=LeafKind.ARRAY))
        for path, output in draft.leaves.items()
        if output.spec.kind is LeafKind.NUMPY and not _is_as_it_was(output, draft)
    }
    return draft.with_leaves(changed) if changed else draft


def _is_as_it_was(output: Output, draft: Draft) -> bool:
    """True if the leaf continues a scalar of NumPy's, or raw bytes, as one."""
    home = output.home
    if home is None or home.source != SOURCE:
        return False
    was, spec = draft.source_tree[home.path], output.spec
    has_kind = not spec.shape or spec.dtype == "uint8"
    return was.kind is LeafKind.NUMPY and len(was.shape) == len(spec.shape) and has_kind
