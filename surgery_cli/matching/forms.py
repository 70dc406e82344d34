"""How a family of one tree can become a family of another: one to one, stacked, taken apart; and by which axes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from surgery_cli.matching.arrangements import Arrangement, arrangements
from surgery_cli.matching.families import Family


class Change(msgspec.Struct, frozen=True):
    """What is done to the values themselves: each times a number, or a number more."""

    op: str
    """``rescale`` or ``add-scaled``."""
    number: str
    """As a plan says it: ``64^-0.5``."""
    value: float

    @property
    def edit(self) -> dict[str, Any]:
        """The operation, without where."""
        if self.op == "rescale":
            return {"op": "rescale", "by": self.number}
        return {"op": "add-scaled", "with": int(self.value)}

    def of(self, values: Any) -> Any:
        """The values, changed and rounded as the operation does."""
        if self.op == "rescale":
            return (values.astype("float32") * self.value).astype(values.dtype)
        return (values.astype("float64") + self.value).astype(values.dtype)


class Resize(msgspec.Struct, frozen=True):
    """An axis that is longer or shorter in the result: a vocabulary that is padded, or no more."""

    axis: int
    old_size: int
    size: int
    value: float | None = None
    """The one number in all new places; None where there are none, or several numbers."""

    @property
    def edit(self) -> dict[str, Any]:
        """The operation, without where."""
        if self.value is None:
            return {"op": "resize", "axis": self.axis, "size": self.size}
        more: dict[str, Any] = {"after": self.size - self.old_size}
        more |= {"value": self.value} if str(self.value) != "0.0" else {}
        return {"op": "pad", "axis": self.axis, **more}

    @property
    def text(self) -> str:
        """What it does, in words."""
        return f"{self.edit['op']} axis {self.axis} from {self.old_size:,} to {self.size:,} places"


class Form(msgspec.Struct, frozen=True):
    """What makes the one of the other: each leaf is arranged, and before or after that layers are stacked or parted.

    ``stack``: the axis of the layers in the result, of leaves arranged before. ``unstack``: the axis of the layers in
    the source, whose parts are arranged afterwards. ``change``: what is done to the values first. ``resize``: which
    axis of what was arranged has another length in the result.
    """

    arrangement: Arrangement
    stack: int | None = None
    unstack: int | None = None
    change: Change | None = None
    resize: Resize | None = None

    @property
    def text(self) -> str:
        """What it does, in words; '' for nothing."""
        parts = [self.arrangement.text] if self.arrangement.text else []
        if self.unstack is not None:
            parts.insert(0, f"unstack axis {self.unstack}")
        if self.stack is not None:
            parts.append(f"stack on axis {self.stack}")
        if self.resize is not None:
            parts.append(self.resize.text)
        if self.change is not None:
            parts.insert(0, f"{self.change.op} {self.change.number}")
        return ", ".join(parts)


def forms(old: Family, new: Family) -> list[Form]:
    """Every way from one family to the other, the plainest first."""
    return list(_forms(old, new)) if old.size == new.size else []


def _forms(old: Family, new: Family) -> Iterator[Form]:
    here, there = old.spec.shape, new.spec.shape
    count, wanted = len(old.members), len(new.members)
    if count == wanted:
        yield from map(Form, arrangements(here, there))
    elif wanted == 1:
        for axis in _axes_of(there, count):
            rest = there[:axis] + there[axis + 1 :]
            yield from (Form(one, stack=axis) for one in arrangements(here, rest))
    elif count == 1:
        for axis in _axes_of(here, wanted):
            rest = here[:axis] + here[axis + 1 :]
            yield from (Form(one, unstack=axis) for one in arrangements(rest, there))


def _axes_of(shape: tuple[int, ...], size: int) -> list[int]:
    return [axis for axis, there in enumerate(shape) if there == size]
