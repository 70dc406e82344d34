"""What is tried: optimizers in surroundings, gradients, edits, and what surgery is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Final, NamedTuple

import numpy as np

from tests.oracle.optimizers import NAMES, SURROUNDINGS

SEEDS: Final = (0, 1, 2)
STEPS: Final = (2, 4, 9)
"""How long is trained."""
BRIEFLY: Final = 3
"""How long at most in a sample: so many steps fill every slot, those behind an accumulation too."""
SIZES: Final = (1e-3, 1.0, 1e3)
EDITS: Final = ("one leaf", "all leaves", "negative", "array", "normalize axis", "row and column")
TOLD: Final = ("nothing", "kind", "script")
COLUMNS: Final[tuple[Sequence[object], ...]] = (NAMES, SURROUNDINGS, SEEDS, SIZES, EDITS, TOLD)
IMPOSSIBLE: Final[Mapping[str, Sequence[str]]] = {
    "lbfgs": ("mask",),  # its function takes all params
    "linesearch": ("mask",),
    "sophia": ("mask",),
    "dpsgd": ("mask", "clip"),  # its gradients have an axis of examples
    "private": ("mask", "clip"),
    "monitor": ("MultiSteps",),  # its state changes its structure
    "measure_with_ema": ("MultiSteps",),
}
"""Parts of names of optimizers, and the surroundings in which optax itself does not train them."""


class Case(NamedTuple):
    """One edit of one trained state.

    ``size`` is that of the gradients, ``edit`` what is scaled by what, ``told`` what surgery is told of the optimizer.
    ``steps`` is how long it is trained at most.
    """

    optimizer: str
    surrounding: str
    seed: int
    size: float
    edit: str
    told: str
    steps: int = max(STEPS)

    def __str__(self) -> str:
        return "; ".join(map(str, self))


def is_possible(name: str, surrounding: str) -> bool:
    """False where optax does not train the optimizer so."""
    return not any(part in name and surrounding in no for part, no in IMPOSSIBLE.items())


def every_case() -> Iterator[Case]:
    """All of them, those of one training one after the other; a script is tried out once for each training."""
    for number, row in enumerate(product(NAMES, SURROUNDINGS, SEEDS, SIZES)):
        if is_possible(*row[:2]):
            for place, edit in enumerate(EDITS):
                told = TOLD if place == number % len(EDITS) else TOLD[:2]
                yield from (Case(*row, edit, one) for one in told)


def pairwise(seed: int) -> list[Case]:
    """A sample in which every two values of two columns meet: each optimizer once in every surrounding, briefly."""
    draws = np.random.default_rng(seed)
    rows = len(SURROUNDINGS)
    found = []
    for name in NAMES:
        around = [one if is_possible(name, one) else "plain" for one in SURROUNDINGS]
        seeds, sizes, edits = (
            [c[i % len(c)] for i in draws.permutation(rows)] for c in (SEEDS, SIZES, EDITS)
        )
        told = map(str, draws.permutation([*TOLD, *TOLD[:2], TOLD[0]]))  # a trial takes longest
        columns = ([name] * rows, around, seeds, sizes, edits, told)
        found += [Case(*row, steps=BRIEFLY) for row in zip(*columns, strict=True)]
    return found


def missing_pairs(cases: Sequence[Case]) -> set[tuple[object, object]]:
    """Pairs of values that could meet and do so in none of the cases."""
    columns = list(combinations(range(len(COLUMNS)), 2))
    found = {(case[i], case[j]) for case in cases for i, j in columns}
    every = {pair for i, j in columns for pair in product(COLUMNS[i], COLUMNS[j])}
    never = {pair for pair in product(NAMES, SURROUNDINGS) if not is_possible(*pair)}
    return every - found - never
