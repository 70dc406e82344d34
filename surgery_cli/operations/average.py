"""Average leaves over several checkpoints."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from surgery_cli.draft import LeafRef, Operand
from surgery_cli.errors import Gathering, PlanError
from surgery_cli.operations.base import Kit, LeafOperation, Place, Scene, Source
from surgery_cli.operations.factors import find_leaf
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec, is_complex, is_floating


class Average(LeafOperation, tag="average", kw_only=True, frozen=True):
    """Average leaves over several checkpoints; without a pattern, every floating leaf, optimizer state included.

    The checkpoint that is edited is the first member, and everything that is not averaged comes from it. Sums are
    taken in float64 and rounded once, to the leaf's own dtype. Memory holds one block of one member at a time.

    Source: Izmailov et al., Averaging Weights Leads to Wider Optima and Better Generalization; Wortsman et al.,
    Model soups.
    """

    with_: Annotated[
        str | tuple[str, ...],
        Meta(description="The other members: checkpoints, or names in `sources`."),
    ] = msgspec.field(name="with", default=())
    steps: Annotated[
        str,
        Meta(
            pattern=r"^(\d+\.\.\d+)?$",
            description="`A..B`: the steps from A to B of the run in `with`, or else of this run, are members.",
        ),
    ] = ""
    weights: Annotated[
        tuple[float, ...],
        Meta(
            description="One for each member, this checkpoint first; they are divided by their sum."
        ),
    ] = ()

    example: ClassVar[str] = "- op: average\n  at: params\n  with: runs/other\n  weights: [3, 1]\n"
    selects_everything_without_at: ClassVar[bool] = True
    default_policy: ClassVar[str] = "warm"
    path_fields: ClassVar[tuple[str, ...]] = ("with",)

    def selectable(self, spec: LeafSpec) -> bool:
        if self.patterns:
            return super().selectable(spec)
        return is_floating(spec.dtype) and spec.kind in (LeafKind.ARRAY, LeafKind.NUMPY)

    def operands(self, path: LeafPath, spec: LeafSpec, scene: Scene) -> tuple[Operand, ...]:
        gathering = Gathering()
        found: list[Operand] = []
        members = self._members(scene)
        self._check_weights(1 + len(members))
        for number, text in enumerate(members, 1):
            with gathering.catching(path=str(path)):
                name, source = scene.open(text)
                other = path if path in source.tree else _same(text, source, path)
                _check_fits(path, spec, text, source.tree[other])
                found.append(Operand(str(number), LeafRef(name, other), source.tree[other]))
        gathering.raise_grouped()
        return tuple(found)

    def _members(self, scene: Scene) -> list[str]:
        """The addresses of all members but the first."""
        named = [self.with_] if isinstance(self.with_, str) else list(self.with_)
        if not self.steps:
            if named:
                return named
            raise PlanError(
                "`average` has only one member",
                why="neither `with` nor `steps` names another checkpoint",
                fix="name the others in `with`, or a range of this run in `steps: 100..500`",
                field="with",
            )
        if len(named) > 1:
            raise PlanError(
                f"`steps` takes the steps of one run, and `with` names {len(named)} checkpoints",
                fix="name the run alone, or name each step: `run@100`, `run@200`",
                field="steps",
            )
        first, last = map(int, self.steps.split(".."))
        run = scene.open(named[0])[1] if named else scene.source
        own = None if named else scene.source.step
        addresses = [
            address
            for number, address in run.steps.items()
            if first <= number <= last and number != own
        ]
        if not addresses:
            has = ", ".join(map(str, run.steps)) or "none"
            raise PlanError(
                f"no step lies in {self.steps}"
                + ("" if named else " beside the one that is edited"),
                why=f"the run has these steps: {has}",
                fix="give a range that holds some of them",
                field="steps",
            )
        return addresses

    def _check_weights(self, count: int) -> None:
        if not self.weights:
            return
        if len(self.weights) != count:
            raise PlanError(
                f"{len(self.weights)} weights for {count} members",
                why="the checkpoint that is edited is the first member",
                fix="give one weight for each member, or none for equal ones",
                field="weights",
            )
        total = math.fsum(self.weights)
        if not math.isfinite(total) or total == 0:
            raise PlanError(
                f"the weights add up to {total}",
                why="they are divided by their sum",
                fix="give weights whose sum is a number other than 0",
                field="weights",
            )

    def compute(self, block: Any, kit: Kit, at: Place) -> Any:
        first, *others = self.weights or (1.0,) * (1 + len(at.operands))
        total = kit.add_scaled(None, block, first)
        for name, weight in zip(at.operands, others, strict=True):
            total = kit.add_scaled(total, kit.put(at.operands[name], at.before), weight)
        # divided once, at the end: the mean of equal members is exactly what each of them is
        return kit.quotient(total, math.fsum((first, *others)), at.after.dtype)


def _same(text: str, source: Source, path: LeafPath) -> LeafPath:
    """The leaf of a member that prints as ``path``."""
    return find_leaf(text, source, str(path), field="with")


def _check_fits(path: LeafPath, spec: LeafSpec, text: str, other: LeafSpec) -> None:
    is_same_field = (is_floating(spec.dtype), is_complex(spec.dtype)) == (
        is_floating(other.dtype),
        is_complex(other.dtype),
    )
    if other.shape != spec.shape or not is_same_field:
        raise PlanError(
            f"'{path}' of '{text}' cannot be averaged with the source's",
            why=f"it is {other.type_text}, the source's {spec.type_text}",
            fix="members must agree in shape and be floating; leave the leaf out with `except`",
            field="with",
        )
