"""Change the dtype of leaves."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec
from msgspec import Meta

from surgery_cli.draft.effect import Effect, Keeps
from surgery_cli.draft.expression import Made
from surgery_cli.draft.kernel import Kernel
from surgery_cli.draft.kernels.convert import Convert
from surgery_cli.draft.recipe import Draft, Output, is_numeric
from surgery_cli.draft.undo import Homes, Undo
from surgery_cli.errors import PlanError
from surgery_cli.operations.base import LeafOperation, Scene
from surgery_cli.optimizer.follow.states import States
from surgery_cli.tree.dtypes import (
    COMPLEX_PARTS,
    FLOATS,
    INTEGER_BITS,
    family,
    integer_range,
    is_complex,
    is_floating,
    is_integer,
)
from surgery_cli.tree.nearness import nearest
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.words.advice import worded
from surgery_cli.words.lists import listed
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage

_UNSTORABLE = ("float8_e4m3", "float6_e2m3fn", "float6_e3m2fn", "uint4", "uint2")
"""What NumPy has with ml_dtypes, and TensorStore does not."""
_NO_NUMBERS = ("float8_e8m0fnu", "float4_e2m1fn", "int2")
"""What holds scales of other numbers, or so few numbers that a cast leaves nothing."""
_SHORT = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "half": "float16",
    "fp32": "float32",
    "f32": "float32",
}
"""What other tools call dtypes, and no slip of the pen for them."""
_MOST_NAMED = 6
STORABLE: Final = tuple(
    name
    for name in (*FLOATS, *COMPLEX_PARTS, *INTEGER_BITS)
    if name not in (*_UNSTORABLE, *_NO_NUMBERS)
)


def check_storable(dtype: str, field: str, verb: str = "have") -> None:
    """See that a leaf can have a dtype.

    Raises:
        PlanError: there is none of this name, or no store holds it.
    """
    if dtype not in STORABLE:
        short = _SHORT.get(dtype.casefold())
        close = [short] if short else nearest(dtype, STORABLE) or ["float32", "bfloat16"]
        raise PlanError(
            f"'{dtype}' is no dtype that a leaf can {verb}",
            why="no store holds it" if dtype in _UNSTORABLE else "",
            fix=f"perhaps {listed(close, word='or')}",
            field=field,
        )


class Cast(LeafOperation, tag="cast", kw_only=True, frozen=True):
    """Change the dtype of leaves; without a pattern, of every floating leaf, optimizer state included.

    Complex leaves and Python numbers stay as they are, and the preview names them. Of an optimizer's stored settings
    (`b2` of `inject_hyperparams`), one is refused that rounding makes 0 or 1: `except` leaves them as they are.
    """

    to: Annotated[str, Meta(description="The new dtype: `bfloat16`, `float32`, `float8_e4m3fn`, …")]
    underflow: Annotated[
        Literal["error", "keep"],
        Meta(
            description="What to do where values that count become 0: refuse, or keep these zeros. They count in a leaf"
            " without negative values (a second moment, by whose root training divides), and where they are larger"
            " than the rounding of the largest value. Subnormal ones do not count: devices take them for 0."
        ),
    ] = "error"

    example: ClassVar[str] = "- op: cast\n  at: params\n  where_dtype: floating\n  to: bfloat16\n"
    selects_everything_without_at: ClassVar[bool] = True

    def selectable(self, spec: LeafSpec) -> bool:
        if self.patterns:
            return super().selectable(spec)
        return is_floating(spec.dtype) and spec.kind in (LeafKind.ARRAY, LeafKind.NUMPY)

    def leaves_alone(self, spec: LeafSpec) -> bool:
        return spec.dtype == self.to and spec.kind in (LeafKind.ARRAY, LeafKind.NUMPY)

    def check_values(self) -> None:
        super().check_values()
        check_storable(self.to, "to", "be cast to")

    def output(self, spec: LeafSpec) -> LeafSpec:
        if spec.kind not in (LeafKind.ARRAY, LeafKind.NUMPY):
            raise PlanError(
                f"cast does not apply to {spec.type_text}",
                why="only arrays have a dtype to change; Python numbers, strings and keys have none",
                fix=worded("name the arrays, or leave this leaf out with {except}"),
            )
        if family(spec.dtype) != family(self.to):
            raise PlanError(
                f"{spec.type_text} is not cast to {self.to}",
                why="a cast stays among floats, among integers, or among complex numbers",
                fix=_advice(spec.dtype, self.to),
            )
        if is_integer(spec.dtype) and not self.where_dtype.startswith(("int", "uint")):
            raise PlanError(
                f"{spec.type_text} is an integer leaf",
                why="counters and ids are cast only where the edit says that it means integers",
                fix=worded("add {where_dtype: {}}", _integers(spec.dtype)),
            )
        return recast(spec, self.to)

    @property
    def effect(self) -> Effect:
        return Keeps()

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        after = super().rewrite(draft, scene)
        if self.patterns or self.where_dtype:
            return after
        excluded = scene.select(self, draft).excluded if self.exceptions else ()
        left = {
            str(path): output.spec.type_text
            for path, output in draft.leaves.items()
            if is_numeric(output.spec) and not self.selectable(output.spec)
            if path not in excluded
        }
        if not left:
            return after
        named = listed([f"'{path}' ({what})" for path, what in left.items()], _MOST_NAMED)
        said = "these are not cast, being complex or Python numbers, and stay as they are"
        return after.noting(Consequence(DocsPage.CAST, f"{said}: {named}"))

    def undo(self, before: Draft, after: Draft, home: Homes) -> Undo:
        """The old dtypes again; integers that became wider come back as they were, other values from the source."""
        changed = {p: o for p, o in before.leaves.items() if after.leaves[p] is not o}
        by_dtypes: dict[tuple[str, str], list[LeafPath]] = {}
        for path, output in changed.items():
            if output.spec.dtype != (now := after.leaves[path].spec.dtype):
                meant = _integers(now) if is_integer(now) else ""
                by_dtypes.setdefault((output.spec.dtype, meant), []).append(path)
        edits: list[dict[str, Any]] = []
        for (dtype, meant), paths in by_dtypes.items():
            condition = {"where_dtype": meant} if meant else {}
            at = [path.exact_pattern for path in paths]
            said = {"twins": "literal", "underflow": "keep"}
            edits.append({"op": "cast", "at": at, "to": dtype, **said, **condition})
        lost = tuple(p for p, old in changed.items() if not _is_held(old, after.leaves[p]))
        return Undo(lost=lost, edits=tuple(edits))

    def kernel(self, path: LeafPath, spec: LeafSpec, scene: States) -> Kernel:
        return Convert(keeps_zeros=self.underflow == "keep")


def _is_held(old: Output, new: Output) -> bool:
    """True if a leaf was cast, and nothing else, to a dtype that holds all of its values; slots may have been reset."""
    recipe = new.recipe
    if not isinstance(recipe, Made) or not isinstance(recipe.kernel, Convert):
        return False
    return recipe.inputs[0] is old.recipe and _holds(new.spec, old.spec)


def _holds(wide: LeafSpec, narrow: LeafSpec) -> bool:
    """True if integers of one dtype are all held by the other; of floats, a NaN may change its bits."""
    if not is_integer(wide.dtype) or not is_integer(narrow.dtype):
        return wide.dtype == narrow.dtype
    (low, high), (least, most) = integer_range(wide.dtype), integer_range(narrow.dtype)
    return low <= least and most <= high


def recast(spec: LeafSpec, dtype: str) -> LeafSpec:
    """The spec with another dtype; chunks stay as they are."""
    return msgspec.structs.replace(spec, dtype=dtype, stored_bytes=None)


def _integers(dtype: str) -> str:
    """What `where_dtype` calls integers like these."""
    return "uint*" if dtype.startswith("uint") else "int*"


def _advice(dtype: str, to: str) -> str:
    """What to do where a dtype is not cast to one of another family."""
    if is_floating(dtype):
        return (
            "choose a floating dtype: bfloat16, float16, float8_e4m3fn, …; a cast does not quantize"
        )
    if is_complex(dtype):
        return worded(
            "choose {}, or leave these leaves out with {except}", listed(COMPLEX_PARTS, word="or")
        )
    if is_floating(to):
        return worded(
            "add {where_dtype: floating} to skip other leaves, or name the leaves more closely"
        )
    return worded("name the leaves more closely, or leave this one out with {except}")
