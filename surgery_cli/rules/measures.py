"""Measures of a leaf within bounds: all of them are taken in one pass, in float64."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from surgery_cli.draft.check import Judged
from surgery_cli.draft.recipe import Output, is_numeric
from surgery_cli.draft.seen import Moments, Seen
from surgery_cli.errors import PlanError
from surgery_cli.rules.bounds import Bounds, BoundsText
from surgery_cli.rules.contract import Named, Rule
from surgery_cli.tree.dtypes import is_integer
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.words.advice import worded
from surgery_cli.words.quantities import counted, number_text


class Measure(Rule, frozen=True):
    """A number within bounds. Subclasses give the field of the bounds, and the number from a leaf's moments.

    Of leaves that no pattern names only those are measured that hold floats.
    """

    sees: ClassVar[type[Seen]] = Moments
    needs_values: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _ = self.bounds  # refused at once, and not for every leaf

    @property
    def bounds(self) -> Bounds:
        return Bounds.of(getattr(self, self.name), self.name)

    @property
    def text(self) -> str:
        return f"{self.name} {self.bounds}"

    def number(self, moments: Moments) -> int | float:
        raise NotImplementedError

    def breach(self, path: LeafPath, output: Output, named: Named) -> str:
        spec = output.spec
        if spec.kind is not LeafKind.KEY and (is_numeric(spec) or is_integer(spec.dtype)):
            return ""
        if not named.leaves.named:
            return ""
        raise PlanError(
            f"{spec.type_text} has no {self.name}",
            fix=worded("add {where_dtype: floating} to skip such leaves, or name the others"),
        )

    def nothing_judged(self, named: Named) -> str:
        leaves = named.draft.leaves
        if named.leaves.named or any(is_numeric(leaves[path].spec) for path in named.leaves):
            return super().nothing_judged(named)
        return "no leaf holds floats, and others are measured only where a pattern names them"

    def is_told(self, path: LeafPath, output: Output, named: Named) -> bool:
        return not named.leaves.named and not is_numeric(output.spec)

    def judge(self, seen: Moments, spec: LeafSpec) -> Judged:
        if seen.non_finite:
            values = counted(seen.non_finite, "value")
            return Judged(False, f"it has no {self.name}: `{values}` NaN or infinite")
        number = self.number(seen)
        said = str(number) if isinstance(number, int) else number_text(number)
        return Judged(number in self.bounds, f"its {self.name} is `{said}`", number)


class Norm(Measure, frozen=True):
    """The Frobenius norm."""

    norm: Annotated[
        BoundsText, Meta(description="Bounds of each leaf's Frobenius norm: `0.1..100`, `..100`.")
    ]

    def number(self, moments: Moments) -> float:
        return moments.norm


class Absmax(Measure, frozen=True):
    """The largest magnitude, exact for integers."""

    absmax: Annotated[
        BoundsText, Meta(description="Bounds of the largest magnitude in each leaf: `..10`.")
    ]

    def number(self, moments: Moments) -> int | float:
        return max(abs(moments.low), abs(moments.high)) if moments.size else 0.0


class Std(Measure, frozen=True):
    """The standard deviation."""

    std: Annotated[
        BoundsText, Meta(description="Bounds of each leaf's standard deviation: `1e-6..`.")
    ]

    def number(self, moments: Moments) -> float:
        return moments.std if moments.size else 0.0


class Zeros(Measure, frozen=True):
    """The share of zeros."""

    zeros: Annotated[
        BoundsText,
        Meta(description="Bounds of the share of zeros in each leaf: `0.4..0.6`; 0 for none."),
    ]

    @property
    def bounds(self) -> Bounds:
        bounds = super().bounds
        if bounds.low > 1 or 1 < bounds.high < float("inf"):
            raise PlanError(
                worded("{zeros} is a share from 0 to 1, not {}", bounds),
                fix="write `0.4..0.6` for about half of the values, `0` for none",
                field="zeros",
            )
        return bounds

    def number(self, moments: Moments) -> float:
        return moments.zeros / moments.size if moments.size else 0.0
