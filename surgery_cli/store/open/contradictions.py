"""What ``_METADATA`` says of arrays that is not so: Orbax goes by it, and refuses the item."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from surgery_cli.store.open.item import PytreeItem
from surgery_cli.store.orbax.ocdbt import OcdbtStore
from surgery_cli.tree.paths import Key, LeafPath


def contradictions(item: PytreeItem) -> Iterator[str]:
    """Why Orbax could not restore a tree that opens here, as the files themselves tell how they are read."""
    metadata, arrays = item.sidecars.metadata, [leaf.array for leaf in item.leaves.values()]
    zarr = {array.document.zarr for array in arrays if array is not None}
    if metadata is None:
        return
    if not item.leaves:
        yield "it names no leaf: Orbax neither writes nor restores an empty tree"
    if zarr and metadata.get("use_ocdbt") not in (None, isinstance(item.store, OcdbtStore)):
        said = "per leaf, and they are in a database (OCDBT)"
        if metadata["use_ocdbt"]:
            said = "in a database (OCDBT), and they are stored per leaf"
        yield f"it says that arrays are stored {said}: it is that of another save"
    is_zarr3 = metadata.get("use_zarr3", False)  # Orbax asks its handler where it is null alone
    declared = 3 if is_zarr3 else 2
    if is_zarr3 is not None and (other := zarr - {declared}):
        if "use_zarr3" in metadata:
            said = f"zarr {declared}, and they are zarr {max(other)}"
            yield f"it says that arrays are {said}: it is that of another save"
        else:
            yield "it does not say that arrays are zarr 3 (`use_zarr3`): Orbax looks for zarr 2"
    for path, value in (item.sidecars.values or {}).items():
        if value.get("skip_deserialize") is True and item.leaves[path].array is not None:
            yield f"'{path}' is stored, and to be skipped (`skip_deserialize`)"
        if "skip_deserialize" not in value:
            yield f"'{path}' does not say whether it is skipped (`skip_deserialize`)"
        if not isinstance(value.get("write_shape", []), list):
            yield f"'{path}' was written in blocks of {value['write_shape']!r}, which is no shape (`write_shape`)"
    yield from _of_nodes(item.leaves)


def _of_nodes(paths: Collection[LeafPath]) -> Iterator[str]:
    """Why nodes are no containers: they have both indices and names, or indices with a gap."""
    keys: dict[tuple[Key, ...], dict[Key, None]] = {}
    before: tuple[Key, ...] = ()
    for path in paths:
        for depth, key in enumerate(path):
            if depth < len(before) and path[: depth + 1] == before[: depth + 1]:
                continue  # the same node as that of the leaf before
            keys.setdefault(path[:depth], {})[key] = None
        before = path
    for node, inside in keys.items():
        indices = sorted(key for key in inside if isinstance(key, int))
        if indices and len(indices) < len(inside):
            yield f"some keys of '{LeafPath(node)}' are indices of a list, and some keys of a dict (`key_type`)"
        elif indices and indices[-1] >= len(indices):
            gap = next(n for n, index in enumerate(indices) if n != index)
            yield f"the list '{LeafPath(node)}' has no {gap}, and goes to {indices[-1]}: Orbax restores no tree"
