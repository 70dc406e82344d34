"""Leaves that are text: they stand together in a file of their own."""

from __future__ import annotations

import json
from pathlib import Path

from surgery_cli.store import filesystem
from surgery_cli.store.orbax.sidecars import STRINGS
from surgery_cli.store.write.item_plan import ItemPlan
from surgery_cli.tree import json_pointer
from surgery_cli.tree.paths import stored_name
from surgery_cli.tree.specs import LeafKind


def write_texts(plan: ItemPlan, target: Path) -> bool:
    """Write the file of all leaves that are text; false if there are none."""
    texts = [
        (stored_name(leaf.path), leaf.origin.read(leaf.origin_path))
        for leaf in plan.leaves
        if leaf.spec.kind is LeafKind.STRING and leaf.origin is not None and leaf.origin_path
    ]
    if texts:
        filesystem.write(target / STRINGS, json.dumps(json_pointer.document_of(texts)).encode())
    return bool(texts)
