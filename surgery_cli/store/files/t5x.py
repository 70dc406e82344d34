"""T5X checkpoints: a msgpack file in which TensorStore specs stand for arrays. They are told, and refused by name.

Source: t5x/checkpoints.py of google-research/t5x, versions 1 to 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from surgery_cli.errors import CheckpointError
from surgery_cli.store.files.msgpack_scan import PackedLeaf
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind

_VERSION = LeafPath(("version",))


def refuse_array_specs(path: Path, leaves: Mapping[LeafPath, PackedLeaf]) -> None:
    """Refuse a msgpack tree of which parts are TensorStore specs: what one refers to is a leaf, not the spec.

    Raises:
        CheckpointError: there is one; a T5X checkpoint is called so.
    """
    specs = [LeafPath(leaf[:-2]) for leaf in leaves if _is_of_spec(leaf, leaves)]
    if not specs:
        return
    is_t5x = _VERSION in leaves and all(spec[:1] == ("optimizer",) for spec in specs)
    raise CheckpointError(
        f"'{path.parent if path.name == 'checkpoint' else path}' is a T5X checkpoint"
        if is_t5x
        else f"'{path}' refers to arrays by TensorStore specs",
        why=f"arrays stand beside it, and specs in its msgpack file for them ({len(specs)}, such as '{specs[0]}');"
        " surgery does not follow these",
        fix="load it with `t5x.checkpoints.load_t5x_checkpoint`, and save the tree with"
        " `orbax.checkpoint.StandardCheckpointer`",
    )


def _is_of_spec(leaf: LeafPath, leaves: Mapping[LeafPath, PackedLeaf]) -> bool:
    """True for the name of a key-value store's driver, beside that of an array's driver."""
    if leaf[-2:] != ("kvstore", "driver"):
        return False
    names = (leaves.get(path) for path in (leaf, LeafPath((*leaf[:-2], "driver"))))
    return all(name is not None and name.spec.kind is LeafKind.STRING for name in names)
