"""NaN and infinities."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta

from surgery_cli.draft.check import Judged
from surgery_cli.draft.recipe import Output, is_numeric
from surgery_cli.draft.seen import NonFinite, Seen
from surgery_cli.rules.contract import Named, Rule, refuse_false
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.quantities import counted

STARTS_INFINITE: Final = "infinite as the optimizer starts with it, which is let through"


class Finite(Rule, frozen=True):
    """No NaN and no infinity, but in a number with which the state of an optimizer starts so: a best loss so far."""

    finite: Annotated[
        bool,
        Meta(
            description="No NaN and no infinity; what holds no floats is left out. Let through, counted and named, are"
            " infinities with which optax starts: `best_value` of `reduce_on_plateau`, `value` and the errors in `info`"
            " of a line search."
        ),
    ]
    allow: Annotated[
        Literal["inf"] | None, Meta(description="`inf`: infinities are as good as numbers.")
    ] = None

    sees: ClassVar[type[Seen]] = NonFinite
    needs_values: ClassVar[bool] = True

    def __post_init__(self) -> None:
        refuse_false(self)

    @property
    def text(self) -> str:
        return "no NaN" if self.allow == "inf" else "finite"

    def is_told(self, path: LeafPath, output: Output, named: Named) -> bool:
        return not is_numeric(output.spec)

    def of_leaf(self, path: LeafPath, named: Named) -> Finite:
        if self.allow == "inf" or named.draft.leaves[path].spec.shape:
            return self
        may_be = path in named.scene.survey_of_draft(named.draft).infinite
        return _FiniteOrAtItsStart(finite=True) if may_be else self

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


class _FiniteOrAtItsStart(Finite, frozen=True):
    """As it is meant of a number with which an optimizer starts at infinity."""

    def judge(self, seen: NonFinite, spec: LeafSpec) -> Judged:
        if seen.infinite and not seen.nan:
            return Judged(True, "it is infinite", apart=STARTS_INFINITE)
        return super().judge(seen, spec)
