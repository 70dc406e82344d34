"""Folders in which one tree lies in several files, with or without an index that says which leaf is in which."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from surgery_cli.errors import CheckpointError
from surgery_cli.inputs.json_decoding import decode_json
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.listing import unreadable
from surgery_cli.store.filesystem.small_files import read_small
from surgery_cli.store.locate.file_formats import INDEX_SUFFIX, ShardKind
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.lists import quoted

T = TypeVar("T")

_WHOLE: Final = re.compile(
    r"(?:model|consolidated|adapter_model|pytorch_model|diffusion_pytorch_model)(?:-\d+-of-\d+)?\.\w+"
)
"""As libraries call the one file, or the series of files, in which all of a model or an adapter lies."""
_PLACE_IN_SERIES: Final = re.compile(r"-\d+(?=-of-\d+)")

NUMBERED: Final = re.compile(
    r"(?P<start>.*-)(?P<number>\d{1,9})(?P<rest>-of-(?P<count>\d{1,5})\.\w+)"
)


class _Index(msgspec.Struct, frozen=True):
    """``model.safetensors.index.json``: which shard holds which tensor."""

    weight_map: dict[str, str]


def read_shards(
    folder: Path, kind: ShardKind, read: Callable[[Path], Mapping[LeafPath, T]]
) -> dict[LeafPath, T]:
    """Every leaf of a folder, in the order of the index, or of the files.

    Raises:
        CheckpointError: index and shards disagree: one is missing, a leaf is not where the index says, is nowhere in
            it, or stands in two shards; or the files are several models.
    """
    found: dict[LeafPath, T] = {}
    homes: dict[LeafPath, str] = {}
    promised = _promised(folder, kind)
    for name, wanted in promised.items():
        held = read(folder / name)
        if wanted is not None:
            _refuse_disagreement(folder / name, set(wanted), set(held))
        for path in held if wanted is None else wanted:
            if path in found:
                raise CheckpointError(
                    f"'{path}' stands in two shards of '{folder}': '{homes[path]}', '{name}'",
                    why="without an index it cannot be told which is meant",
                    fix="name one of the files",
                )
            found[path], homes[path] = held[path], name
    return found


def _refuse_disagreement(shard: Path, wanted: set[LeafPath], held: set[LeafPath]) -> None:
    """Refuse a shard that does not hold exactly what the index beside it says."""
    if lacking := sorted(map(str, wanted - held)):
        raise CheckpointError(
            f"'{shard}' does not hold {quoted(lacking, 3)}",
            why="the index beside it says that it does",
            fix="a shard is missing or from another model; copy the directory again",
        )
    if unnamed := sorted(map(str, held - wanted)):
        raise CheckpointError(
            f"'{shard}' holds {quoted(unnamed, 3)}, and the index beside it does not say so",
            why="it cannot be told whether the index or the shard is of another model",
            fix="copy the directory again; or move the index away, and all that the shards hold is read",
        )


def names_read(folder: Path, kind: ShardKind) -> list[str]:
    """The files of a folder that are read: the shards, and the index, if there is one; not what else stands there.

    Raises:
        CheckpointError: see ``read_shards``.
    """
    return sorted({*_indexes(filesystem.names(folder), kind), *_promised(folder, kind)})


def _indexes(inside: Iterable[str], kind: ShardKind) -> list[str]:
    return [name for name in inside if name.endswith(kind.suffix + INDEX_SUFFIX)]


def _promised(folder: Path, kind: ShardKind) -> dict[str, list[LeafPath] | None]:
    """Files to read, each with the names that the index promises in it (None: all)."""
    inside = filesystem.names(folder)
    indexes = _indexes(inside, kind)
    if not indexes:
        files = kind.names(inside)
        _refuse_several(folder, files)
        _refuse_gaps(folder, files)
        return dict.fromkeys(files)
    if len(indexes) > 1:
        raise CheckpointError(
            f"'{folder}' has {len(indexes)} indexes: {quoted(indexes, 4)}",
            why="each belongs to another set of shards",
            fix="put the sets into directories of their own",
        )
    promised: dict[str, list[LeafPath] | None] = {}
    for leaf, file in read_index(folder / indexes[0]).weight_map.items():
        names = promised.setdefault(file, [])
        assert names is not None
        names.append(LeafPath((leaf,)))
    if outside := [name for name in promised if name in {".", ".."} or {"/", "\0"} & {*name}]:
        raise CheckpointError(
            f"'{folder / indexes[0]}' names the shard '{outside[0]}'",
            why="shards stand beside their index, and nothing else is opened",
            fix="copy the index again from where it was whole, or put the file's own name there",
        )
    whole = indexes[0].removesuffix(INDEX_SUFFIX)
    if whole in inside and whole not in promised:
        raise CheckpointError(
            f"'{folder}' holds two models: '{whole}', and the shards of '{indexes[0]}'",
            why="transformers reads the file, and the index does not name it; one of them is of an earlier save",
            fix=f"name the file, '{folder / whole}', or move it away",
        )
    if absent := sorted(set(promised) - set(inside)):
        more = f", and {len(absent) - 1:,} more that are missing" if len(absent) > 1 else ""
        raise CheckpointError(
            f"'{folder / absent[0]}' does not exist",
            why=f"'{indexes[0]}' names it{more}",
            fix="copy the missing shards",
        )
    return promised


def _refuse_several(folder: Path, files: list[str]) -> None:
    """Refuse a model or an adapter beside other files, where no index says what belongs together."""
    sets = {_PLACE_IN_SERIES.sub("", name): name for name in reversed(files)}
    whole = sorted(name for name in sets.values() if _WHOLE.fullmatch(name))
    if not whole or len(sets) < 2:
        return
    fix = "put each model into a folder of its own"
    if alone := [name for name in whole if name in sets]:  # a part of a series is no model
        fix = f"name the file that is meant, such as '{folder / alone[0]}', or {fix}"
    raise CheckpointError(
        f"'{folder}' holds several models: {quoted(sorted(sets.values()), 4)}",
        why=f"'{whole[0]}' is of one by itself, and no index says what else belongs to it",
        fix=fix,
    )


def _refuse_gaps(folder: Path, files: list[str]) -> None:
    """Refuse numbered files (`model-00001-of-00003`) of which some are missing."""
    numbered = [found for found in map(NUMBERED.fullmatch, files) if found]
    for one in numbered:
        for number in range(1, int(one["count"]) + 1):
            name = f"{one['start']}{number:0{len(one['number'])}}{one['rest']}"
            if name not in files:
                raise CheckpointError(
                    f"'{folder / name}' does not exist",
                    why=f"'{one[0]}' says that there are {int(one['count'])}",
                    fix="copy the missing shards",
                )


def read_index(path: Path) -> _Index:
    try:
        return decode_json(read_small(path), type=_Index)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(
            f"'{path}' is not an index of shards",
            why=str(error),
            fix="copy it again from where it was whole",
        ) from None
    except OSError as error:
        raise unreadable(path, error) from None
