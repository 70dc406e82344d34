"""What metadata say of a leaf."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from surgery_cli.draft.recipe import Output
from surgery_cli.rules.contract import Named, Rule
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import has_dtype


class Shape(Rule, frozen=True):
    """The shape of every leaf."""

    shape: Annotated[
        tuple[Annotated[int, Meta(ge=-1)], ...],
        Meta(description="The shape of every leaf, as `64,10`; -1 for any length."),
    ]

    @property
    def text(self) -> str:
        return f"shape [{','.join(map(str, self.shape))}]"

    def breach(self, path: LeafPath, output: Output, named: Named) -> str:
        spec = output.spec
        is_so = (
            spec.has_array
            and len(spec.shape) == len(self.shape)
            and all(n in (-1, there) for n, there in zip(self.shape, spec.shape, strict=True))
        )
        return "" if is_so else f"it is {spec.type_text}"


class Dtype(Rule, frozen=True):
    """The dtype of every leaf."""

    dtype: Annotated[
        str, Meta(description="The dtype of every leaf: `floating`, `bfloat16`, `int*`, …")
    ]

    @property
    def text(self) -> str:
        return f"dtype {self.dtype}"

    def breach(self, path: LeafPath, output: Output, named: Named) -> str:
        spec = output.spec
        return "" if has_dtype(spec, self.dtype) else f"it is {spec.type_text}"
