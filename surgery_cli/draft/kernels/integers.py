"""Integers among floats: exactly there, and rounded once on the way back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from surgery_cli.draft.expression import Made, Recipe
from surgery_cli.draft.kernel import Kernel, Kit, Place
from surgery_cli.errors import ValueRefusal
from surgery_cli.tree.dtypes import integer_range
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.advice import worded

LARGEST_EXACT: Final = 2**53
"""Up to here float64 holds every integer."""


class FromIntegers(Kernel, frozen=True, tag="from_integers"):
    """Integers as float64, exactly."""

    def compute(self, blocks: Sequence[Any], kit: Kit, at: Place) -> Any:
        (block,) = blocks
        low, high = integer_range(at.inputs[0].dtype)
        if max(-low, high) > LARGEST_EXACT:
            beyond = kit.apply(
                lambda x: (x > LARGEST_EXACT) | (x < max(low, -LARGEST_EXACT)), block
            )
            _refuse(
                beyond,
                at,
                f"between {-LARGEST_EXACT:,} and {LARGEST_EXACT:,}, as float64 holds them",
            )
        return kit.cast(block, "float64")


class ToIntegers(Kernel, frozen=True, tag="to_integers"):
    """Floats as integers: the nearest, and of two that are as near the even one."""

    def compute(self, blocks: Sequence[Any], kit: Kit, at: Place) -> Any:
        (block,), dtype = blocks, at.output.dtype
        low, high = integer_range(dtype)
        low, high = max(low, -LARGEST_EXACT), min(high, LARGEST_EXACT)
        whole = kit.apply(kit.xp.rint, block)
        _refuse(
            kit.apply(lambda x: ~((x >= low) & (x <= high)), whole),
            at,
            f"between {low:,} and {high:,}",
        )
        return kit.cast(whole, dtype)


def _refuse(beyond: Any, at: Place, where: str) -> None:
    """Raise where integers would not be exact any more, or are none."""
    count = int(beyond.sum())
    if count:
        raise ValueRefusal(
            f"{count:,} values of '{at.path}' are beyond what is computed with integers",
            why=f"{at.output.dtype if at.output.dtype != 'float64' else at.inputs[0].dtype} holds them {where}",
            fix=worded(
                "leave the leaf out with {except}, or edit it in a script that knows what they mean"
            ),
            path=str(at.path),
        )


def with_dtype(recipe: Recipe, spec: LeafSpec, seen: LeafSpec, path: LeafPath) -> Recipe:
    """What an edit made of a leaf like ``spec`` that it saw as ``seen``: integers that were computed as floats."""
    return recipe if seen is spec else Made(ToIntegers(), (recipe,), spec, path)
