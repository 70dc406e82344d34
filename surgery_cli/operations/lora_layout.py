"""How the axes of a LoRA's A and B stand to those of its kernel: said by a name, or axis by axis."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar

from surgery_cli.draft.factor import Axis
from surgery_cli.errors import PlanError
from surgery_cli.words.advice import worded
from surgery_cli.words.lists import listed

NAMED: Final = {
    "flax": "in r, r out -> in out",
    "peft": "r in, out r -> out in",
    "peft-transposed": "r in, out r -> in out",
}
"""Layouts that have a name, each as it is with one axis a side."""

_RANK: Final = "r"
_LAYER: Final = "layer"
_SIDES: Final = re.compile(r"([^,>]+),([^,>]+)->([^,>]+)")
_GROUP: Final = re.compile(r"\s*(?:\(([\w\s]+)\)|([^\W\d]\w*))\s*")

Shape = tuple[int, ...]
_Group = tuple[str, ...]
_T = TypeVar("_T")


class Misfit(Exception):
    """The shapes do not go with a layout; the text says which axes."""


class Fit(NamedTuple):
    """How A and B make a kernel: a letter for each axis, and both in the shape that has the kernel's axes."""

    axes: str
    a: Shape
    b: Shape
    rank: int


class Layout(NamedTuple):
    """The axes of A, of B and of the kernel by name; in A and B several may be one, in C order."""

    a: tuple[_Group, ...]
    b: tuple[_Group, ...]
    kernel: _Group

    def __str__(self) -> str:
        def side(groups: Sequence[_Group]) -> str:
            return " ".join(f"({' '.join(g)})" if len(g) != 1 else g[0] for g in groups)

        return f"{side(self.a)}, {side(self.b)} -> {' '.join(self.kernel)}"

    @property
    def rank(self) -> str:
        """The axis that A and B share, and the kernel does not have."""
        return next(x for group in self.a for x in group if x not in self.kernel)

    def axes_of(self, side: str) -> tuple[Axis, ...]:
        """What each axis counts of ``a`` or of ``b``."""
        own, other = (self.a, self.b) if side == "a" else (self.b, self.a)
        shared = {x for group in other for x in group}
        alone: Axis = "inputs" if side == "a" else "outputs"
        return tuple(
            "rank" if group == (self.rank,) else "layers" if shared.issuperset(group) else alone
            for group in own
        )

    def sides(self, kernel: Shape) -> tuple[int, int]:
        """How many inputs and outputs a kernel of this shape has: the elements of A and of B for one rank."""
        a, b = self.factors(kernel, 1)
        return math.prod(a), math.prod(b)

    def factors(self, kernel: Shape, rank: int) -> tuple[Shape, Shape]:
        """The shapes of A and B for a kernel.

        Raises:
            Misfit: it has other axes.
        """
        if len(kernel) != len(self.kernel):
            raise Misfit(f"{list(kernel)} has not the {len(self.kernel)} axes of `{self}`")
        sizes = {**dict(zip(self.kernel, kernel, strict=True)), self.rank: rank}
        a, b = (
            tuple(math.prod(sizes[x] for x in group) for group in groups)
            for groups in (self.a, self.b)
        )
        return a, b

    def fit(self, a: Shape, b: Shape, kernel: Shape) -> Fit:
        """The product, for leaves of these shapes.

        Raises:
            Misfit: they have other axes, or other sizes.
        """
        if len(kernel) != len(self.kernel):
            raise Misfit(
                f"the kernel {list(kernel)} has not the {len(self.kernel)} axes of `{self}`"
            )
        sizes = dict(zip(self.kernel, kernel, strict=True))
        for name, groups, shape in (("A", self.a, a), ("B", self.b, b)):
            if len(groups) != len(shape):
                raise Misfit(f"{name} {list(shape)} has not the {len(groups)} axes of `{self}`")
            for group, size in zip(groups, shape, strict=True):
                if group == (self.rank,):
                    known = sizes.setdefault(self.rank, size)
                    if known != size:
                        raise Misfit(f"A has rank {known}, B has rank {size}")
                elif (wanted := math.prod(sizes[x] for x in group)) != size:
                    named = f"'{' '.join(group)}'"
                    raise Misfit(f"{named} is {size} in {name}, and {wanted} in the kernel")
        letters = {x: chr(ord("a") + n) for n, x in enumerate(sizes)}
        sides = [[x for group in groups for x in group] for groups in (self.a, self.b)]
        words = ["".join(letters[x] for x in side) for side in (*sides, self.kernel)]
        own_a, own_b = (tuple(sizes[x] for x in side) for side in sides)
        return Fit(f"{words[0]},{words[1]}->{words[2]}", own_a, own_b, sizes[self.rank])


def check_layout(text: str, scan_axis: int | None) -> None:
    """Raise PlanError unless ``text`` is a layout."""
    if text not in NAMED:
        _read(text)
        if scan_axis is not None:
            raise PlanError(
                worded("{layout: {}} says all axes, {scan_axis} says one more", text),
                why="an axis that all three have is one of layers",
                fix=worded("take {scan_axis} out, and name that axis in {layout}"),
                field="scan_axis",
            )


