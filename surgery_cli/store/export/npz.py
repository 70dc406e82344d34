"""NumPy's ``.npz``: an archive of arrays by name, not compressed, as ``numpy.savez`` writes it."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Final

from surgery_cli.errors import PlanError
from surgery_cli.settings.export import Export
from surgery_cli.store.export.contract import FileParts, Values
from surgery_cli.store.export.flat import FlatFormat
from surgery_cli.store.export.zip_parts import archived
from surgery_cli.store.write.item_plan import ItemPlan, PlannedLeaf
from surgery_cli.tree.dtypes import INTEGER_BITS
from surgery_cli.tree.paths import LeafPath

SUFFIX: Final = ".npz"
_MEMBER: Final = ".npy"


class Npz(FlatFormat):
    """One file; the keys of a path are joined by slashes, as it prints."""

    name: ClassVar[str] = "npz"
    separator: ClassVar[str] = "/"
    dtypes: ClassVar[frozenset[str]] = frozenset(
        {
            "bool",
            *("float16", "float32", "float64", "complex64", "complex128"),
            *(name for name, bits in INTEGER_BITS.items() if bits >= 8),
        }
    )
    """NumPy stores those of ml_dtypes (bfloat16, float8) as bytes without a meaning."""

    def name_fault(self, path: LeafPath) -> str:
        name = path.text
        if name.endswith(_MEMBER):
            return f"`numpy.load` takes '{_MEMBER}' off the names of arrays"
        return "names in archives end at a null character" if "\0" in name else ""

    def check_destination(self, target: Path, request: Export) -> None:
        self.refuse_shards(request)
        if target.suffix != SUFFIX:
            raise PlanError(
                f"'{target.name}' is not called like an npz file",
                why=f"readers tell what a file is by '{SUFFIX}'",
                fix=f"name '{target.name}{SUFFIX}'",
                field="output",
            )

    def files(self, plan: ItemPlan, target: Path, request: Export) -> Sequence[FileParts]:
        return [FileParts("", archived(_entries(plan.leaves)))]


def _entries(leaves: Sequence[PlannedLeaf]) -> Iterator[tuple[str, bytes, Values]]:
    for leaf in leaves:
        values = Values(leaf.path, leaf.spec.bytes)
        yield f"{leaf.path.text}{_MEMBER}", _head(leaf), values


def _head(leaf: PlannedLeaf) -> bytes:
    """What stands before the values of an array."""
    import numpy as np
    from numpy.lib import format as npy

    stream = io.BytesIO()
    described = npy.dtype_to_descr(np.dtype(leaf.spec.dtype))
    header = {"descr": described, "fortran_order": False, "shape": leaf.spec.shape}
    npy.write_array_header_1_0(stream, header)
    return stream.getvalue()
