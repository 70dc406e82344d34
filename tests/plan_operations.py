"""Operations of every shape that a plan must read, small enough to see at a glance."""

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from surgery_cli.errors import PlanError
from surgery_cli.operations.base import Operation


class Scale(Operation, tag="scale"):
    """Multiply leaves.

    A second paragraph.
    """

    by: Annotated[float | str, Meta(description="Factor, or a file of factors.")]
    axis: Annotated[int | tuple[int, ...] | None, Meta(description="Axis, or axes.")] = None
    path_fields: ClassVar[tuple[str, ...]] = ("by",)


class Norm(Operation, tag="norm"):
    """Scale leaves to a norm."""

    kind: Annotated[Literal["l1", "l2"], Meta(description="Which norm.")] = "l2"
    axes: Annotated[tuple[int, ...], Meta(description="Axes to take it over.")] = ()
    weights: dict[str, float] = msgspec.field(default_factory=dict)


class Put(Operation, tag="put"):
    """Put other values in the place of leaves."""

    with_: Annotated[int | float | str, Meta(description="A number or where to look.")] = (
        msgspec.field(name="with")
    )
    path_fields: ClassVar[tuple[str, ...]] = ("with",)


class Move(Operation, tag="move"):
    """Give leaves other paths."""

    to: str = ""
    moves: dict[str, str] = msgspec.field(default_factory=dict)
    instead_of_at: ClassVar[tuple[str, ...]] = ("moves",)

    def __post_init__(self):
        if self.to and self.moves:
            raise PlanError("`to` and `moves` cannot stand together", field="moves")


class Convert(Operation, tag="convert"):
    """Change the dtype of leaves."""

    to: str
    selects_everything_without_at: ClassVar[bool] = True


KINDS = {"scale": Scale, "norm": Norm, "put": Put, "move": Move, "convert": Convert}
