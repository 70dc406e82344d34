"""What metadata say of a leaf."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Final

from msgspec import Meta

from surgery_cli.draft.recipe import Output
from surgery_cli.errors import PlanError
from surgery_cli.rules.bounds import Bounds
from surgery_cli.rules.contract import Named, Rule
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import has_dtype
from surgery_cli.words.advice import worded

_LENGTHS: Final = re.compile(r"[0-9]+\.\.[0-9]*|\.\.[0-9]+")


class Shape(Rule, frozen=True):
    """The shape of every leaf."""

    shape: Annotated[
        tuple[Annotated[int, Meta(ge=-1)] | Annotated[str, Meta(examples=["10..40"])], ...],
        Meta(
            description="The shape of every leaf, as `64,10`; -1 for any length, `..40` for at most 40, `10..` for at"
            " least 10."
        ),
    ]

    needs_values: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _ = self._lengths

    @property
    def text(self) -> str:
        return f"shape [{','.join(map(str, self.shape))}]"

    def breach(self, path: LeafPath, output: Output, named: Named) -> str:
        spec = output.spec
        is_so = (
            spec.has_array
            and len(spec.shape) == len(self.shape)
            and all(there in n for n, there in zip(self._lengths, spec.shape, strict=True))
        )
        return "" if is_so else f"it is {spec.type_text}"

    @property
    def _lengths(self) -> list[Bounds]:
        """Of each axis. Raises PlanError: a text holds no bounds, or no length lies within."""
        given: Any = self.shape  # what is no list is refused with the plan
        return [_length(one) for one in given] if isinstance(given, list | tuple) else []


def _length(given: int | str) -> Bounds:
    if given == -1:
        return Bounds()
    if isinstance(given, str) and not _LENGTHS.fullmatch(given.strip()):
        raise PlanError(
            worded("{shape} takes lengths and bounds of them, not '{}'", given),
            fix="write `40`, `10..40`, `..40`, `10..`, or -1 for any length",
            field="shape",
        )
    return Bounds.of(given, "shape")


class Dtype(Rule, frozen=True):
    """The dtype of every leaf."""

    dtype: Annotated[
        str, Meta(description="The dtype of every leaf: `floating`, `bfloat16`, `int*`, …")
    ]

    needs_values: ClassVar[bool] = True

    @property
    def text(self) -> str:
        return f"dtype {self.dtype}"

    def breach(self, path: LeafPath, output: Output, named: Named) -> str:
        spec = output.spec
        return "" if has_dtype(spec, self.dtype) else f"it is {spec.type_text}"
