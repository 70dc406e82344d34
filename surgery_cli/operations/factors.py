"""Factors and masks that are arrays: finding them among the sources."""

from __future__ import annotations

from typing import Final

from surgery_cli.draft.expression import LeafRef, Stored
from surgery_cli.draft.recipe import is_numeric
from surgery_cli.draft.source import Source
from surgery_cli.draft.source_leaves import find_leaf, only_array, split_entry
from surgery_cli.errors import MissingError, PlanError
from surgery_cli.optimizer.follow.states import States
from surgery_cli.tree.dtypes import is_complex, is_integer
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.words.advice import FieldName, worded

FACTOR: Final = "factor"
_ARRAY_FILES: Final = (".npy", ".npz", ".safetensors")


def _open_array(file: str, scene: States, word: str, field: str) -> tuple[str, Source]:
    """What the field names.

    Raises:
        PlanError: nothing of that name is there.
    """
    try:
        return scene.open(file)
    except MissingError as error:
        if file.endswith(_ARRAY_FILES):
            raise
        takes_number = word == FACTOR
        raise PlanError(
            worded("{} takes a number or an array file; '{}' is neither", FieldName(field), file)
            if takes_number
            else worded("{} takes an array file; '{}' is none", FieldName(field), file),
            why=error.problems[0].what,
            fix=f"give {'a number, or ' * takes_number}a `.npy`, `.npz` or `.safetensors` file",
            field=field,
        ) from None


def find_array(
    text: str, path: LeafPath, spec: LeafSpec, scene: States, word: str, field: str = "by"
) -> Stored:
    """The array that ``text`` names, for a leaf: the entry, else the only leaf, else the one at the same path.

    An only leaf that is called like another leaf of the checkpoint is for that one.

    ``word`` is what it is to the leaf: ``FACTOR``, which may be a number as well, or another. ``field`` says it.

    Raises:
        PlanError: there is none, it holds no numbers, or it does not broadcast to the leaf.
    """
    file, entry = split_entry(text)
    name, source = _open_array(file, scene, word, field)
    only = only_array(source, path, scene.source.tree.printed) if entry is None else None
    found = only if only is not None else find_leaf(file, source, entry or str(path), field=field)
    array = source.tree[found]
    is_number = is_numeric(array) or is_integer(array.dtype) or array.dtype == "bool"
    if array.kind is LeafKind.KEY or not is_number or _is_complex_for_real(array, spec):
        raise PlanError(
            f"'{text}' is no {word} for {spec.type_text}",
            why=f"it holds {array.type_text}",
            field=field,
        )
    if not broadcasts(array.shape, spec.shape):
        raise PlanError(
            f"'{text}' does not broadcast to '{path}'",
            why=f"the {word} has shape {list(array.shape)}, the leaf {list(spec.shape)}",
            fix="every axis, counted from the last, must be 1 or as long as the leaf's",
            field=field,
        )
    return Stored(LeafRef(name, found), array)


def _is_complex_for_real(array: LeafSpec, spec: LeafSpec) -> bool:
    return is_complex(array.dtype) and not is_complex(spec.dtype)


def broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    """True if an array of ``shape`` broadcasts to exactly ``to``.

    >>> broadcasts((3,), (2, 3)), broadcasts((2, 3), (3,)), broadcasts((2, 1), (2, 3))
    (True, False, True)
    """
    if len(shape) > len(to):
        return False
    return all(n in (1, m) for n, m in zip(shape[::-1], to[::-1], strict=False))
