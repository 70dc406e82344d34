"""Whether slots that were filled under one clock may go on under another: what the optimizer's next steps become."""

from __future__ import annotations

import math
from typing import Final

import msgspec

from surgery_cli.optimizer.follow.adam_steps import most_apart
from surgery_cli.optimizer.follow.decays import Decays
from surgery_cli.optimizer.follow.step_sizes import Sizes
from surgery_cli.tree.paths import LeafPath

USUAL_DECAY: Final = 0.999
"""No optax factory whose clock corrects for a decay has a larger one unless it is told to."""

_MOST: Final = 1.1
"""How far steps may be from those that the slots' own clock would give, as a factor."""

_CORRECTED: Final = 1.03
"""How far one correction may be from another where decays are taken to be usual; RAdam's rectification doubles it."""


class Clocked(msgspec.Struct, frozen=True):
    """A clock under which slots go on, and what it and their own have counted; None where nobody knows.

    ``decays`` are those of the slots, where they were tried out; ``sizes`` says for whom sizes of steps are told,
    ``there`` where their own clock stands in a donor.
    """

    path: LeafPath
    drives: str
    theirs: float | None
    ours: float | None
    decays: Decays | None = None
    sizes: Sizes = Sizes()
    there: LeafPath | None = None

    @property
    def is_sure(self) -> bool:
        """True if the next steps are as large as under the slots' own clock, whatever the decays.

        A moment of decay b is divided by 1 - b^n at step n. Of two clocks, that differs by the quotient of the counts
        at most, which b near 1 reaches; a decay that falls with the count does not differ more.
        """
        if self.theirs is None or self.ours is None:
            return False
        in_turn = self.drives in ("cycle", "memory")  # another count is another place
        return self.theirs == self.ours or (not in_turn and self._quotient(1.0) <= _MOST)

    @property
    def agrees(self) -> bool:
        """True if that holds for the decays, or all up to the usual one; see ``largest_decay``."""
        most = max(self._decays.first, self._decays.second)
        return self.is_sure or 0 < most <= self.largest_decay

    @property
    def _decays(self) -> Decays:
        return self.decays or Decays(0.9, USUAL_DECAY)

    @property
    def largest_decay(self) -> float:
        """Up to which decay the next steps are as large as under the slots' own clock; 0 if for none.

        >>> path = LeafPath(("count",))
        >>> few, many = Clocked(path, "bias_correction", 3, 2000), Clocked(path, "bias_correction", 5000, 90000)
        >>> few.agrees, many.agrees, round(many.largest_decay, 4)
        (False, True, 0.9992)
        """
        if not self.theirs or not self.ours or self.drives not in ("bias_correction", "first_step"):
            return 0.0
        decays = (1 - 10 ** (-n / 10) for n in range(80, 0, -1))
        return next((decay for decay in decays if self._quotient(decay) <= _CORRECTED), 0.0)

    def _quotient(self, decay: float) -> float:
        """The larger correction of a moment by the smaller, at the next step of both clocks."""
        few, many = sorted((max(self.theirs or 0, 0) + 1, max(self.ours or 0, 0) + 1))
        if decay == 1:
            return many / few
        return math.expm1(many * math.log(decay)) / math.expm1(few * math.log(decay))

    @property
    def _steps(self) -> float:
        """How large the next steps of Adam are at their most different, in those that its own clock would give."""
        return most_apart(self.theirs or 0, self.ours or 0, self.sizes.decays)[0]

    @property
    def shifted(self) -> str:
        """What comes of slots that stay while their clock is set to ``ours``."""
        if self.theirs is None or self.ours is None:
            return "how many steps they have counted is not known"
        said = f"they have counted {self.theirs:,.0f} steps, and it {self.ours:,.0f}"
        if self.drives != "bias_correction":
            return said
        if self.sizes.unknown:
            return f"{said}; {self.sizes.unknown}"
        large = f"{self._steps:.2g} times as large as usual ({self.sizes.decays.words})"
        return f"{said}, so that {self.sizes.condition}the next steps are {large}"

    @property
    def counts(self) -> str:
        """Both counts in words."""
        if self.theirs is None or self.ours is None:
            return f"what the clocks there and here ('{self.path}') have counted is not known"
        return f"it has counted {self.theirs:,.0f} there, and '{self.path}' {self.ours:,.0f} here"

    def sentence(self) -> str:
        """Both counts, and what the difference does where both sides go by the same settings."""
        counts = self.counts
        if self.theirs is None or self.ours is None or self.drives != "bias_correction":
            return counts
        if self.sizes.unknown:
            return f"{counts}; {self.sizes.unknown}"
        factor, start = self._steps, f"{counts}: {self.sizes.condition}"
        if 1 / _MOST < factor < _MOST:
            limit = f"{self.largest_decay:.4g}"
            return f"{start}with a decay above {limit} the next steps would be of another size than there"
        return f"{start}the next steps would be {factor:.2g} times as large as there ({self.sizes.decays.words})"
