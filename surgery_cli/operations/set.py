"""Change a number that stands alone: a step count, a learning rate, a temperature."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from surgery_cli.draft.effect import Effect, Sets
from surgery_cli.draft.kernel import Kernel
from surgery_cli.draft.kernels.fill import Fill
from surgery_cli.draft.settings import check_finite, check_fits
from surgery_cli.errors import PlanError
from surgery_cli.operations.base import LeafOperation
from surgery_cli.optimizer.follow.states import States
from surgery_cli.tree.dtypes import is_floating, is_integer
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.words.advice import worded

_HOLDS_A_NUMBER = (LeafKind.ARRAY, LeafKind.NUMPY, LeafKind.SCALAR)


class Set(LeafOperation, tag="set", kw_only=True, frozen=True):
    """Give a leaf with one element another value: a step counter, a learning rate.

    A step counter of the optimizer goes back to its start only if the same plan resets every slot that it drives.
    A learning rate that a schedule gives is refused: the next step would overwrite it.
    """

    to: Annotated[
        bool | int | float,
        Meta(description="The new value; integers and truth values must be held exactly."),
    ]

    example: ClassVar[str] = "- op: set\n  at: step\n  to: 0\n"

    def check_values(self) -> None:
        super().check_values()
        check_finite(self.to, "to")

    def output(self, spec: LeafSpec) -> LeafSpec:
        if spec.kind not in _HOLDS_A_NUMBER or spec.size != 1:
            raise PlanError(
                f"set does not apply to {spec.type_text}",
                why="it changes a single number: an array with one element, or a Python number",
                fix="`replace` with a number fills whole arrays; `surgery inspect --optimizer` lists step counters",
            )
        if isinstance(self.to, bool) != (spec.dtype == "bool"):
            raise PlanError(
                worded("{to: {}} does not fit {}", str(self.to).lower(), spec.type_text),
                why="a flag is true or false, a number is neither",
                field="to",
            )
        if not isinstance(self.to, bool):
            if not (is_integer(spec.dtype) or is_floating(spec.dtype)):
                raise PlanError(
                    f"set does not apply to {spec.type_text}",
                    why="it holds neither an integer nor a floating number",
                )
            check_fits(self.to, spec, "to")
        return spec

    def kernel(self, path: LeafPath, spec: LeafSpec, scene: States) -> Kernel:
        return Fill(float(self.to) if is_floating(spec.dtype) else self.to)

    @property
    def effect(self) -> Effect:
        return Sets(self.to)
