"""By what the product of a LoRA is multiplied: what an edit says, what a PEFT adapter says, and that they agree."""

from __future__ import annotations

import math
from typing import Final, NamedTuple, NoReturn

from surgery_cli.errors import PlanError
from surgery_cli.inputs.peft_names import NAME
from surgery_cli.operations.adapter_config import AdapterConfig
from surgery_cli.words.advice import FieldName, worded

_SAME: Final = 1e-6
"""How far apart, relatively, two scales may be that are the same but for the digits that were typed."""


class SaidScale(NamedTuple):
    """What an edit says; ``text`` is where its LoRA stands. See ``WithLora``."""

    scale: float | None
    alpha: float | str | None
    rslora: bool
    text: str

    def check_values(self) -> None:
        """See that the edit itself says at most one scale.

        Raises:
            PlanError: it says two, or half of one.
        """
        if self.scale is not None and self.alpha is not None:
            raise PlanError(
                worded("{scale} and {alpha} both say by what A·B is multiplied"),
                fix=worded("say one of them; {alpha} is divided by the rank"),
                field="alpha",
            )
        if self.rslora and self.alpha is None:
            raise PlanError(
                worded("{rslora} is about {alpha}, and that is not said"),
                why=worded("the scale is alpha divided by the root of the rank"),
                fix=worded("say {alpha: 16}, say; an adapter of PEFT's says both itself"),
                field="rslora",
            )

    def check(self, config: AdapterConfig | None) -> None:
        """See that one thing says the scale, the edit or the adapter.

        Raises:
            PlanError: none does, or two.
        """
        if isinstance(self.alpha, str) and config is not None:
            raise PlanError(
                worded("{alpha} names a leaf, and `{}` says by what A·B is multiplied", NAME),
                why=f"what '{self.text}' says is what it was trained with",
                fix=worded("leave {alpha} out"),
                field="alpha",
            )
        if self.scale is None and self.alpha is None and config is None:
            raise PlanError(
                "nothing says by what A·B is multiplied",
                why="only a folder of PEFT's has an `adapter_config.json` that does",
                fix=worded(
                    "say {scale: 1} (so does `nnx.LoRA`), or {alpha: 16}, which is divided by the rank"
                ),
                field="scale",
            )

    def by(self, tensor: str, rank: int, config: AdapterConfig | None) -> float:
        """By what the product is multiplied whose A is ``tensor``; a stored alpha comes on top.

        Raises:
            PlanError: the adapter's own file says something else.
        """
        said = self._alone(rank)
        if config is None:
            assert said is not None
            return said
        own = config.scale_of(tensor, rank)
        if said is not None and not math.isclose(said, own, rel_tol=_SAME):
            self._refuse(said, own)
        return own

    def _alone(self, rank: int) -> float | None:
        """What the edit itself says."""
        if self.scale is not None or self.alpha is None:
            return self.scale
        alpha = 1.0 if isinstance(self.alpha, str) else self.alpha
        return alpha / (math.sqrt(rank) if self.rslora else rank)

    def _refuse(self, said: float, own: float) -> NoReturn:
        field = "alpha" if self.scale is None else "scale"
        by, theirs = f"{said:.7g}", f"{own:.7g}"
        raise PlanError(
            worded("{alpha} with {rslora} multiplies A·B by {}, and `{}` by {}", by, NAME, theirs)
            if self.rslora
            else worded(
                "{} multiplies A·B by {}, and `{}` by {}", FieldName(field), by, NAME, theirs
            ),
            why=f"what '{self.text}' says is what it was trained with",
            fix=worded(
                "leave {} out, or name a copy of the tensors that stands without `{}`",
                FieldName(field),
                NAME,
            ),
            field=field,
        )
