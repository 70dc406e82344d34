"""Do two trees agree, leaf by leaf: paths, container kinds, leaf kinds, shapes, dtypes."""

from __future__ import annotations

import msgspec

from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec, TreeSpec


class Disagreement(msgspec.Struct, frozen=True):
    """What differs between two specs of a leaf: ``kind``, ``shape``, ``dtype``, ``container``; both sides as text."""

    path: LeafPath
    what: str
    a: str
    b: str


class Comparison(msgspec.Struct, frozen=True):
    """Paths on one side only, and leaves whose specs differ."""

    only_in_a: list[LeafPath]
    only_in_b: list[LeafPath]
    changed: list[Disagreement]

    @property
    def agrees(self) -> bool:
        return not (self.only_in_a or self.only_in_b or self.changed)


def compare(a: TreeSpec, b: TreeSpec) -> Comparison:
    """Hold two trees against each other; values are not looked at."""
    pairs = ((path, left, b.get(path)) for path, left in a.items())
    unlike = [(path, left, right) for path, left, right in pairs if left != right]
    found = [disagreement(path, left, right) for path, left, right in unlike if right is not None]
    return Comparison(
        [path for path, _, right in unlike if right is None],
        [path for path in b if path not in a],
        [d for d in found if d is not None],
    )


def disagreement(path: LeafPath, a: LeafSpec, b: LeafSpec) -> Disagreement | None:
    """The most telling difference between two specs of one leaf."""
    for field, what in _TELLING:
        if getattr(a, field) != getattr(b, field):
            return Disagreement(path, what, a.held_text, b.held_text)
    return None


_TELLING = (
    ("kind", "kind"),
    ("empty", "container"),
    ("shape", "shape"),
    ("dtype", "dtype"),
    ("key_impl", "dtype"),
)