def fitted(text: str, scan_axis: int | None, a: Shape, b: Shape, kernel: Shape) -> Fit:
    """How leaves of these shapes make a kernel.

    Raises:
        Misfit: they do not; the text says which axes.
    """
    return _layout(text, scan_axis, a, b, kernel).fit(a, b, kernel)


def stated(text: str, scan_axis: int | None) -> Layout:
    """The layout with this name, of one axis a side, or the one that is said axis by axis."""
    layout = _read(NAMED.get(text, text))
    return layout if scan_axis is None or text not in NAMED else _scanned(layout, scan_axis)


def names_that_fit(scan_axis: int | None, a: Shape, b: Shape, kernel: Shape) -> list[str]:
    """The named layouts that go with these shapes.

    >>> names_that_fit(None, (64, 8), (8, 32), (64, 32)), names_that_fit(0, (4, 8, 64), (4, 32, 8), (4, 32, 64))
    (['flax'], ['peft'])
    """
    found = []
    for name in NAMED:
        try:
            fitted(name, scan_axis, a, b, kernel)
        except Misfit:
            continue
        found.append(name)
    return found


def _layout(text: str, scan_axis: int | None, a: Shape, b: Shape, kernel: Shape) -> Layout:
    """The layout with this name for leaves with so many axes, or the one that is said axis by axis."""
    if text not in NAMED:
        return _read(text)
    scan = scan_axis is not None
    rank = (_RANK,)
    axes = _without(kernel, scan_axis)
    match text:
        case "flax":
            ins = _several("in", max(len(a) - 1 - scan, 1))
            outs = _several("out", max(len(b) - 1 - scan, 1))
            layout = Layout(
                (*((x,) for x in ins), rank), (rank, *((x,) for x in outs)), (*ins, *outs)
            )
        case "peft-transposed":
            size = next((n for n in _without(a, scan_axis)[1:]), 0)
            splits = range(1, len(axes))
            count = next((n for n in splits if math.prod(axes[:n]) == size), 1)
            ins, outs = _several("in", count), _several("out", max(len(axes) - count, 1))
            layout = Layout((rank, ins), (outs, rank), (*ins, *outs))
        case _:
            layout = _read(NAMED[text])
    return layout if scan_axis is None else _scanned(layout, scan_axis)


def _scanned(layout: Layout, scan_axis: int) -> Layout:
    """The layout with the axis of layers at this place in all three."""
    return Layout(
        _inserted(layout.a, scan_axis, (_LAYER,)),
        _inserted(layout.b, scan_axis, (_LAYER,)),
        _inserted(layout.kernel, scan_axis, _LAYER),
    )


def _several(name: str, count: int) -> tuple[str, ...]:
    return (name,) if count == 1 else tuple(f"{name}{n}" for n in range(count))


def _without(shape: Shape, axis: int | None) -> Shape:
    return shape if axis is None else (*shape[:axis], *shape[axis + 1 :])


def _inserted(side: tuple[_T, ...], axis: int, new: _T) -> tuple[_T, ...]:
    return (*side[:axis], new, *side[axis:])


def _read(text: str) -> Layout:
    """The layout that is said axis by axis: `(heads dim) r, r embed -> heads dim embed`.

    Raises:
        PlanError: it is none.
    """
    sides = _SIDES.fullmatch(text.strip())
    groups = [] if sides is None else [_groups(side) for side in sides.groups()]
    if len(groups) < 3 or not all(groups):
        raise _no_layout(text, "it names the axes of A, of B and of the kernel")
    a, b, kernel = groups
    axes = [x for group in kernel for x in group]
    of_a, of_b = ([x for group in side for x in group] for side in (a, b))
    if any(len(group) > 1 for group in kernel):
        raise _no_layout(
            text, "the kernel has its axes one by one; A and B may have several as one"
        )
    if any(len({*side}) < len(side) for side in (axes, of_a, of_b)):
        raise _no_layout(text, "one of the three has two axes of one name")
    inner = {*of_a, *of_b} - {*axes}
    if len(inner) != 1 or not inner <= {*of_a} & {*of_b}:
        raise _no_layout(text, "A and B share one axis that the kernel does not have, the rank")
    if any(len(group) > 1 and inner & {*group} for group in (*a, *b)):
        raise _no_layout(text, "the rank is an axis of its own")
    if lost := [x for x in axes if x not in of_a and x not in of_b]:
        raise _no_layout(text, f"neither A nor B has '{lost[0]}' of the kernel")
    return Layout(tuple(a), tuple(b), tuple(axes))


def _groups(side: str) -> list[_Group]:
    """The axes of one side; none if it does not read."""
    found: list[_Group] = []
    at = 0
    while at < len(side):
        group = _GROUP.match(side, at)
        if group is None:
            return []
        found.append(tuple((group[1] or group[2]).split()))
        at = group.end()
    return found


def _no_layout(text: str, why: str) -> PlanError:
    return PlanError(
        worded("{layout: {}} is no layout", text),
        why=why,
        fix=worded(
            "say {}, or the axes of A, B and the kernel by names of yours: {layout: '{}'}",
            listed((f"`{name}`" for name in NAMED), word="or"),
            "embed r, r heads dim -> embed heads dim",
        ),
        field="layout",
    )
