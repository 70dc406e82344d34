"""NaN and infinities."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from surgery_cli.draft.check import Judged
from surgery_cli.draft.recipe import Output, is_numeric
from surgery_cli.draft.seen import NonFinite, Seen
from surgery_cli.rules.contract import Named, Rule, refuse_false
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.quantities import counted


def may_be_infinite(
    path: LeafPath,
    shape: tuple[int, ...],
    slots: Container[LeafPath],
    states: Iterable[LeafPath],
) -> bool:
    """True for a number that a state of the optimizer keeps beside its slots: a best loss is infinite at first."""
    return not shape and path not in slots and any(map(path.is_below, states))


class Finite(Rule, frozen=True):
    """No NaN and no infinity. Numbers that an optimizer keeps beside its slots may be infinite: a best loss so far."""

    finite: Annotated[
        bool, Meta(description="No NaN and no infinity; what holds no floats is left out.")
    ]
    allow: Annotated[
        Literal["inf"] | None, Meta(description="`inf`: infinities are as good as numbers.")
    ] = None

    sees: ClassVar[type[Seen]] = NonFinite

    def __post_init__(self) -> None:
        refuse_false(self)

    @property
    def text(self) -> str:
        return "no NaN" if self.allow == "inf" else "finite"

    def is_told(self, path: LeafPath, output: Output, named: Named) -> bool:
        return not is_numeric(output.spec)

    def of_leaf(self, path: LeafPath, named: Named) -> Finite:
        shape = named.draft.leaves[path].spec.shape
        is_fine = may_be_infinite(path, shape, named.draft.slots, named.states)
        return Finite(finite=True, allow="inf") if is_fine else self

    def judge(self, seen: NonFinite, spec: LeafSpec) -> Judged:
        bad = seen.nan + (seen.infinite if self.allow != "inf" else 0)
        there = [
            f"`{counted(n, word, plural)}`"
            for n, word, plural in (
                (seen.nan, "NaN", "NaN"),
                (seen.infinite, "infinity", "infinities"),
            )
            if n
        ]
        return Judged(not bad, f"it holds {' and '.join(there) or 'finite values alone'}")
