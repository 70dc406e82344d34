"""What was rescued, as it stands in the result, held against what was found."""

from __future__ import annotations

import itertools
from typing import Any

from surgery_cli.engine.digests import LeafDigest, digest_reading, leaf_digest
from surgery_cli.errors import WriteError
from surgery_cli.salvage.survey import Survey
from surgery_cli.salvage.writing import KeptLeaf
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.orbax.arrays import read_array
from surgery_cli.tree.paths import LeafPath


def proved(
    survey: Survey,
    name: str,
    kept: KeptLeaf,
    written: Checkpoint,
    path: LeafPath,
    memory_bytes: int,
) -> LeafDigest | None:
    """The digest of a leaf of the result, which is what was found, and what fills it."""
    import numpy as np

    if path not in written.tree:
        raise WriteError(f"'{path}' is not in the result", why="it was written, and is not found")
    spec = written.tree[path]
    if not spec.has_array:
        return None
    expected = survey.digests[name].get(kept.leaf.path)
    grid = None if expected is None else expected.grid
    found = leaf_digest(written, path, spec, digest_reading(spec, memory_bytes, grid), grid)
    is_right = expected is None or found == expected
    if kept.filled is not None:
        array, own = kept.leaf.array, kept.filled.blocks
        document = None if array is None else array.document
        for window in _windows(written, path, document):
            theirs = not own or window in own
            true = (
                read_array(kept.filled.store, kept.filled.name, window)
                if theirs or array is None
                else array.read(window)
            )
            is_right &= np.array_equal(
                np.ascontiguousarray(written.read(path, window)).view(np.uint8),
                np.ascontiguousarray(true).view(np.uint8),
            )
    if not is_right:
        raise WriteError(
            f"'{path}' is not what was found",
            why="its values differ from those that were read before",
            fix="run the command again",
        )
    return found


def _windows(written: Checkpoint, path: LeafPath, document: Any) -> list[tuple[slice, ...]]:
    spec = written.tree[path]
    steps = spec.write_shape if document is None else document.write_shape
    ranges = [
        [slice(at, min(at + max(step, 1), size)) for at in range(0, size, max(step, 1))]
        for step, size in zip(steps or (), spec.shape, strict=True)
    ]
    return [tuple(window) for window in itertools.product(*ranges)]
