"""What fine-tunes have learnt beside what they began with: differences, thinned out, and added to it again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

from surgery_cli.draft.kernel import Kernel, Kit, Piece, Place, Window
from surgery_cli.draft.kernels.lost_values import rounded_sum
from surgery_cli.draft.kernels.weighted_sum import WeightedSum
from surgery_cli.tree.specs import LeafSpec


class Difference(Kernel, frozen=True, tag="difference"):
    """The first input minus the second, in float64, rounded once to the output's dtype."""

    def compute(self, blocks: Sequence[Any], kit: Kit, at: Place) -> Any:
        leaf, base = blocks
        other = kit.in_float64(base, lambda x: x)
        return kit.cast(kit.in_float64(leaf, lambda x: x - other), at.output.dtype)


class DropRandom(Kernel, frozen=True, tag="drop_random"):
    """Each element times ``1 / density`` with the probability ``density``, else 0.

    What is no finite number stays: dropped, it would be lost without a word. Which ones go hangs on (seed, member,
    path, place) only, so that each member loses others.

    Source: Yu et al., Language Models are Super Mario.
    """

    density: float
    seed: int
    member: int

    def compute(self, blocks: Sequence[Any], kit: Kit, at: Place) -> Any:
        digest = hashlib.sha256(f"{self.seed}:{self.member}".encode()).digest()
        drawn = kit.draw("uniform", int.from_bytes(digest[:8], "big"), at)

        def kept(x: Any) -> Any:
            is_kept = (drawn < self.density) | ~kit.xp.isfinite(x)
            return kit.xp.where(is_kept, x / self.density, 0.0)

        return kit.cast(kit.in_float64(blocks[0], kept), at.output.dtype)


class Negation(Kernel, frozen=True, tag="not"):
    """True where the input is false."""

    def compute(self, blocks: Sequence[Any], kit: Kit, at: Place) -> Any:
        return kit.apply(lambda mask: ~mask, blocks[0])


class AddDeltas(WeightedSum, frozen=True, tag="add_deltas"):
    """The first input plus each of the others times its weight."""

    def weights_of(self, at: Place) -> tuple[float, ...]:
        return (1.0, *self.weights)


class _Sums(NamedTuple):
    """Of what is above 0, and of what is below, the sum, float64, and who it is of: [the block's shape] each.

    Who it is of: a bit for each of the others, eight in a uint8, which takes a part of what a sum of weights would.
    """

    above: Any
    below: Any
    who_above: tuple[Any, ...]
    who_below: tuple[Any, ...]


class AddElected(Kernel, frozen=True, tag="add_elected"):
    """The first input plus, element by element, what those of the others say that agree with the elected sign.

    The sign is that of their sum by weights, above 0 if that is 0. Those that agree are added by their weights,
    divided by the sum of these if ``is_mean``, and multiplied by ``scale``.

    Source: Yadav et al., TIES-Merging: Resolving Interference When Merging Models.
    """

    weights: tuple[float, ...]
    scale: float
    is_mean: bool = True
    keeps_inputs: ClassVar[bool] = False

    def state_bytes(self, inputs: Sequence[LeafSpec], output: LeafSpec) -> int:
        return 2 * 8 + 2 * self._words

    @property
    def _words(self) -> int:
        """So many uint8 say who agrees; nobody asks where nothing is divided by their weights."""
        return -(-len(self.weights) // 8) if self.is_mean else 0

    def pieces(self, out: Window, inputs: Sequence[LeafSpec], output: LeafSpec) -> Iterator[Piece]:
        """The first input last: nothing is added to it before all is elected."""
        for number in (*range(1, len(inputs)), 0):
            yield Piece(number, out, out)

    def begin(self, kit: Kit, at: Place) -> Any:
        return None

    def add(self, state: Any, number: int, block: Any, kit: Kit, at: Place) -> Any:
        if number == 0:
            return kit.in_float64(block, lambda x: x + kit.apply(self._elected, kit.xp, *state))
        weight = self.weights[number - 1]
        term = kit.in_float64(block, lambda x: x * weight)
        xp = kit.xp
        if state is None:
            zero = kit.apply(xp.zeros_like, term)
            nobody = (kit.apply(lambda x: xp.zeros(x.shape, "uint8"), term),) * self._words
            state = _Sums(zero, zero, nobody, nobody)

        def added(above: Any, below: Any, who_above: Any, who_below: Any) -> _Sums:
            return _Sums(
                above + xp.where(term < 0, 0.0, term),  # NaN in both
                below + xp.where(term > 0, 0.0, term),
                _with(who_above, number - 1, term > 0),
                _with(who_below, number - 1, term < 0),
            )

        return kit.apply(added, *state)

    def _elected(self, xp: Any, above: Any, below: Any, who_above: Any, who_below: Any) -> Any:
        is_above = above + below >= 0
        mixed = xp.where(is_above, above, below)
        if self.is_mean:
            who = [xp.where(is_above, *words) for words in zip(who_above, who_below, strict=True)]
            total = xp.zeros_like(mixed)
            for number, weight in enumerate(self.weights):
                total = total + xp.where(who[number // 8] >> (number % 8) & 1, weight, 0.0)
            mixed = mixed / xp.where(total == 0, 1.0, total)
        return self.scale * mixed

    def result(self, state: Any, kit: Kit, at: Place) -> Any:
        return rounded_sum(state, kit, at)


def _with(words: tuple[Any, ...], number: int, is_one: Any) -> tuple[Any, ...]:
    """The words, in which a bit is set for the one of that number wherever ``is_one``."""
    if not words:
        return ()
    word, bit = divmod(number, 8)
    return (*words[:word], words[word] | (is_one.astype("uint8") << bit), *words[word + 1 :])
