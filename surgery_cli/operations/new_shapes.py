"""The shape that an edit gives to leaves whose values are new: sizes, and axes that stay as they are."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from msgspec import Meta

from surgery_cli.draft.arrangement import resized
from surgery_cli.errors import PlanError
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.words.advice import worded

Shape: TypeAlias = Annotated[
    int | str | tuple[int | str, ...] | None,
    Meta(
        description="Another shape, its sizes between commas. `*` stands for an axis as it is, `...` for any number of"
        " them: `..., 10` is 10 in the last axis, for a kernel and its bias alike."
    ),
]
"""The type of a field `shape`."""

_AS_IT_IS: Final = "*"
_OTHERS: Final = "..."


def shaped(spec: LeafSpec, shape: Shape) -> LeafSpec:
    """A leaf whose values are new, in the shape that an edit says, if it does.

    Its grid of chunks and its sharding are the image of the leaf's own.

    Raises:
        PlanError: that is no shape, or the leaf has no such axes.

    >>> kernel = LeafSpec(kind=LeafKind.ARRAY, shape=(64, 1000), dtype="float32")
    >>> shaped(kernel, ("...", 10)).shape, shaped(kernel, "64, 10, 2").shape, shaped(kernel, ("*", 5)).shape
    ((64, 10), (64, 10, 2), (64, 5))
    """
    if shape is None:
        return spec
    if spec.kind not in (LeafKind.ARRAY, LeafKind.NUMPY):
        raise PlanError(
            worded("{shape: {}} does not apply to {}", said(shape), spec.type_text),
            why="arrays have a shape",
            fix=worded("leave it out with {except}, or name the leaves more closely"),
            field="shape",
        )
    return resized(spec, _sizes(shape, spec))


def check_shape(shape: Shape) -> None:
    """Raise PlanError unless that is a shape, if it is said, whatever the leaf."""
    if shape is not None:
        _parts(shape)


def said(shape: Shape) -> str:
    """A shape as users write it.

    >>> said(("...", 10)), said(3)
    ('..., 10', '3')
    """
    return ", ".join(map(str, shape)) if isinstance(shape, tuple) else str(shape)


def pattern_of(shape: tuple[int, ...], old: tuple[int, ...]) -> tuple[int | str, ...]:
    """How to say a shape of a leaf that has another: what serves other leaves, too, where only the last size differs.

    >>> pattern_of((64, 10), (64, 1000)), pattern_of((10,), (1000,)), pattern_of((3, 10), (64, 10))
    (('...', 10), ('...', 10), (3, 10))
    """
    is_last = len(shape) == len(old) > 0 and shape[:-1] == old[:-1]
    return (_OTHERS, shape[-1]) if is_last else shape


def _sizes(shape: Shape, leaf: LeafSpec) -> tuple[int, ...]:
    parts = _parts(shape)
    count = len(leaf.shape)
    at = parts.index(_OTHERS) if _OTHERS in parts else None
    named = len(parts) - (at is not None)
    keeps = at is not None or _AS_IT_IS in parts
    if keeps and (named > count if at is not None else named != count):
        raise PlanError(
            worded("{shape: {}} does not fit {}", said(shape), leaf.type_text),
            why=f"it speaks of {named} axes, and the leaf has {count}",
            fix=worded(
                "write all sizes, without `*` or `...`, or select leaves with {where_ndim: {}}",
                named,
            ),
            field="shape",
        )
    if at is not None:
        parts[at : at + 1] = [_AS_IT_IS] * (count - named)
    return tuple(
        leaf.shape[axis] if part == _AS_IT_IS else int(part) for axis, part in enumerate(parts)
    )


def _parts(shape: Shape) -> list[int | str]:
    given = shape if isinstance(shape, tuple) else str(shape).strip("[]()").split(",")
    parts = [part.strip() if isinstance(part, str) else part for part in given]
    found = [int(p) if isinstance(p, str) and p.isdecimal() else p for p in parts if p != ""]
    is_size = [isinstance(part, int) and part > 0 for part in found]
    known = [ok or part in (_AS_IT_IS, _OTHERS) for ok, part in zip(is_size, found, strict=True)]
    if not found or not all(known) or found.count(_OTHERS) > 1:
        raise PlanError(
            worded("{shape: {}} is no shape", said(shape)),
            why="sizes are 1 or more; `*` is one axis as it is, and `...`, once, any number of them",
            fix=worded("write the sizes of all axes as {shape: '64, 10'}, or {shape: '..., 10'}"),
            field="shape",
        )
    return found
