"""Put other values in the place of leaves."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from surgery_cli.draft.effect import Effect, Keeps, Sets, Takes
from surgery_cli.draft.expression import LeafRef, Stored
from surgery_cli.draft.kernel import Kernel
from surgery_cli.draft.kernels.convert import converted
from surgery_cli.draft.kernels.fill import Fill
from surgery_cli.draft.recipe import Draft, Edited, Output
from surgery_cli.draft.settings import check_finite, check_fits
from surgery_cli.draft.source_leaves import counterpart, split_entry
from surgery_cli.errors import Gathering, PlanError, raise_all
from surgery_cli.operations.base import Scene
from surgery_cli.operations.new_shapes import Shape, check_shape, pattern_of, said, shaped
from surgery_cli.operations.partners import Missing, Partnered, PartnerPath
from surgery_cli.operations.stacked_shapes import stacking_advice
from surgery_cli.optimizer.follow.states import States
from surgery_cli.optimizer.follow.untold_trees import named_untold
from surgery_cli.tree.dtypes import is_complex, is_floating, is_integer
from surgery_cli.tree.paths import LeafPath, Selection
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.tree.targets import check_references
from surgery_cli.words.advice import worded


class Replace(Partnered, tag="replace", kw_only=True, frozen=True):
    """Put a number, the array of a file, or leaves of another checkpoint in the place of leaves.

    With another `shape` slots of the optimizer are what it starts a leaf of that shape with, unless a donor has them.
    """

    with_: Annotated[
        int | float | str,
        Meta(
            description="A number; a file (`w.npy`, `f.npz:ENTRY`, `f.safetensors:ENTRY`), whose only array serves"
            " every leaf; a checkpoint, or a name in `sources`."
        ),
    ] = msgspec.field(name="with")
    from_: PartnerPath = msgspec.field(name="from", default="")
    cast: Annotated[bool, Meta(description="Convert where the dtype there is another.")] = False
    shape: Shape = None
    missing: Missing = "error"

    example: ClassVar[str] = "- op: replace\n  at: params/Dense_0/bias\n  with: 0\n"
    path_fields: ClassVar[tuple[str, ...]] = ("with",)

    def check_values(self) -> None:
        super().check_values()
        check_shape(self.shape)
        if not isinstance(self.with_, str):
            check_finite(self.with_, "with")
            if self.from_:
                raise PlanError(
                    worded("{from} needs something to take leaves from"),
                    why=worded("{with} is the number {}", self.with_),
                    fix=worded("name a checkpoint or a file in {with}"),
                    field="from",
                )
            return
        file, entry = split_entry(self.with_)
        if entry is not None and self.from_:
            raise PlanError(
                f"'{entry}' and '{self.from_}' both name a leaf of '{file}'",
                fix=worded("write {with: {}}, {from: {}}", file, self.from_),
                field="from",
            )
        check_references(self.from_, self.patterns, "from")

    def output(self, spec: LeafSpec) -> LeafSpec:
        """For a number: any leaf that holds it."""
        number = self.with_
        assert not isinstance(number, str)
        is_number = is_floating(spec.dtype) or is_integer(spec.dtype) or is_complex(spec.dtype)
        if not is_number or spec.kind not in _ARRAYS:
            raise PlanError(
                f"a number does not replace {spec.type_text}",
                why="numbers stand in floating, integer and complex leaves",
                fix="name the leaves more closely, or take the value from a checkpoint",
            )
        check_fits(number, spec, "with")
        return shaped(spec, self.shape)

    def kernel(self, path: LeafPath, spec: LeafSpec, scene: States) -> Kernel:
        assert not isinstance(self.with_, str)
        return Fill(self.with_)

    @property
    def effect(self) -> Effect:
        return Takes() if isinstance(self.with_, str) else Sets(self.with_)

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        if not isinstance(self.with_, str):
            return super().rewrite(draft, scene)
        file, entry = split_entry(self.with_)
        selected, notes = self.partnered(scene.select(self, draft), draft, scene)
        name, source = scene.open(file)
        changed: dict[LeafPath, Output] = {}
        gathering = Gathering()
        for path in selected:
            with gathering.catching(path=str(path)):
                found = counterpart(path, entry or self.from_, file, source, selected)
                changed[path] = self.grafted(
                    path, draft.leaves[path].spec, LeafRef(name, found), source.tree[found]
                )
        gathering.raise_if_any()
        if self.twins == "carried":
            raise_all(
                named_untold(
                    selected, draft, lambda one: changed[one.path].home == changed[one.param].home
                )
            )
        return scene.carried(draft.with_leaves(changed), self, selected, draft).noting(*notes)

    def meet(self, path: LeafPath, named: Selection, draft: Draft, scene: Scene) -> None:
        if isinstance(self.with_, str):
            file, entry = split_entry(self.with_)
            counterpart(path, entry or self.from_, file, scene.open(file)[1], named)

    def grafted(self, path: LeafPath, spec: LeafSpec, origin: LeafRef, donor: LeafSpec) -> Output:
        """The recipe for a leaf that is taken from ``origin``; it stays what it was, but for shape and chunks."""
        old, spec = spec, shaped(spec, self.shape)
        if donor.shape != spec.shape or _family(donor) != _family(spec):
            raise _misfit(path, old, spec, self._named(origin), donor)
        if donor.dtype == spec.dtype:
            chunks = (
                {"chunk_shape": donor.chunk_shape, "write_shape": donor.write_shape}
                if donor.chunk_shape is not None
                else {}
            )
            kept = msgspec.structs.replace(spec, stored_bytes=donor.stored_bytes, **chunks)
            return Output.of(origin, kept)
        if not self.cast:
            raise PlanError(
                f"{self._named(origin)} has another dtype than '{path}'",
                why=f"it is {donor.type_text}, the leaf {spec.type_text}",
                fix=worded("add {cast: true} to convert it"),
                field="cast",
            )
        after = msgspec.structs.replace(spec, stored_bytes=None)
        recipe = converted(Stored(origin, donor), after, path)
        return Output(recipe, origin, edits=(Edited("cast", Keeps()),))

    def _named(self, origin: LeafRef) -> str:
        """What is taken, and of what: a file of one array has no name of its own for it."""
        assert isinstance(self.with_, str)
        file = f"'{split_entry(self.with_)[0]}'"
        return f"'{origin.path}' of {file}" if origin.path else file


def _misfit(
    path: LeafPath, old: LeafSpec, wanted: LeafSpec, taken: str, donor: LeafSpec
) -> PlanError:
    """What is taken has another shape or kind than the leaf ``old``, or than the one that the edit says."""
    why = f"it is {donor.type_text}, the leaf {old.type_text}"
    fix = worded("shape and kind must agree; {cast: true} converts the dtype")
    if wanted.shape != old.shape:
        why += f", to become {wanted.type_text}"
    if donor.shape != wanted.shape and _family(donor) == _family(old):
        shape = said(pattern_of(donor.shape, old.shape))
        if advice := stacking_advice(wanted, donor):
            fix = advice + worded("; {shape: '{}'} would give the leaf itself that shape", shape)
        else:
            fix = worded(
                "add {shape: '{}'} to give the leaf that shape: slots of the optimizer start anew, or come with it",
                shape,
            )
    return PlanError(f"{taken} does not fit '{path}'", why=why, fix=fix)


_ARRAYS = (LeafKind.ARRAY, LeafKind.NUMPY, LeafKind.SCALAR)


def _family(spec: LeafSpec) -> tuple[str, str | None]:
    """What can stand in for each other: all numbers; keys of one implementation; strings."""
    return ("array" if spec.kind in _ARRAYS else spec.kind.value), spec.key_impl
