"""T5X checkpoints: TensorStore specs in a msgpack file, and the arrays that they speak of in folders beside it.

The file holds ``version`` and, below ``optimizer``, the tree: ``target`` are the params, ``state`` the step and
``param_states``. Source: ``t5x/checkpoints.py`` of google-research/t5x, versions 2 and 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgpack
import msgspec

from surgery_cli.errors import CheckpointError
from surgery_cli.store.files.msgpack_scan import PackedLeaf
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind

VERSION: Final = LeafPath(("version",))
OPTIMIZER: Final = "optimizer"
"""The node below which the tree stands; T5X does not count it as a part of names."""
ROOTS: Final = ("target", "state", "flax_mutables")
"""What T5X knows at the root of its tree."""

READ_VERSIONS: Final = (2, 3)
BITS_OF_BFLOAT16: Final = "uint16"
"""The dtype under which version 2 stores bfloat16; params of this dtype there are not."""

_KVSTORES: Final = ("file", "gfile", "gcs", "s3")


class ArraySpec(msgspec.Struct, frozen=True):
    """A TensorStore spec as it stands in the msgpack file; ``name`` is the folder of its array."""

    fields: dict[str, Any]
    name: str

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.fields["metadata"]["shape"])

    def moved(self, name: str) -> dict[str, Any]:
        """The spec of the same array in another folder."""
        fields = {**self.fields, "kvstore": dict(self.fields["kvstore"])}
        holder = fields["kvstore"] if "path" in fields["kvstore"] else fields
        holder["path"] = name + "/" * holder["path"].endswith("/")
        return fields

    def of_array(self, name: str, document: Mapping[str, Any], dtype: str) -> dict[str, Any]:
        """The spec of another array, in the way of this one; ``document`` is what its folder says of it."""
        metadata = {
            "chunks": list(document["chunks"]),
            "compressor": document["compressor"],
            "shape": list(document["shape"]),
        }
        fields = {key: value for key, value in self.moved(name).items() if key != "transform"}
        return {**fields, "dtype": dtype, "metadata": metadata}


NEW_SPEC: Final = ArraySpec({"driver": "zarr", "kvstore": {"driver": "file", "path": "/"}}, "")
"""In the way of which specs are made where there is none."""


def read_spec(file: Path, leaf: LeafPath, fields: Any) -> ArraySpec:
    """What a spec refers to.

    Raises:
        CheckpointError: it is no whole array of zarr in a folder beside the file.
    """
    try:
        kvstore, metadata = fields["kvstore"], fields["metadata"]
        place = kvstore["path"] if "path" in kvstore else fields["path"]
        name = place.rstrip("/")
        is_known = fields["driver"] == "zarr" and kvstore["driver"] in _KVSTORES
        shape = metadata["shape"]
        is_known &= all(isinstance(n, int) and n >= 0 for n in shape)
        ends = fields.get("transform", {}).get("input_exclusive_max", shape)
        is_whole = [end[0] if isinstance(end, list) else end for end in ends] == list(shape)
        is_inside = name not in ("", ".", "..") and "/" not in name and "\\" not in name
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise _foreign(file, leaf, f"it lacks or misstates {error}") from None
    if not is_known or not is_whole:
        raise _foreign(file, leaf, "T5X writes whole arrays of zarr in files")
    if not is_inside:
        raise _foreign(file, leaf, f"its array stands at '{place}', not in a folder beside it")
    return ArraySpec(fields, name)


def _foreign(file: Path, leaf: LeafPath, why: str) -> CheckpointError:
    return CheckpointError(
        f"the TensorStore spec '{leaf}' in '{file}' is none that T5X writes",
        why=why,
        fix="load it with TensorStore and save the tree with `orbax.checkpoint.StandardCheckpointer`",
    )


def is_t5x(leaves: Mapping[LeafPath, PackedLeaf]) -> bool:
    """True for a tree of nothing but a version and what stands below ``optimizer``."""
    version = leaves.get(VERSION)
    below = {path[0] for path in leaves if len(path) > 1}
    is_number = version is not None and version.spec.kind is LeafKind.SCALAR
    return is_number and below == {OPTIMIZER} and len(below) + 1 == len({p[0] for p in leaves})


def envelope(version: int) -> bytes:
    """What stands before the tree in T5X's msgpack file."""
    packer = msgpack.Packer()
    start: bytes = packer.pack_map_header(2)
    return start + b"".join(packer.pack(part) for part in (str(VERSION), version, OPTIMIZER))


def refuse_specs(path: Path, specs: Sequence[LeafPath]) -> None:
    """Refuse a msgpack tree of which parts are TensorStore specs, and that is not T5X's: arrays are leaves, not specs.

    Raises:
        CheckpointError: there is one.
    """
    if specs:
        raise CheckpointError(
            f"'{path}' refers to arrays by TensorStore specs",
            why=f"{len(specs)}, such as '{specs[0]}'; T5X alone is known to write these, as `checkpoint` in a folder"
            " with `version` and `optimizer`",
            fix="load them with TensorStore and save the tree with `orbax.checkpoint.StandardCheckpointer`",
        )


def refuse_version(path: Path, version: Any) -> None:
    """Refuse what T5X itself does not read.

    Raises:
        CheckpointError: so.
    """
    if version not in READ_VERSIONS:
        raise CheckpointError(
            f"'{path.parent}' is a T5X checkpoint of version {version}",
            why="T5X itself reads versions 2 and 3",
            fix="save it again with the release of T5X that wrote it and one of 2021 or later",
        )
