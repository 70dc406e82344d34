"""What was rescued, as it stands in the result, held against what was found."""

from __future__ import annotations

import itertools
from typing import Any

from surgery_cli.engine.digests import LeafDigest, digest_reading, leaf_digest
from surgery_cli.errors import WriteError
from surgery_cli.salvage.writing import KeptLeaf
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind


def proved(kept: KeptLeaf, written: Checkpoint, path: LeafPath, memory_bytes: int) -> LeafDigest:
    """The digest of a leaf of the result, at ``path``, which is what was found, and what fills it.

    Raises:
        WriteError: it is not.
    """
    if path not in written.tree:
        raise WriteError(f"'{path}' is not in the result", why="it was written, and is not found")
    spec = written.tree[path]
    if spec.kind is LeafKind.STRING and written.read(path) != kept.leaf.value:
        raise _differs(path)
    if not spec.has_array:
        return leaf_digest(written, path, spec, digest_reading(spec, memory_bytes))
    expected = kept.leaf.digest
    grid = None if expected is None else expected.grid
    found = leaf_digest(written, path, spec, digest_reading(spec, memory_bytes, grid), grid)
    if expected is not None and found != expected:
        raise _differs(path)
    if expected is None and kept.filled is not None and not _is_filled(kept, written, path):
        raise _differs(path)
    return found


def _differs(path: LeafPath) -> WriteError:
    return WriteError(
        f"'{path}' is not what was found",
        why="its values differ from those that were read before",
        fix="run the command again",
    )


def _is_filled(kept: KeptLeaf, written: Checkpoint, path: LeafPath) -> bool:
    """True if every block holds what was found there, or what fills it."""
    import numpy as np

    array, filled = kept.leaf.array, kept.filled
    assert filled is not None
    for window in _windows(written, path, None if array is None else array.document):
        is_own = array is not None and not filled.is_whole and window not in filled.blocks
        true = array.read(window) if array is not None and is_own else filled.read(window)
        here, there = (np.ascontiguousarray(one) for one in (written.read(path, window), true))
        if not np.array_equal(here.view(np.uint8), there.view(np.uint8)):
            return False
    return True


def _windows(written: Checkpoint, path: LeafPath, document: Any) -> list[tuple[slice, ...]]:
    spec = written.tree[path]
    steps = spec.write_shape if document is None else document.write_shape
    ranges = [
        [slice(at, min(at + max(step, 1), size)) for at in range(0, size, max(step, 1))]
        for step, size in zip(steps or (), spec.shape, strict=True)
    ]
    return [tuple(window) for window in itertools.product(*ranges)]
