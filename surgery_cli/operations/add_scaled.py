"""Add other leaves, or a number, times a number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from surgery_cli.draft.effect import Effect, Shifts
from surgery_cli.draft.expression import LeafRef, Made, Recipe, Stored, made
from surgery_cli.draft.kernels.fill import Fill
from surgery_cli.draft.kernels.sums import Plus
from surgery_cli.draft.recipe import Draft, is_numeric
from surgery_cli.draft.settings import check_finite
from surgery_cli.draft.source_leaves import counterpart, split_entry
from surgery_cli.errors import Gathering, PlanError
from surgery_cli.operations.base import Scene
from surgery_cli.operations.numeric import Numeric, as_floats, is_integers
from surgery_cli.operations.partners import Missing, Partnered, PartnerPath
from surgery_cli.operations.stacked_shapes import before_else, stacking_advice
from surgery_cli.tree.dtypes import is_complex
from surgery_cli.tree.paths import LeafPath, Selection
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.tree.targets import check_references
from surgery_cli.words.advice import worded


class AddScaled(Partnered, Numeric, tag="add-scaled", kw_only=True, frozen=True):
    """Add leaves of another checkpoint, of this one or of a file, times a number, to leaves of the same shape.

    A task vector, an update that was stored, a direction: `params += scale * other`. Or a number, as the 1 that some
    norms add to their weights by themselves, and others do not. Sums are taken in float64 and
    rounded once, to the leaf's own dtype. Copies of params in the optimizer state get the same; nothing tells how other
    slots follow: they stay.
    """

    with_: Annotated[
        float | str,
        Meta(
            description="What is added: a checkpoint, a name in `sources`, a file (`w.npy`, `f.npz:ENTRY`,"
            " `f.safetensors:ENTRY`), whose only array serves every leaf; or a number. Left out, leaves of this"
            " checkpoint."
        ),
    ] = msgspec.field(name="with", default="")
    from_: PartnerPath = msgspec.field(name="from", default="")
    scale: Annotated[
        float, Meta(description="By what it is multiplied, dimensionless; below 0 to subtract.")
    ] = 1.0
    missing: Missing = "error"

    example: ClassVar[str] = (
        "- op: add-scaled\n  at: params\n  with: runs/other\n  from: params\n  scale: 0.5\n"
    )
    path_fields: ClassVar[tuple[str, ...]] = ("with",)

    def check_values(self) -> None:
        super().check_values()
        check_finite(self.scale, "scale")
        check_references(self.from_, self.patterns, "from")
        if not isinstance(self.with_, str):
            self._check_number(self.with_)
        elif not self.with_ and not self.from_:
            raise PlanError(
                "`add-scaled` needs something to add",
                why=worded("neither {with} nor {from} names it"),
                fix=worded(
                    "name a checkpoint or a file in {with}, or leaves of this one in {from}"
                ),
                field="with",
            )

    def _check_number(self, number: float) -> None:
        check_finite(number, "with")
        if self.from_:
            raise PlanError(
                worded("{from} says where leaves stand, and {with} is a number"),
                fix=worded("take {from} out"),
                field="from",
            )

    @property
    def effect(self) -> Effect:
        return Shifts()

    def meet(self, path: LeafPath, named: Selection, draft: Draft, scene: Scene) -> None:
        if isinstance(self.with_, str):
            self._place(path, self.with_, named, draft, scene)

    def maker(
        self, named: Selection, draft: Draft, scene: Scene
    ) -> Callable[[LeafPath, Recipe], Recipe]:
        others: dict[LeafPath, Recipe] = {}
        gathering = Gathering()
        for path in named:
            with gathering.catching(path=str(path)):
                spec = self.output(draft.leaves[path].spec)
                others[path] = self._other(path, spec, named, draft, scene)
        gathering.raise_if_any()
        kernel = Plus(self.scale)
        return lambda path, recipe: made(kernel, (recipe, others[path]), recipe.spec, path)

    def _place(
        self, path: LeafPath, text: str, named: Selection, draft: Draft, scene: Scene
    ) -> tuple[LeafPath, Recipe]:
        """Where that stands, and what it is."""
        if not text:
            found = counterpart(path, self.from_, "this checkpoint", draft, named)
            return found, draft.leaves[found].recipe
        file, entry = split_entry(text)
        name, source = scene.open(file)
        found = counterpart(path, entry or self.from_, file, source, named)
        return found, Stored(LeafRef(name, found), source.tree[found])

    def _other(
        self, path: LeafPath, spec: LeafSpec, named: Selection, draft: Draft, scene: Scene
    ) -> Recipe:
        """What is added to a leaf."""
        if not isinstance(self.with_, str):
            wide = LeafSpec(kind=LeafKind.NUMPY, shape=spec.shape, dtype="float64")
            return Made(Fill(self.with_), (), wide, path)
        found, other = self._place(path, self.with_, named, draft, scene)
        if self.integers and is_integers(other.spec):
            other = as_floats(other, found)
        is_wider = is_complex(other.spec.dtype) and not is_complex(spec.dtype)
        is_number = is_numeric(other.spec) and other.spec.kind is not LeafKind.KEY
        if other.spec.shape != spec.shape or is_wider or not is_number:
            raise PlanError(
                f"'{found}' cannot be added to '{path}'",
                why=f"it is {other.spec.type_text}, the leaf {spec.type_text}",
                fix=worded(
                    "shapes must agree, and both be floating; {}leave others out with {except}",
                    before_else(stacking_advice(spec, other.spec)),
                ),
                field="from" if self.from_ else "with",
            )
        return other
