"""Average leaves over the steps of a run."""

from __future__ import annotations

from typing import ClassVar

from surgery_cli.operations.layered import Layered
from surgery_cli.operations.step_means import OverSteps
from surgery_cli.optimizer.follow.states import States


class Swa(OverSteps, tag="swa", kw_only=True, frozen=True):
    """Average leaves over steps of the run, all of equal weight; without a pattern, optimizer state included.

    The source is one of the steps, and everything that is not averaged comes from it. Of params alone, slots start
    warm. Batch statistics are those of other weights than the mean's: gather them anew, by passes over the data. Sums
    are taken in float64 and rounded once.

    Source: Izmailov et al., Averaging Weights Leads to Wider Optima and Better Generalization.
    """

    example: ClassVar[str] = "- op: swa\n  at: params\n  steps: 100..500\n"

    def member_weights(self, scene: States) -> tuple[Layered, ...]:
        return ()
